//! Limits of RAM against the kernel's own figures.

use std::path::{Path, PathBuf};

use crate::support::cgroup::Group;
use crate::support::run::Run;
use crate::support::truth::KernelRecorder;
use crate::support::{assert_within, or_skip, program, skip, tracked};

const MIB: u64 = 1 << 20;

/// What the kernel counted of a cgroup.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Counted {
    peak_bytes: u64,
    /// How often it killed all processes of the group (memory.oom.group).
    group_kills: u64,
}

/// Reads the kernel's count of a group of v2. `None`: the group is gone.
fn counted(group: &Path) -> Option<Counted> {
    let read = |name| std::fs::read_to_string(group.join(name)).ok();
    let events = read("memory.events")?;
    let kills = events.lines().find_map(|line| line.strip_prefix("oom_group_kill "))?;
    Some(Counted { peak_bytes: read("memory.peak")?.trim().parse().ok()?, group_kills: kills.parse().ok()? })
}

/// The cgroup that a run in `group` made for its command.
fn of_command(group: &Group) -> Option<PathBuf> {
    group.children().into_iter().find(|path| path.extension().is_none_or(|extension| extension != "aside"))
}

/// No sample sees the RSS before the kernel acts: it has file pages that the kernel charged to other groups, so samples may act first.
const NO_SAMPLES: [&str; 4] = ["--st", "100", "--sampling", r#"{"growing_ns": 0}"#];

/// Runs a command under a limit of RAM in a cgroup of its own. Gives the run, and the last count that the kernel had of that group before
/// it was removed.
fn ended_by_the_kernel(group: &Group, limit: &str, words: &[&str]) -> (Run, Counted) {
    let running = tracked(words.iter().copied())
        .options(&["--cgroup", "--limit", limit])
        .options(&NO_SAMPLES)
        .through(&group.enter().each_ref().map(String::as_str))
        .start();
    let mut last = None;
    // The run removes its group before the launcher ends. A zombie has no descriptors.
    while std::fs::symlink_metadata(format!("/proc/{}/fd/0", running.pid())).is_ok() {
        last = of_command(group).and_then(|path| counted(&path)).or(last);
    }
    (running.wait(), last.expect("the run made a cgroup"))
}

// Requirement: LIMIT-8
#[test]
fn overshoot_of_a_limit_that_the_kernel_holds_is_the_kernels() {
    let group = or_skip!(Group::v2("memory"));
    if !group.file("memory.peak").exists() {
        skip!("memory.peak needs Linux 5.19");
    }
    let touch = program("touch");
    // Programs that use more than the limit: in one process, in one of three, in a buffer that grows, and in one of known size.
    let programs: [(&str, String); 4] = [
        ("touch", format!("exec {touch} hold 700000000 1000")),
        ("three processes", format!("sleep 1000 & sleep 1000 & {touch} hold 700000000 1000; wait")),
        ("tail", "exec tail /dev/zero".to_owned()),
        ("dd", "exec dd if=/dev/zero of=/dev/null bs=700M count=1".to_owned()),
    ];
    for mib in [64, 256, 512] {
        for (name, script) in &programs {
            let (run, kernel) = ended_by_the_kernel(&group, &format!("ram={mib}M"), &["sh", "-c", script]);
            let at = |key: &str| run.report().u64(&format!("exit.cause.{key}"));
            assert_eq!(run.report().at("exit.cause.enforced_by"), "kernel", "{name}: {}", run.stderr);
            assert_eq!(kernel.group_kills, 1, "{name}");
            assert_eq!(run.report().u64("processes.still_running"), 0, "{name}");
            let stated = at("overshoot_bytes");
            println!("{name}, ram={mib}M: overshoot {stated}, by the kernel {kernel:?}");
            assert_eq!(stated, kernel.peak_bytes.saturating_sub(mib * MIB), "{name}: {kernel:?}");
            assert_within("amount", run.report().f64("exit.cause.amount"), kernel.peak_bytes as f64, 1.0);
        }
    }
}

// Requirement: LIMIT-3
#[test]
fn overshoot_of_a_limit_that_samples_hold_is_the_kernels() {
    for mib in [64, 256, 512] {
        let recorder = or_skip!(KernelRecorder::open());
        let bytes = (3 * mib * MIB).to_string();
        let words = recorder.wrap([&program("touch"), "hold", &bytes, "1000000"]);
        let run = tracked(words).options(&["--limit", &format!("ram={mib}M")]).run();
        let kernel_bytes = recorder.close().tree[0].hiwater_rss_bytes;
        let cause = run.report().at("exit.cause");
        assert_eq!((run.status.code(), &cause["enforced_by"]), (Some(124), &"samples".into()), "{cause}");
        let stated_bytes = mib * MIB + cause["overshoot_bytes"].as_u64().unwrap();
        println!("ram={mib}M: {stated_bytes} in all, by the kernel {kernel_bytes}");
        // The kernel's own counter of RSS is some pages for each processor off (percpu_counter).
        assert_within("the limit with its overshoot", stated_bytes as f64, kernel_bytes as f64, 1.0);
    }
}
