//! Where tracking cannot begin, the report has what the launcher knows as the command's parent, and says so.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Instant;

use serde_json::Value;

use crate::support::gpu::FakeGpus;
use crate::support::report::Report;
use crate::support::run::Tracked;
use crate::support::{kill, program, tracked, wait_until};

/// No session can be made there.
pub const NO_SESSION: [&str; 2] = ["--session-dir", "/no/such/directory"];

const MIB: u64 = 1 << 20;

fn untracked<S: Into<std::ffi::OsString>>(words: impl IntoIterator<Item = S>) -> Tracked {
    tracked(words).options(&NO_SESSION)
}

fn assert_says_so(report: &Report) {
    let reason = report.at("coverage.untracked_reason").as_str().unwrap();
    assert!(reason.contains("/no/such/directory"), "{reason}");
    let warnings = report.warnings();
    assert!(warnings.contains(&format!("The command ran untracked: {reason}. ")), "{warnings}");
}

/// The user and system times of two lines of `times` in a shell, its own and those of its children, seconds.
fn shell_times(lines: &str) -> f64 {
    let seconds = |time: &str| {
        let (minutes, seconds) = time.strip_suffix('s').unwrap().split_once('m').unwrap();
        minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap()
    };
    lines.split_whitespace().map(seconds).sum()
}

// Requirement: FAULT-98
#[test]
fn report_without_tracking_has_cpu_time_and_largest_rss_of_what_was_waited_for() {
    let (burn, touch) = (program("burn"), program("touch"));
    // More than these tests themselves: over exec, a child inherits its parent's maximum.
    const HELD: u64 = 400 * MIB;
    let hold = HELD.to_string();
    let script = format!("{burn} 0.3; {touch} hold {hold} 0; times; exit 5");
    let before = Instant::now();
    let run = untracked(["bash", "-c", &script]).run();
    let elapsed_s = before.elapsed().as_secs_f64();
    assert_eq!(run.status.code(), Some(5), "{}", run.stderr);
    let report = run.report();
    assert_says_so(report);
    assert_eq!((report.at("finished"), report.at("exit.code")), (&true.into(), &5.into()));
    let cpu_s = shell_times(&run.stdout);
    let reported_s = report.f64("cpu_time.total_s");
    assert!(cpu_s >= 0.3 && (reported_s - cpu_s).abs() < 0.01, "{reported_s}, and {cpu_s} by the shell");
    let wall_s = report.f64("wall_s");
    assert!((0.3..elapsed_s).contains(&wall_s), "{wall_s} of {elapsed_s}");
    let largest = report.f64("max_ram.combined.total_rss") as u64;
    assert!((HELD..HELD + 5 * MIB).contains(&largest), "{largest}");
}

// Requirement: FAULT-98
#[test]
fn report_without_tracking_has_nothing_else() {
    let gpus = FakeGpus::new(1, "*.utilization 50");
    let run = gpus.tracked([program("burn"), "0.01".into()]).options(&NO_SESSION).run();
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    let report = run.report();
    assert_says_so(report);
    for path in [
        "max_ram.main.total_rss",
        "max_ram.descendants.total_rss",
        "max_ram.combined.private_rss",
        "max_ram.system",
        "mean_ram.combined",
        "max_gpu_ram.combined",
        "max_gpu_ram.system_capacity",
        "gpu_utilization.n_expected_gpus",
        "cpu_utilization.main.mean_sum_percent",
        "cpu_utilization.descendants.mean_sum_percent",
        "cpu_utilization.combined.max_sum_percent",
        "cpu_utilization.combined_n_threads",
        "hints.memory",
        "hints.time",
        "peak",
        "contention.others_cores",
        "crashes",
        "cpu_time.unattributed_s",
        "processes.max_concurrent",
    ] {
        assert!(report.at(path).is_null(), "{path}: {}", report.at(path));
    }
    assert!(report.array("processes.by_command").is_empty(), "{report}");
    assert!(report.array("series.end_s").is_empty(), "{}", report.at("series"));
    assert_eq!(report.at("contention.reason"), "the run was not tracked");
    let warnings = report.warnings();
    assert!(warnings.contains("NVIDIA GPUs: the run was not tracked"), "{warnings}");
}

