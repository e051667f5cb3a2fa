//! What runs out, or may not be written: the command does what it always does, and one line says what is missing.

use crate::support::run::BINARY;
use crate::support::{Run, is_root, program, skip, tracked};

const COMMAND: [&str; 3] = ["sh", "-c", "/bin/true; (exit 4); /bin/true; echo ran; exit 3"];

/// The command in the world that `setup` makes, a shell's words. It ran as always.
#[track_caller]
fn in_world(setup: &str) -> Run {
    let script = format!("{setup}; exec \"$@\"");
    let run = tracked(COMMAND).through(&["bash", "-c", &script, "bash"]).run();
    assert_eq!((run.status.code(), run.stdout.as_str()), (Some(3), "ran\n"), "{setup}: {}", run.stderr);
    run
}

/// And it was tracked.
#[track_caller]
fn tracked_in(setup: &str) {
    let run = in_world(setup);
    assert_eq!(run.stderr, "", "{setup}");
    run.report().assert_all_exact(4);
}

/// And one line says that it was not tracked, with this cause in it.
#[track_caller]
fn untracked_in(setup: &str, cause: &str) {
    let run = in_world(setup);
    assert_eq!(run.stderr.lines().count(), 1, "{setup}: {}", run.stderr);
    assert!(run.stderr.contains("untracked") && run.stderr.contains(cause), "{setup}: {}", run.stderr);
}

#[test]
fn few_descriptors_track_or_run_untracked() {
    tracked_in("ulimit -n 32");
    for limit in [5, 8] {
        untracked_in(&format!("ulimit -n {limit}"), "Too many open files");
    }
}

#[test]
fn tree_without_free_descriptors_is_counted() {
    // A child that is forked, and one that can't even open its libraries.
    let script = "exec 2>/dev/null; ulimit -n 3; (exit 4); echo $?; /bin/true; echo $?; exit 5";
    let run = crate::twice::same_with_and_without(&["sh", "-c", script]);
    assert_eq!(run.status.code(), Some(5));
    assert_eq!(run.report().u64("processes.total"), 3);
}

#[test]
fn little_address_space_is_enough() {
    for kib in [20_000, 200_000] {
        tracked_in(&format!("ulimit -v {kib}"));
    }
}

#[test]
fn small_file_size_limit_tracks_or_runs_untracked() {
    tracked_in("ulimit -f 4000");
    untracked_in("ulimit -f 100", "File too large");
}

#[test]
fn unwritable_stderr_lets_the_command_run() {
    // What can't be said must not keep the command from running.
    let run = in_world("ulimit -n 8; exec 2>/dev/full");
    assert_eq!(run.stderr, "");
}

#[test]
fn process_limit_of_the_command_alone_runs_untracked() {
    if !is_root() {
        skip!("needs root (setpriv: a user with no other processes)");
    }
    let directory = tempfile::tempdir().unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(directory.path(), mode).unwrap();
    // Nobody but this test has this user's number. 2: the collector, and no command beside it.
    for limit in [1, 2] {
        let script =
            format!("ulimit -u {limit}; export XDG_CACHE_HOME={}; exec \"$@\"", directory.path().display());
        let setpriv =
            ["setpriv", "--reuid=61234", "--regid=61234", "--clear-groups", "bash", "-c", &script, "bash"];
        let reachable =
            std::process::Command::new(setpriv[0]).args(&setpriv[1..4]).args([BINARY, "--version"]).output();
        if !reachable.is_ok_and(|output| output.status.success()) {
            skip!("the built program is where other users can't run it");
        }
        let run = tracked(["sh", "-c", "echo ran; exit 3"]).only_options(&[]).through(&setpriv).run();
        assert_eq!((run.status.code(), run.stdout.as_str()), (Some(3), "ran\n"), "{limit}: {}", run.stderr);
        assert!(run.stderr.contains("without a report: cannot"), "{limit}: {}", run.stderr);
    }
}

/// In a mount namespace of its own.
#[track_caller]
fn with_mounts(mounts: &str, options: Option<&[&str]>) -> Run {
    let script = format!("{mounts}; exec \"$@\"");
    let run = tracked(COMMAND).through(&["unshare", "-m", "sh", "-c", &script, "sh"]);
    let run = if let Some(options) = options { run.only_options(options) } else { run }.run();
    assert_eq!((run.status.code(), run.stdout.as_str()), (Some(3), "ran\n"), "{mounts}: {}", run.stderr);
    run
}

#[test]
fn one_mebibyte_of_shared_memory_is_enough() {
    if !is_root() {
        skip!("needs root (a mount namespace)");
    }
    let run = with_mounts("mount -t tmpfs -o size=1m tmpfs /dev/shm", None);
    run.assert_clean(3).assert_all_exact(4);
    let storm = tracked([program("storm"), "calm".into(), "500".into()])
        .through(&[
            "unshare",
            "-m",
            "sh",
            "-c",
            "mount -t tmpfs -o size=1m tmpfs /dev/shm; exec \"$@\"",
            "sh",
        ])
        .run();
    storm.assert_clean(0).assert_all_exact(501);
}

#[test]
fn read_only_home_and_caches_still_track() {
    if !is_root() {
        skip!("needs root (a mount namespace)");
    }
    let setup = "for d in /var/cache /run /root; do mount -t tmpfs -o ro tmpfs $d; done; export HOME=/root; \
                 unset XDG_CACHE_HOME XDG_RUNTIME_DIR; mount -t tmpfs tmpfs /dev/shm";
    with_mounts(setup, None).assert_clean(3).assert_all_exact(4);
}

#[test]
fn full_disk_shows_the_report_on_stderr() {
    if !is_root() {
        skip!("needs root (a mount namespace)");
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let setup =
        format!("mount -t tmpfs -o size=16k tmpfs {path}; dd if=/dev/zero of={path}/x bs=4k 2>/dev/null");
    let output = format!("{path}/report");
    let run = with_mounts(&setup, Some(&["-o", &output]));
    assert!(run.stderr.contains("cannot write the report") && run.stderr.contains(&output), "{}", run.stderr);
    assert!(run.stderr.contains("Coverage"), "the report itself is shown: {}", run.stderr);
}
