//! If the launcher, the collector or the segment fails, the command still runs and the report is still written.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;

use crate::support::descriptors::{Descriptor, descriptors};
use crate::support::run::Running;
use crate::support::{Run, kill, leftovers, program, skip, tracked, wait_until};

// Requirement: FAULT-1
#[test]
fn killed_collector_is_replaced_without_loss() {
    let burn = program("burn");
    let script = format!("{burn} 0.5; /bin/true; echo ready; read x; {burn} 0.3; exit 0");
    let mut running = tracked(["sh", "-c", &script]).piped_stdin().start();
    running.wait_for_output("ready");
    running.replace_collector();
    running.stdin().write_all(b"go\n").unwrap();
    let run = running.wait();
    let report = run.report();
    assert_eq!(run.status.code(), Some(0));
    report.assert_all_exact(4);
    report.assert_cpu_between(0.8, 0.1);
}

/// What other processes see of a collector: command line, signal masks and session, and which of its standard streams are /dev/null.
fn look_of_collector(pid: u32) -> Vec<String> {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
    // First: a collector takes this name when all else is as it stays.
    let name = read("comm");
    let line = read("cmdline");
    let words: Vec<&str> = line.split_terminator('\0').filter(|word| word.parse::<u32>().is_err()).collect();
    let status = read("status");
    let masks = status.lines().filter(|line| line.starts_with("SigBlk") || line.starts_with("SigIgn"));
    // SAFETY: takes a number.
    let leads_session = unsafe { libc::getsid(pid.cast_signed()) } == pid.cast_signed();
    let is_null = |fd: &Descriptor| fd.number < 3 && fd.target == "/dev/null";
    let streams = descriptors(pid).into_iter().filter(is_null);
    let mut look = vec![format!("{words:?}, a session's leader: {leads_session}"), name];
    look.extend(masks.map(str::to_owned));
    look.extend(streams.map(|fd| format!("stream {} is null", fd.number)));
    look
}

// Requirement: FAULT-104
#[test]
fn collector_looks_alike_whether_it_was_forked_or_executed() {
    let start = |prefix: &[&str]| {
        let command = ["sh", "-c", "echo ready; read x; exit 0"];
        let running = tracked(command).through(prefix).piped_stdin().start();
        running.wait_for_output("ready");
        running
    };
    let wait_for_look = |running: &Running| {
        let mut look = Vec::new();
        wait_until("the collector's name", || {
            look = look_of_collector(running.wait_for_collector());
            look[1] == "gpu-track-coll\n"
        });
        let segment = running.segment().to_str().unwrap().to_owned();
        assert!(look[0].contains(&segment), "{look:?}");
        look.into_iter().map(|line| line.replace(&segment, "SEGMENT")).collect::<Vec<_>>()
    };
    let mut forked = start(&[]);
    let first = wait_for_look(&forked);
    // What replaces a killed collector is executed.
    forked.replace_collector();
    assert_eq!(wait_for_look(&forked), first);
    forked.stdin().write_all(b"go\n").unwrap();
    forked.wait().assert_clean(0);

    let mut executed = start(&[&program("refused"), "cmdline"]);
    assert_eq!(wait_for_look(&executed), first);
    executed.stdin().write_all(b"go\n").unwrap();
    executed.wait().assert_clean(0);
}

// Requirement: FAULT-103
#[test]
fn collector_that_is_stopped_goes_on_when_the_run_ends() {
    let mut running = tracked(["sh", "-c", "echo ready; read x; exit 7"]).piped_stdin().start();
    running.wait_for_output("ready");
    kill(running.wait_for_collector(), libc::SIGSTOP);
    running.stdin().write_all(b"go\n").unwrap();
    let run = running.wait();
    assert_eq!(run.status.code(), Some(7), "{}", run.stderr);
    assert_eq!(run.report().at("exit.code"), 7);
}

// Requirement: FAULT-1, FAULT-64
#[test]
fn collector_killed_twenty_times_loses_no_process() {
    let script = "while read x; do for i in 1 2 3 4 5 6 7 8 9 10; do /bin/true; done; done; exit 0";
    let mut running = tracked(["sh", "-c", script]).piped_stdin().start();

    let mut stdin = running.stdin();
    let mut last = 0;
    for _ in 0..20 {
        let mut next = None;
        wait_until("another collector", || {
            next = running.collector().filter(|pid| *pid != last);
            next.is_some()
        });
        last = next.unwrap();
        // The collector dies while the shell starts the next ten children.
        stdin.write_all(b"go\n").unwrap();
        kill(last, libc::SIGKILL);
    }
    drop(stdin);
    let run = running.wait();
    run.assert_clean(0).assert_all_exact(201);
    assert!(run.report().warnings().contains("killed 20 times"), "{}", run.report().warnings());
}

// Requirement: FAULT-2, FAULT-10, FAULT-68
#[test]
fn killed_launcher_still_leaves_a_report() {
    let script = format!("echo ready; read x; {} 0.3; exit 0", program("burn"));
    let mut running = tracked(["sh", "-c", &script]).piped_stdin().leaves_processes().start();
    running.wait_for_output("ready");
    let collector = running.collector().expect("a collector runs");
    let mut stdin = running.stdin();
    kill(running.pid(), libc::SIGKILL);
    stdin.write_all(b"go\n").unwrap();
    wait_until("the collector's end", || !std::path::Path::new(&format!("/proc/{collector}")).exists());
    let run = running.wait();
    assert_eq!(run.status.signal(), Some(libc::SIGKILL));
    assert_eq!(leftovers::segments(run.launcher), [""; 0]);
    let report = run.report();
    assert_eq!(report.u64("processes.total"), 2);
    report.assert_cpu_between(0.3, 0.1);
}

