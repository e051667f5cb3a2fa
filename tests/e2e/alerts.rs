//! `--alert` and `--events`: alerts go on and off while the command runs, and everything else is as without them.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::run::{Run, tracked};
use crate::support::{program, wait_until};

/// Holds 200 MB until the file of events has a warning, and runs until that is over.
const HOLDS_UNTIL_WARNED: &str = "\
\"$1\" hold 200000000 1000000 & until grep -q '\"warning\"' \"$2\"; do sleep 0.02; done
kill $!; wait; until grep -q '\"recovered\"' \"$2\"; do sleep 0.02; done; exit 3";

/// Runs that under these options, with a file of events.
fn warned(directory: &Path, options: &[&str]) -> (Run, Vec<Value>) {
    let file = directory.join("events.jsonl");
    let file = file.to_str().unwrap();
    let touch = program("touch");
    let words = ["sh", "-c", HOLDS_UNTIL_WARNED, "sh", touch.as_str(), file];
    let options = [&["--alert", "ram>100M", "--events", file], options].concat();
    (tracked(words).options(&options).run(), lines(Path::new(file)))
}

fn lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.ends_with('\n'), "{text}");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The kinds of the events in a file, whose first line is that of the run.
fn kinds(lines: &[Value]) -> Vec<&str> {
    assert!(lines[0]["run"]["gpu_track_version"].is_string(), "{}", lines[0]);
    lines[1..].iter().map(|line| line["event"]["kind"].as_str().unwrap()).collect()
}

// Requirement: ALERT-2, ALERT-7, ALERT-8
#[test]
fn alert_is_told_on_stderr_in_the_file_of_events_and_in_the_report() {
    let directory = tempfile::tempdir().unwrap();
    let (run, lines) = warned(directory.path(), &[]);
    assert_eq!(run.status.code(), Some(3), "{}", run.stderr);
    let told: Vec<&str> =
        run.stderr.lines().filter(|line| line.starts_with("gpu-track-run: alert")).collect();
    let [on, off] = &told[..] else { panic!("{}", run.stderr) };
    assert!(on.contains("alert ram>100M, ") && on.contains(" of RAM"), "{on}");
    assert!(off.contains("alert ram>100M is over after "), "{off}");
    assert_eq!(kinds(&lines), ["start", "warning", "recovered", "peak", "stop"]);
    assert_eq!(lines[0]["run"]["sources"]["alerts"], serde_json::json!(["ram>100M"]));
    let report = run.report();
    let [alert] = report.array("alerts") else { panic!() };
    assert_eq!(
        (&alert["times"], &alert["is_on"], &alert["reason"]),
        (&1.into(), &false.into(), &Value::Null)
    );
    assert_eq!(alert["allowed"], 104_857_600.0);
    // The same events, in the order of their times.
    let list = report.array("events.list");
    assert_eq!(report.u64("events.count"), 5);
    let in_file: Vec<&Value> = lines[1..].iter().map(|line| &line["event"]).collect();
    assert!(list.iter().all(|event| in_file.contains(&event)), "{list:?} {in_file:?}");
    assert!(list.is_sorted_by_key(|event| event["at_s"].as_f64()));
    assert!(
        list[1]["amount"].as_f64() > Some(104_857_600.0) || list[2]["amount"].as_f64() > Some(104_857_600.0)
    );
}

// Requirement: ALERT-9
#[test]
fn companion_lists_the_events_of_a_report() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("r.json");
    let file = file.to_str().unwrap();
    warned(directory.path(), &["-o", file]);
    let listed = Command::new(env!("CARGO_BIN_EXE_gpu-track"))
        .args(["report", file, "--list-events", "-f", "json"])
        .output()
        .unwrap();
    assert_eq!((listed.status.code(), String::from_utf8_lossy(&listed.stderr)), (Some(0), "".into()));
    let listed: Vec<Value> = serde_json::from_slice(&listed.stdout).unwrap();
    let mut kinds: Vec<&str> = listed.iter().map(|event| event["type"].as_str().unwrap()).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["peak", "recovered", "start", "stop", "warning"]);
}

// Requirement: ALERT-7
#[test]
fn quiet_run_says_nothing_of_an_alert() {
    let directory = tempfile::tempdir().unwrap();
    let (run, lines) = warned(directory.path(), &["--quiet"]);
    assert_eq!((run.status.code(), run.stderr.as_str()), (Some(3), ""));
    assert_eq!(kinds(&lines), ["start", "warning", "recovered", "peak", "stop"]);
}

// Requirement: ALERT-5
#[test]
fn limit_that_is_exceeded_is_an_event() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("events.jsonl");
    let options = ["--limit", "wall=300ms", "--events", file.to_str().unwrap()];
    let run = tracked(["sleep", "1000"]).options(&options).run();
    assert_eq!(run.status.code(), Some(124), "{}", run.stderr);
    let lines = lines(&file);
    let limit = lines[1..].iter().map(|line| &line["event"]).find(|event| event["kind"] == "limit").unwrap();
    assert_eq!((&limit["rule"], &limit["allowed"]), (&"wall=300ms".into(), &0.3.into()), "{lines:?}");
    assert_eq!(run.report().u64("events.by_kind.limit"), 1);
}

// Requirement: ALERT-10
#[test]
fn run_without_alerts_and_events_says_nothing_of_them() {
    let run = tracked(["true"]).run();
    let report = run.assert_clean(0);
    assert!(report.0.get("alerts").is_none() && report.0.get("events").is_none());
}

// Requirement: ALERT-8
#[test]
fn collector_that_is_killed_leaves_no_event_twice() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("events.jsonl");
    let options = ["--alert", "ram>100M", "--events", file.to_str().unwrap()];
    let touch = program("touch");
    let script = format!("{touch} hold 200000000 1000000 & read line; kill $!; wait");
    let mut running = tracked(["sh", "-c", &script]).options(&options).piped_stdin().start();
    let has = |kind: &str| std::fs::read_to_string(&file).is_ok_and(|text| text.contains(kind));
    wait_until("the warning", || has("\"warning\""));
    running.wait_for_collector();
    running.replace_collector();
    drop(running.stdin());
    let run = running.wait();
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    let lines = lines(&file);
    let kinds = kinds(&lines);
    for kind in ["start", "warning", "peak", "stop"] {
        assert_eq!(kinds.iter().filter(|other| **other == kind).count(), 1, "{kinds:?}");
    }
}
