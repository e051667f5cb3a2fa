//! The report file: one run at a time writes to it, and it never says what an earlier run did.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::Value;

use crate::support::{Run, installed, is_root, kill, skip, tracked, wait_until};

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
        .unwrap()
}

fn names_in(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A run of `command` with a JSON report in `report`.
fn reported(report: &Path, command: &[&str]) -> Run {
    tracked(command.iter().copied()).only_options(&["-f", "json", "-o", report.to_str().unwrap()]).run()
}

// Requirement: OUT-12
#[test]
fn second_run_with_the_same_file_is_refused_while_the_first_lives() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("r.json");
    let link = directory.path().join("link.json");
    symlink("r.json", &link).unwrap();
    let outside = tempfile::tempdir().unwrap();
    let (lives, marker) = (outside.path().join("lives"), outside.path().join("started"));
    // The launcher holds the lock before it starts the command. The file of the lock has its name a little earlier.
    let command = ["sh", "-c", ": >\"$0\"; exec cat", lives.to_str().unwrap()];
    let options = ["-f", "json", "-o", report.to_str().unwrap()];
    let mut first = tracked(command).only_options(&options).piped_stdin().start();
    wait_until("the first run's command", || lives.exists());
    for name in [&report, &link] {
        assert!(names_in(directory.path()).contains(&".r.json.gpu-track-lock".into()));
        let second = reported(name, &["touch", marker.to_str().unwrap()]);
        assert_eq!(second.status.code(), Some(2), "{}", second.stderr);
        assert_eq!(second.stderr.lines().count(), 1, "{}", second.stderr);
        for part in ["-o", "r.json", "%p", "%r", "%h"] {
            assert!(second.stderr.contains(part), "{part:?} is not in {}", second.stderr);
        }
    }
    assert!(!marker.exists(), "the second command was started");
    drop(first.stdin());
    assert_eq!(first.wait().status.code(), Some(0));
    assert_eq!(json(&report)["command"], serde_json::json!(command));
    assert_eq!(names_in(directory.path()), ["link.json", "r.json"]);
    assert_eq!(reported(&report, &["true"]).status.code(), Some(0));
}

// Requirement: OUT-12
#[test]
fn ranks_of_one_job_number_their_reports() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("x.json");
    for rank in ["0", "1"] {
        let run = tracked(["true"])
            .only_options(&["-f", "json", "-o", report.to_str().unwrap()])
            .with(move |command| command.env("PMI_RANK", rank).env("PMI_SIZE", "2"))
            .run();
        assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    }
    assert_eq!(names_in(directory.path()), ["x.0.json", "x.1.json"]);
}

// Requirement: OUT-12
#[test]
fn ranks_of_mpirun_number_their_reports() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("x.json");
    let launchers =
        [("mpirun.openmpi", &["--allow-run-as-root", "--oversubscribe"][..]), ("mpirun.mpich", &[])];
    let found: Vec<_> = launchers.into_iter().filter(|(name, _)| installed(name).is_some()).collect();
    if found.is_empty() {
        skip!("mpirun is not installed");
    }
    for (launcher, options) in found {
        let run = tracked(["true"])
            .through(&[&[launcher], options, &["-n", "2"]].concat())
            .only_options(&["--nodes=off", "-f", "json", "-o", report.to_str().unwrap()])
            .run();
        assert_eq!(run.status.code(), Some(0), "{launcher}: {}", run.stderr);
        assert_eq!(names_in(directory.path()), ["x.0.json", "x.1.json"], "{launcher}");
        for name in ["x.0.json", "x.1.json"] {
            fs::remove_file(directory.path().join(name)).unwrap();
        }
    }
}

// Requirement: OUT-13
#[test]
fn report_of_an_earlier_run_is_replaced_where_the_command_cannot_be_run() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("r.json");
    let script = directory.path().join("script");
    fs::write(&script, "not executable").unwrap();
    for (command, code) in [("/no/such/command", 127), (script.to_str().unwrap(), 126)] {
        assert_eq!(reported(&report, &["true"]).status.code(), Some(0));
        assert_eq!(json(&report)["exit"]["code"], 0);
        let run = reported(&report, &[command]);
        assert_eq!(run.status.code(), Some(code), "{}", run.stderr);
        let replaced = json(&report);
        assert_eq!(replaced["command"], serde_json::json!([command]));
        assert_eq!(replaced["exit"]["code"], code);
        assert_eq!(replaced["coverage"]["processes"], 0);
        assert!(replaced["cpu_time"]["total_s"].is_null() && replaced["cpu_time"]["kernel_s"].is_null());
        let warnings = replaced["warnings"].as_array().unwrap();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(
            warnings[0]["text"].as_str().unwrap().starts_with("The command could not be run: "),
            "{warnings:?}"
        );
    }
}

