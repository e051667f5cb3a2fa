//! Whoever is killed or stopped, and whenever: the others go on, and the counts are right.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::support::run::Running;
use crate::support::{kill, leftovers, program, skip, tracked, wait_until};
use crate::{Random, rounds};

/// How long a run of many rounds may take.
const LONG: Duration = Duration::from_secs(1200);

/// The collector of a run: the same executable, and not the launcher.
pub fn collector(running: &Running) -> Option<u32> {
    leftovers::collector(running.mark(), running.pid())
}

fn is_there(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// All that belongs to a run, first who could put things in order.
pub fn kill_all(running: &Running) {
    kill(running.pid(), libc::SIGSTOP);
    // Some are born meanwhile, and some end.
    wait_until("the end of all", || {
        let live = leftovers::processes(running.mark());
        for (pid, _) in &live {
            // SAFETY: kill has no memory preconditions.
            unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) };
        }
        live.is_empty()
    });
}

/// Waits for `more` further bytes of what the command writes; false when it has ended.
pub fn progressed(running: &Running, more: u64) -> bool {
    let length = || std::fs::metadata(running.path("stdout")).unwrap().len();
    let wanted = length() + more;
    let said_all = || std::fs::read_to_string(running.path("stdout")).unwrap().ends_with('\n');
    wait_until("progress", || length() >= wanted || said_all());
    !said_all()
}

#[test]
fn the_collector_at_random_moments_of_a_fork_storm() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let kills = rounds(10);
    // Enough for a kill each 25 children on average.
    let children = kills * 40;
    let words = [program("storm"), "calm".into(), children.to_string()];
    let running = tracked(words).watchdog(LONG).start();
    let (mut killed, mut last) = (0, 0);
    while killed < kills && progressed(&running, random.below(50)) {
        let Some(pid) = collector(&running).filter(|pid| *pid != last) else { continue };
        kill(pid, libc::SIGKILL);
        (killed, last) = (killed + 1, pid);
    }
    let run = running.wait();
    assert_eq!((run.status.code(), run.stderr.as_str()), (Some(0), ""));
    assert!(killed > 0, "the storm was over before it began");
    let report = run.report();
    let times = if killed == 1 { "killed once".into() } else { format!("killed {killed} times") };
    assert!(report.warnings().contains(&times), "{times}: {}", report.warnings());
    let dropped = report.u64("coverage.dropped_events");
    // No collector was there to read, for longer than the ring is long: that must be said, and nothing else may miss.
    if dropped > 0 {
        assert!(report.warnings().contains("were lost"), "{}", report.warnings());
    } else {
        report.assert_all_exact(u64::from(children) + 1);
    }
}

#[test]
fn the_launcher_in_a_fork_storm() {
    let running = tracked([program("storm"), "calm".into(), "200".into()]).leaves_processes().start();
    wait_until("a collector", || collector(&running).is_some());
    let collector = collector(&running).unwrap();
    assert!(progressed(&running, 20));
    kill(running.pid(), libc::SIGKILL);
    wait_until("the collector's end", || !is_there(collector));
    assert!(running.path("stdout").metadata().unwrap().len() > 200, "the command went on to its end");
    let run = running.wait();
    assert_eq!(run.report().u64("processes.total"), 201);
    assert!(run.report().warnings().contains("launcher was killed"), "{}", run.report().warnings());
}

fn storm(how: &str, rounds: u32) {
    let run = tracked([program("storm"), how.into(), rounds.to_string()]).watchdog(LONG).run();
    if run.status.code() == Some(95) {
        skip!("tracing is not allowed here");
    }
    assert_eq!((run.status.code(), run.stderr.as_str()), (Some(0), ""), "{}", run.stdout);
    let (children, rest) = run.stdout.split_once(" children, ").unwrap();
    assert_ne!(rest.trim(), "0 half-way", "some were stopped or killed on their way");
    let (children, report) = (children.parse::<u64>().unwrap(), run.report());
    assert_eq!(report.u64("processes.total"), children + 1);
    assert_eq!(report.u64("coverage.exact"), children + 1);
    assert!(!report.warnings().contains("no sense"), "no record is damaged: {}", report.warnings());
}

#[test]
fn tracked_processes_killed_stopped_and_continued_at_random_moments() {
    storm("kill", rounds(500));
}

#[test]
fn tracked_processes_killed_or_stopped_between_two_instructions_of_ours() {
    storm("step", rounds(60));
}

#[test]
fn everything_at_once() {
    let shm = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut running = tracked(["sh", "-c", "/bin/true; read x; exit 0"])
        .options(&["--session-dir", shm.path().to_str().unwrap()])
        .with(|command| command.stdin(Stdio::piped()))
        .start();
    let stdin = running.stdin();
    let report = running.path("report.json");
    wait_until("a report so far", || report.exists());
    kill_all(&running);
    drop(stdin);
    let run = running.wait();
    assert_eq!(run.report().at("finished"), false);
    assert_eq!(run.report().u64("processes.total"), 2);
}
