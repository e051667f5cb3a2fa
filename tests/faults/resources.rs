//! Resources that run out or cannot be written: the command runs as usual, and one line says what is missing.

use std::path::Path;
use std::process::Command;

use crate::support::run::BINARY;
use crate::support::{Run, is_root, or_skip, program, skip, tracked, wait_until};

const COMMAND: [&str; 3] = ["sh", "-c", "/bin/true; (exit 4); /bin/true; echo ran; exit 3"];

/// Runs [`COMMAND`] after these shell commands and asserts that it ran as usual.
#[track_caller]
fn run_after(setup: &str) -> Run {
    let script = format!("{setup}; exec \"$@\"");
    let run = tracked(COMMAND).through(&["bash", "-c", &script, "bash"]).run();
    assert_eq!((run.status.code(), run.stdout.as_str()), (Some(3), "ran\n"), "{setup}: {}", run.stderr);
    run
}

/// Asserts also that the command was tracked.
#[track_caller]
fn assert_tracked_after(setup: &str) {
    let run = run_after(setup);
    assert_eq!(run.stderr, "", "{setup}");
    run.report().assert_all_exact(4);
}

/// Asserts also that the command was not tracked, and that one line on stderr names this cause.
#[track_caller]
fn assert_untracked_after(setup: &str, cause: &str) -> Run {
    let run = run_after(setup);
    assert_eq!(run.stderr.lines().count(), 1, "{setup}: {}", run.stderr);
    assert!(run.stderr.contains("untracked") && run.stderr.contains(cause), "{setup}: {}", run.stderr);
    run
}

// Requirement: CMD-10, FAULT-8, FAULT-54
#[test]
fn few_descriptors_track_or_run_untracked() {
    assert_tracked_after("ulimit -n 32");
    let run = run_after("ulimit -n 5");
    assert!(run.stderr.contains("there is no report of it: cannot create a process: "), "{}", run.stderr);
    for limit in [8, 12] {
        let run = assert_untracked_after(&format!("ulimit -n {limit}"), "Too many open files");
        let reason = run.report().at("coverage.untracked_reason").as_str().unwrap_or_default();
        assert!(reason.contains("Too many open files"), "{limit}: {}", run.report());
        assert!(run.report().f64("cpu_time.total_s") > 0.0);
    }
}

// Requirement: SEE-88
#[test]
fn tree_without_free_descriptors_is_counted() {
    // A fork child works; a program that is executed cannot open its libraries.
    let script = "exec 2>/dev/null; ulimit -n 3; (exit 4); echo $?; /bin/true; echo $?; exit 5";
    let run = crate::with_and_without::same_with_and_without(&["sh", "-c", script]);
    assert_eq!(run.status.code(), Some(5));
    assert_eq!(run.report().u64("processes.total"), 3);
}

// Requirement: FAULT-8
#[test]
fn little_address_space_is_enough() {
    // The code of a debug build alone is 35 MB.
    for kib in [48_000, 200_000] {
        assert_tracked_after(&format!("ulimit -v {kib}"));
    }
}

// Requirement: FAULT-8
#[test]
fn little_stack_is_enough() {
    // The environment lies on the stack, too.
    for kib in [64, 100] {
        let limit = format!("ulimit -s {kib}");
        assert_tracked_after(&limit);
        let run = tracked(["sh", "-c", "ulimit -s"])
            .through(&["sh", "-c", &format!("{limit}; exec \"$@\""), "sh"])
            .run();
        assert_eq!(run.stdout.trim(), kib.to_string(), "the command has the same limit");
        assert_eq!(run.report().at("limits.ulimits.stack_bytes.hard"), kib * 1024);
        let companion =
            format!("{limit}; exec {} -V", Path::new(BINARY).with_file_name("gpu-track").display());
        let output = Command::new("sh").args(["-c", &companion]).output().unwrap();
        assert!(output.status.success(), "{limit}: {output:?}");
    }
}

// Requirement: FAULT-52
#[test]
fn shim_is_not_where_the_dynamic_linker_reads_its_path_otherwise() {
    for name in ["$LIB", "${ORIGIN}", "a$PLATFORM", "a b", "a:b"] {
        let command = ["sh", "-c", "echo \"$LD_PRELOAD\"; /bin/true; exit 3"];
        let run = tracked(command);
        let cache = run.path(name);
        // Root's shim is nowhere that the environment names.
        let run = if is_root() { or_skip!(run.by_an_ordinary_user()) } else { run };
        let run = run.with(|command| command.env("XDG_CACHE_HOME", cache).env_remove("HOME")).run();
        run.assert_clean(3).assert_all_exact(2);
        assert!(!run.stdout.contains(name), "{name}: {}", run.stdout);
    }
}

// Requirement: CMD-10, FAULT-8, FAULT-53
#[test]
fn small_file_size_limit_tracks_or_runs_untracked() {
    assert_tracked_after("ulimit -f 4000");
    assert_untracked_after("ulimit -f 100", "File too large");
}

