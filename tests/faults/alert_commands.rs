//! `--on-alert` while collectors are killed: the command runs once for each alert, and each failure is one event.

use std::path::Path;
use std::time::Duration;

use crate::support::{kill, program, tracked, wait_until};
use crate::{Random, rounds};

/// Holds 200 MB until the directory $2 has a file "told", and ends when that has a file "over".
const HOLDS: &str = "\
\"$1\" hold 200000000 1000000 & until [ -e \"$2/told\" ]; do sleep 0.02; done
kill $!; wait; until [ -e \"$2/over\" ]; do sleep 0.02; done; exit 3";

/// Takes its time for the first alert, and fails for each.
const COMMAND: &str = "echo $GPU_TRACK_EVENT >>starts; until [ -e go ]; do sleep 0.02; done; exit 7";

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

// Requirement: ALERT-11, ALERT-12
#[test]
fn command_runs_once_for_each_alert_however_often_the_collector_is_killed() {
    let mut random = Random(0xbb67_ae85_84ca_a73b);
    for round in 0..rounds(4) {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let place = directory.path().to_str().unwrap();
        let (events, command) = (path("events.jsonl"), format!("cd {place}; {COMMAND}"));
        let options = ["--alert", "ram>100M", "--events", events.to_str().unwrap(), "--on-alert", &command];
        let words = ["sh", "-c", HOLDS, "sh", &program("touch"), place];
        let running = tracked(words).options(&options).leaves_processes().start();
        let kill_one = |random: &mut Random| {
            std::thread::sleep(Duration::from_micros(random.below(200_000)));
            running.wait_for_collector();
            running.collector().into_iter().for_each(|collector| kill(collector, libc::SIGKILL));
        };
        wait_until("the command", || !lines(&path("starts")).is_empty());
        kill_one(&mut random);
        std::fs::write(path("go"), "").unwrap();
        kill_one(&mut random);
        let has = |kind: &str| std::fs::read_to_string(&events).is_ok_and(|text| text.contains(kind));
        wait_until("the first failure", || has("\"error\""));
        std::fs::write(path("told"), "").unwrap();
        wait_until("the second command", || lines(&path("starts")).len() > 1);
        kill_one(&mut random);
        let stderr = running.path("stderr");
        let failures = || {
            let lines = lines(&stderr);
            lines.iter().filter(|line| line.contains("exited with status 7")).count()
        };
        wait_until("the second failure", || failures() == 2);
        std::fs::write(path("over"), "").unwrap();
        let run = running.wait();
        assert_eq!(run.status.code(), Some(3), "round {round}: {}", run.stderr);
        assert_eq!(lines(&path("starts")), ["warning", "recovered"], "round {round}");
        let of_errors = |text: &str| text.matches("exited with status 7").count();
        assert_eq!(of_errors(&run.stderr), 2, "round {round}: {}", run.stderr);
        assert_eq!(run.report().u64("events.by_kind.error"), 2, "round {round}");
        assert_eq!(of_errors(&std::fs::read_to_string(&events).unwrap()), 2, "round {round}");
    }
}