/// Asserts that with this file system on /dev/shm the command runs, and that a line on stderr and the report say what failed.
#[track_caller]
fn assert_command_runs_with(dev_shm: &str) {
    let run = tracked(["sh", "-c", "echo ran; exit 3"]).with_mounts(dev_shm).run();
    let failure = assert_ran_untracked(&run);
    assert_eq!(run.report().at("coverage.untracked_reason"), failure);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
}

/// What the line on stderr says.
#[track_caller]
fn assert_ran_untracked(run: &Run) -> &str {
    assert_eq!(run.status.code(), Some(3), "{}", run.stderr);
    assert_eq!(run.stdout, "ran\n");
    let line = run.stderr.lines().next().unwrap();
    line.strip_prefix("gpu-track-run: the command runs untracked: ").expect("a line says so")
}

// Requirement: CMD-10, FAULT-8, FAULT-51
#[test]
fn full_dev_shm_lets_the_command_run() {
    if !crate::support::is_root() {
        skip!("needs root (a mount namespace)");
    }
    assert_command_runs_with("mount -t tmpfs -o size=8k tmpfs /dev/shm");
}

// Requirement: CMD-10, FAULT-8, FAULT-51
#[test]
fn read_only_dev_shm_lets_the_command_run() {
    if !crate::support::is_root() {
        skip!("needs root (a mount namespace)");
    }
    assert_command_runs_with("mount -t tmpfs -o ro tmpfs /dev/shm");
}

// Requirement: CMD-10, FAULT-52
#[test]
fn missing_executable_directory_lets_the_command_run() {
    if !crate::support::is_root() {
        skip!("needs root (a mount namespace)");
    }
    // The launcher is started through a descriptor, because its own directory may be below /tmp.
    let script = "exec 9< \"$1\"; shift
        for d in /tmp /dev/shm /var/cache /run; do mount -t tmpfs -o noexec tmpfs $d; done
        unset HOME XDG_RUNTIME_DIR; export XDG_CACHE_HOME=/dev/null
        exec /proc/self/fd/9 \"$@\"";
    let run = tracked(["sh", "-c", "echo ran; exit 3"])
        .only_options(&[])
        .through(&["unshare", "-m", "sh", "-c", script, "sh"])
        .run();
    assert_ran_untracked(&run);
}

// Requirement: FAULT-85
#[test]
fn unlinked_segment_ends_in_a_report() {
    let script = "echo ready; read x; rm -f \"$GPU_TRACK_SESSION\"; /bin/true; /bin/true; exit 5";
    let mut running = tracked(["sh", "-c", script]).piped_stdin().start();
    running.wait_for_output("ready");
    running.wait_for_collector();
    running.stdin().write_all(b"go\n").unwrap();
    let run = running.wait();
    assert_eq!(run.status.code(), Some(5), "{} {}", run.status, run.stderr);
    assert!(run.report().u64("processes.total") >= 1);
    assert!(run.report().warnings().contains("unlinked"), "{}", run.report().warnings());
}

// Requirement: FAULT-85
#[test]
fn early_segment_unlink_keeps_the_exit_status() {
    // Repeated, because the unlink may come before or after the collector has opened the segment.
    for _ in 0..10 {
        let run = tracked(["sh", "-c", "rm -f \"$GPU_TRACK_SESSION\"; /bin/true; exit 5"]).run();
        assert_eq!(run.status.code(), Some(5), "{} {}", run.status, run.stderr);
    }
}

// Requirement: FAULT-94
#[test]
fn truncated_segment_ends_in_a_report() {
    // A process that touches its mapping of the segment gets SIGBUS. That may be the shell, but not the collector.
    let run = tracked(["sh", "-c", "truncate -s 0 \"$GPU_TRACK_SESSION\"; /bin/true; exit 5"]).run();
    let report = run.report();
    assert_eq!(report.at("exit.code").as_i64(), run.status.code().map(i64::from));
    assert_eq!(report.at("exit.signal").as_i64(), run.status.signal().map(i64::from));
    assert!(!report.array("warnings").is_empty(), "a warning states the loss");
}

// Requirement: FAULT-5, FAULT-86
#[test]
fn garbage_in_the_segment_keeps_the_exit_status() {
    let script = "dd if=/dev/urandom of=\"$GPU_TRACK_SESSION\" bs=4096 seek=1 count=64 conv=notrunc status=none; exit 6";
    let run = tracked(["sh", "-c", script]).run();
    assert_eq!(run.status.code(), Some(6), "{}", run.stderr);
    assert_eq!(run.report().at("exit.code"), 6);
}

// Requirement: FAULT-4
#[test]
fn concurrent_runs_do_not_touch_each_others_segments() {
    let runs: Vec<_> = (0..30).map(|_| tracked(["/bin/true"]).start()).collect();
    for running in runs {
        running.wait().assert_clean(0).assert_all_exact(1);
    }
}