// Requirement: OUT-13, CMD-10
#[test]
fn report_of_an_earlier_run_is_replaced_where_tracking_cannot_begin() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("r.json");
    assert_eq!(reported(&report, &["true"]).status.code(), Some(0));
    let options = ["-f", "json", "-o", report.to_str().unwrap(), "--session-dir", "/no/such/directory"];
    let run = tracked(["echo", "ran"]).only_options(&options).run();
    assert_eq!((run.status.code(), run.stdout.as_str()), (Some(0), "ran\n"));
    let replaced = json(&report);
    assert_eq!((&replaced["finished"], &replaced["exit"]["code"]), (&true.into(), &0.into()));
    assert!(replaced["warnings"][0]["text"].as_str().unwrap().starts_with("The command ran untracked: "));
    assert_eq!(names_in(directory.path()), ["r.json"]);
}

// Requirement: OUT-13, FAULT-69
#[test]
fn report_of_an_earlier_run_is_replaced_while_the_command_runs() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("r.json");
    assert_eq!(reported(&report, &["true"]).status.code(), Some(0));
    let mut running =
        tracked(["cat"]).only_options(&["-f", "json", "-o", report.to_str().unwrap()]).piped_stdin().start();
    wait_until("a report so far", || json(&report)["command"] == serde_json::json!(["cat"]));
    let so_far = json(&report);
    assert_eq!((&so_far["finished"], &so_far["stage"]), (&false.into(), &"so_far".into()));
    drop(running.stdin());
    assert_eq!(running.wait().status.code(), Some(0));
    let last = json(&report);
    assert_eq!((&last["finished"], &last["stage"]), (&true.into(), &"final".into()));
}

// Requirement: FAULT-69
#[test]
fn report_so_far_is_written_at_once_where_a_signal_asks_to_end() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("r.json");
    assert_eq!(reported(&report, &["true"]).status.code(), Some(0));
    // A batch system kills all a while after this signal.
    let stop = directory.path().join("stop");
    let script = "trap '' TERM; while [ ! -e \"$0\" ]; do sleep 0.01; done";
    let running = tracked(["sh", "-c", script, stop.to_str().unwrap()])
        .only_options(&["-f", "json", "-o", report.to_str().unwrap()])
        .start();
    let age_s = || json(&report)["wall_s"].as_f64().filter(|_| json(&report)["stage"] == "so_far");
    wait_until("a report so far", || age_s().is_some_and(|age_s| age_s > 2.0));
    let before_s = age_s().unwrap();
    kill(running.pid(), libc::SIGTERM);
    // Without the signal, the next one is written when the run is twice as old.
    wait_until("another report", || age_s().is_some_and(|age_s| age_s > before_s));
    let after_s = age_s().unwrap();
    assert!(after_s < 2.0 * before_s, "{before_s} {after_s}");
    fs::write(&stop, "").unwrap();
    assert_eq!(running.wait().status.code(), Some(0));
}

// Requirement: OUT-12
#[test]
fn file_in_a_read_only_directory_has_one_writer() {
    if !is_root() {
        skip!("needs root (a read-only mount)");
    }
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("r.json");
    fs::write(&report, "old").unwrap();
    let path = directory.path().to_str().unwrap().to_owned();
    let file = report.to_str().unwrap().to_owned();
    // The file stays writable: it is a mount of its own.
    let mounts =
        format!("mount --bind {path} {path}; mount --bind {file} {file}; mount -o remount,ro,bind {path}");
    let inner = format!("{} -f json -o {file} true; echo inner $?", crate::support::run::BINARY);
    let run =
        tracked(["sh", "-c", &inner]).with_mounts(&mounts).only_options(&["-f", "json", "-o", &file]).run();
    assert_eq!(run.stdout, "inner 2\n", "{}", run.stderr);
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    assert_eq!(json(&report)["command"][0], "sh");
}