// Requirement: FAULT-8, FAULT-58
#[test]
fn unwritable_stderr_lets_the_command_run() {
    // The message that tracking failed cannot be written. The command must run all the same.
    let run = run_after("ulimit -n 8; exec 2>/dev/full");
    assert_eq!(run.stderr, "");
}

// Requirement: FAULT-8, FAULT-55
#[test]
fn process_limit_of_the_command_alone_runs_untracked() {
    if !is_root() {
        skip!("needs root (setpriv: a user with no other processes)");
    }
    let directory = tempfile::tempdir().unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
    std::fs::set_permissions(directory.path(), mode).unwrap();
    // Only this test uses this uid. With a limit of 2 the collector can start, but not the command beside it. With 3 both can, but
    // not the collector's thread.
    for limit in [1, 2, 3] {
        let script =
            format!("ulimit -u {limit}; export XDG_CACHE_HOME={}; exec \"$@\"", directory.path().display());
        let setpriv =
            ["setpriv", "--reuid=61234", "--regid=61234", "--clear-groups", "bash", "-c", &script, "bash"];
        let reachable = Command::new(setpriv[0]).args(&setpriv[1..4]).args([BINARY, "--version"]).output();
        if !reachable.is_ok_and(|output| output.status.success()) {
            skip!("other users cannot reach the built program");
        }
        let command = ["sh", "-c", "echo ran; read line; exit 3"];
        let mut running = tracked(command).only_options(&[]).through(&setpriv).piped_stdin().start();
        running.wait_for_output("ran");
        let stderr = || std::fs::read_to_string(running.path("stderr")).unwrap();
        wait_until("a line that says why", || stderr().contains("runs untracked"));
        drop(running.stdin());
        let run = running.wait();
        assert_eq!((run.status.code(), run.stdout.as_str()), (Some(3), "ran\n"), "{limit}: {}", run.stderr);
        // The command takes the place of its launcher where that may have no child.
        let (is_reported, cannot) = (limit > 1, "there is no report of it: cannot create a process: ");
        let report = run.stderr.lines().find(|line| line.contains("FAILED, exit 3 after "));
        assert_eq!(report.is_some(), is_reported, "{limit}: {}", run.stderr);
        assert!(report.is_none_or(|line| line.ends_with(", UNTRACKED")), "{limit}: {}", run.stderr);
        assert_eq!(run.stderr.contains(cannot), !is_reported, "{limit}: {}", run.stderr);
    }
}

/// Runs [`COMMAND`] in a mount namespace of its own and asserts that it ran as usual.
#[track_caller]
fn run_with_mounts(mounts: &str, options: Option<&[&str]>) -> Run {
    let run = tracked(COMMAND).with_mounts(mounts);
    let run = if let Some(options) = options { run.only_options(options) } else { run }.run();
    assert_eq!((run.status.code(), run.stdout.as_str()), (Some(3), "ran\n"), "{mounts}: {}", run.stderr);
    run
}

// Requirement: FAULT-8
#[test]
fn one_mebibyte_of_shared_memory_is_enough() {
    if !is_root() {
        skip!("needs root (a mount namespace)");
    }
    let mounts = "mount -t tmpfs -o size=1m tmpfs /dev/shm";
    run_with_mounts(mounts, None).assert_clean(3).assert_all_exact(4);
    let storm = tracked([program("storm"), "calm".into(), "500".into()]).with_mounts(mounts).run();
    storm.assert_clean(0).assert_all_exact(501);
}

// Requirement: FAULT-8
#[test]
fn read_only_home_and_caches_still_track() {
    if !is_root() {
        skip!("needs root (a mount namespace)");
    }
    let setup = "for d in /var/cache /run /root; do mount -t tmpfs -o ro tmpfs $d; done; export HOME=/root; \
                 unset XDG_CACHE_HOME XDG_RUNTIME_DIR; mount -t tmpfs tmpfs /dev/shm";
    run_with_mounts(setup, None).assert_clean(3).assert_all_exact(4);
}

// Requirement: FAULT-8, FAULT-59, OUT-29
#[test]
fn full_disk_shows_the_summary_on_stderr_and_the_report_is_elsewhere() {
    if !is_root() {
        skip!("needs root (a mount namespace)");
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let setup =
        format!("mount -t tmpfs -o size=16k tmpfs {path}; dd if=/dev/zero of={path}/x bs=4k 2>/dev/null");
    let output = format!("{path}/report");
    let run = run_with_mounts(&setup, Some(&["-o", &output]));
    assert!(run.stderr.contains("cannot write the report") && run.stderr.contains(&output), "{}", run.stderr);
    let [summary, place] = ["  RAM peak ", "; it is in "].map(|text| run.stderr.contains(text));
    assert!(summary && place && !run.stderr.contains("Max RAM:"), "{}", run.stderr);
}