// Requirement: FAULT-98
#[test]
fn summary_without_tracking_says_so_in_its_first_line() {
    let run = tracked(["sh", "-c", "exit 3"]).only_options(&NO_SESSION).run();
    assert_eq!(run.status.code(), Some(3));
    let headline = run.stderr.lines().find(|line| line.contains("FAILED, exit 3")).unwrap();
    assert!(headline.ends_with(", UNTRACKED"), "{}", run.stderr);
    for row in ["CPU ", "Processes      not counted", "! The command ran untracked: "] {
        assert!(run.stderr.contains(row), "{row}: {}", run.stderr);
    }
}

// Requirement: FAULT-98, CMD-7
#[test]
fn signals_reach_an_untracked_command_and_their_sender_is_named() {
    let running = untracked([program("signals"), "15".into()]).start();
    running.wait_for_output("ready");
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGUSR1, libc::SIGCONT] {
        kill(running.pid(), signal);
        running.wait_for_output(&format!("got {signal}\n"));
    }
    kill(running.pid(), libc::SIGTERM);
    assert_eq!(running.wait().status.code(), Some(0));

    let running = untracked(["sh", "-c", "echo ready; exec sleep 100000"]).start();
    running.wait_for_output("ready");
    kill(running.pid(), libc::SIGTERM);
    let run = running.wait();
    assert_eq!(run.status.signal(), Some(libc::SIGTERM), "{}", run.status);
    assert_eq!(run.report().at("exit.cause.sender.pid"), std::process::id());
}

// Requirement: FAULT-98
#[test]
fn orphans_of_an_untracked_command_are_waited_for_or_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pid");
    let words = [program("daemon"), "double".into(), file.to_str().unwrap().into()];
    let daemon = || {
        wait_until("the daemon's pid", || file.exists());
        std::fs::read_to_string(Path::new(&file)).unwrap().trim().parse::<u32>().unwrap()
    };
    let run = untracked(words.clone()).leaves_processes().run();
    let report = run.report();
    assert_eq!(report.u64("processes.still_running"), 1, "{report}");
    assert_eq!(report.array("processes.still_running_processes")[0]["pid"], daemon());
    assert!(report.warnings().contains("1 process still ran at the end:"), "{}", report.warnings());
    kill(daemon(), libc::SIGTERM);

    std::fs::remove_file(&file).unwrap();
    let running = untracked(words).options(&["--wait-all"]).start();
    kill(daemon(), libc::SIGTERM);
    let run = running.wait();
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    assert_eq!(run.report().u64("processes.still_running"), 0);
}

/// Its launcher waits for an orphan, and so is told of it as of the command.
// Requirement: FAULT-98
#[test]
fn memory_of_an_orphan_counts_without_tracking() {
    let touch = program("touch");
    let script = format!("({touch} hold {} 0 &); exec {touch} hold {} 200", 200 * MIB, 60 * MIB);
    let run = untracked(["sh", "-c", &script]).options(&["--wait-all"]).run();
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    let largest = run.report().f64("max_ram.combined.total_rss") as u64;
    assert!((200 * MIB..205 * MIB).contains(&largest), "{largest}");
}

// Requirement: FAULT-98
#[test]
fn report_so_far_and_that_of_a_command_which_can_not_be_run_have_no_zeros() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("usage.json");
    let read = || Report(serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap());
    let options = ["-f", "json", "-o", file.to_str().unwrap()];
    let assert_no_zeros = |report: &Report| {
        for path in [
            "cpu_utilization.combined.max_sum_percent",
            "hints.cpus",
            "cpu_time.total_s",
            "max_ram.combined.total_rss",
        ] {
            assert!(report.at(path).is_null(), "{path}: {}", report.at(path));
        }
        assert!(report.array("series.end_s").is_empty(), "{}", report.at("series"));
    };
    let mut running =
        tracked(["cat"]).only_options(&[&options[..], &NO_SESSION].concat()).piped_stdin().start();
    wait_until("a report so far", || file.exists());
    let so_far = read();
    assert_eq!(
        (so_far.at("stage"), so_far.at("max_ram.descendants.total_rss")),
        (&"so_far".into(), &Value::Null)
    );
    assert!(so_far.at("coverage.untracked_reason").is_string(), "{so_far}");
    assert_no_zeros(&so_far);
    drop(running.stdin());
    assert_eq!(running.wait().status.code(), Some(0));
    assert_eq!(read().at("stage"), "final");

    let run = tracked(["/no/such/command"]).only_options(&options).run();
    assert_eq!(run.status.code(), Some(127));
    assert_no_zeros(&read());
    assert!(read().at("coverage.untracked_reason").is_null(), "nothing kept it from being tracked");
}
