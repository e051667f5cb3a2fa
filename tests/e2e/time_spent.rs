//! Where the time of a run went: the states of known programs, what they waited for, and what is said of it.

use std::fs::File;
use std::time::Duration;

use rustix::fs::{FileType, FlockOperation, Mode, flock, mknodat};

use crate::support::gpu::FakeGpus;
use crate::support::report::Report;
use crate::support::{installed, or_skip, program, tracked};

/// Long enough for a verdict.
const LONG: Duration = Duration::from_millis(1800);

/// The part of the time in a state. Checks that all parts add up to 1.
fn share(report: &Report, state: &str) -> f64 {
    let states = report.array("time_spent.states");
    let share = |entry: &serde_json::Value| entry["share"].as_f64().unwrap();
    let all: f64 = states.iter().map(share).sum();
    assert!((all - 1.0).abs() < 1e-9, "{all}");
    states.iter().find(|entry| entry["state"] == state).map_or(0.0, share)
}

fn verdict(report: &Report) -> (String, String) {
    let verdict = report.at("time_spent.verdict");
    let text = |key: &str| verdict[key].as_str().unwrap_or_default().to_owned();
    (text("kind"), text("text"))
}

// Requirement: SLOW-1, SLOW-3
#[test]
fn sleep_behind_a_pipe_and_a_child_is_sleeping() {
    let run = tracked(["sh", "-c", "sleep 1.8 | cat; exit 0"]).run();
    let report = run.assert_clean(0);
    assert!(share(report, "sleeping") > 0.6, "{}", report.at("time_spent"));
    assert_eq!(share(report, "pipe"), 0.0, "{}", report.at("time_spent"));
    let (kind, text) = verdict(report);
    assert_eq!(kind, "sleeping", "{text}");
    assert!(text.starts_with("sleep slept "), "{text}");
}

// Requirement: SLOW-3
#[test]
fn pipe_whose_writer_is_not_of_the_run_is_a_wait_of_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let path = fifo.to_str().unwrap().to_owned();
    let writer = std::thread::spawn(move || {
        // Waits until the command opens it.
        let writer = File::options().write(true).open(&fifo).unwrap();
        std::thread::sleep(LONG);
        drop(writer);
    });
    let run = tracked(["cat", &path]).run();
    writer.join().unwrap();
    let report = run.assert_clean(0);
    assert!(share(report, "pipe") > 0.6, "{}", report.at("time_spent"));
    assert_eq!(verdict(report).0, "pipe");
}

// Requirement: SLOW-5
#[test]
fn lock_on_a_file_is_named_with_its_holder() {
    or_skip!(installed("flock").ok_or("flock is not installed"));
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    // The lock is the test's, which is not of the run.
    let held = File::open(&path).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();
    let holder = std::thread::spawn(move || {
        std::thread::sleep(LONG + LONG);
        drop(held);
    });
    let run = tracked(["flock", &path, "true"]).run();
    holder.join().unwrap();
    let report = run.assert_clean(0);
    assert!(share(report, "file_lock") > 0.6, "{}", report.at("time_spent"));
    let (kind, text) = verdict(report);
    assert_eq!(kind, "file_lock");
    assert!(text.contains(&format!(": {path}, held by ")), "{text}");
    assert!(text.ends_with(&format!("(pid {})", std::process::id())), "{text}");
}

// Requirement: SLOW-1
#[test]
fn computing_is_named_with_its_command_and_its_cores() {
    let run = tracked(["sh", "-c", &format!("{} 1.5; exit 0", program("burn"))]).run();
    let report = run.assert_clean(0);
    let computed = share(report, "computing") + share(report, "waiting_for_core");
    assert!(computed > 0.8, "{}", report.at("time_spent"));
    let by_command = &report.at("time_spent.states.0.by_command.0.command");
    assert_eq!(by_command.as_str(), Some("burn"), "{}", report.at("time_spent"));
}

// Requirement: SLOW-7
#[test]
fn gpu_that_is_idle_while_the_cpu_computes_is_starved_and_one_that_works_is_waited_for() {
    let burn = program("burn");
    let of = |utilization: u32| {
        let gpus = FakeGpus::new(1, &format!("0.samples !3\n0.utilization {utilization}"));
        let hold = gpus.line(&[
            "hold:0:900000000,c",
            "for:1",
            &format!("touch:{}", gpus.path("is_held")),
            &format!("wait:{}", gpus.path("is_over")),
        ]);
        let (held, over) = (gpus.path("is_held"), gpus.path("is_over"));
        let script = format!("{hold} & until [ -e {held} ]; do :; done; {burn} 2.5; touch {over}; wait");
        gpus.tracked(["sh", "-c", &script]).run().assert_clean(0).clone()
    };
    let idle = of(0);
    let gpu = idle.at("time_spent.gpu");
    assert!(gpu["busy_share"].as_f64().unwrap() < 0.1, "{gpu}");
    // burn computes for 2.5 s, however long it waits for a core.
    let idle_s = gpu["idle_while_computing_share"].as_f64().unwrap() * gpu["s"].as_f64().unwrap();
    assert!(idle_s > 1.5, "{gpu}");
    if share(&idle, "computing") > 0.7 {
        let (kind, text) = verdict(&idle);
        assert_eq!(kind, "gpu_starved", "{text}");
        assert!(text.contains("while burn computed"), "{text}");
    }
    let busy = of(100);
    let gpu = busy.at("time_spent.gpu");
    assert!(gpu["busy_share"].as_f64().unwrap() > 0.5, "{gpu}");
    assert_ne!(verdict(&busy).0, "gpu_starved");
}

// Requirement: SLOW-1
#[test]
fn short_run_has_no_verdict_and_says_why() {
    let report = tracked(["true"]).run().assert_clean(0).clone();
    assert!(report.at("time_spent.verdict").is_null());
    assert!(report.at("time_spent.reason").as_str().unwrap().contains("less than a second"));
    share(&report, "computing");
}
