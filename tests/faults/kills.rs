//! Whoever is killed or stopped, and whenever: the others go on, and the counts are right.

use std::io::Write;
use std::path::Path;
use std::process::{ChildStdin, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Signal, pidfd_send_signal};

use crate::support::run::{Run, Running};
use crate::support::{WATCHDOG, kill, leftovers, pidfd, program, skip, static_program, tracked, wait_until};
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

/// All that belongs to a run, first who could put things in order. When this returns they have ended.
pub fn kill_all(running: &Running) {
    kill(running.pid(), libc::SIGSTOP);
    let mut killed = Vec::new();
    // Some are born meanwhile, and some end.
    wait_until("the end of all", || {
        let live = leftovers::processes(running.mark());
        for process in live.iter().filter_map(|(pid, _)| pidfd::open(*pid)) {
            // It may have ended.
            let _ = pidfd_send_signal(&process, Signal::KILL);
            killed.push(process);
        }
        live.is_empty()
    });
    assert!(killed.iter().all(|process| pidfd::ends_within(process, WATCHDOG)), "who is killed ends");
}

/// Waits for `more` further bytes of what the command writes; false when it has ended.
pub fn progressed(running: &Running, more: u64) -> bool {
    let length = || std::fs::metadata(running.path("stdout")).unwrap().len();
    let wanted = length() + more;
    let said_all = || std::fs::read_to_string(running.path("stdout")).unwrap().ends_with('\n');
    wait_until("progress", || length() >= wanted || said_all());
    !said_all()
}

/// The launcher takes a collector that lives for less than 20 ms a hundred times in a row to have a fault of its own, and
/// what none of them comes to read fills the room for it: one in so many is left alone for longer.
const ONE_IN: u32 = 50;
const LONG_LIFE: Duration = Duration::from_millis(400);

/// Kills the collector at up to so many random moments of a storm, each after up to so many more of its children.
fn storm_with_kills(storm: String, how: &str, children: u32, kills: u32, apart: u64) -> Run {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let running = tracked([storm, how.into(), children.to_string()]).watchdog(LONG).start();
    let (mut killed, mut last) = (0, 0);
    while killed < kills && progressed(&running, random.below(apart)) {
        let Some(pid) = collector(&running).filter(|pid| *pid != last) else { continue };
        let seen = Instant::now();
        while killed % ONE_IN == ONE_IN - 1 && seen.elapsed() < LONG_LIFE && progressed(&running, 1) {}
        kill(pid, libc::SIGKILL);
        (killed, last) = (killed + 1, pid);
    }
    let run = running.wait();
    assert_eq!((run.status.code(), run.stderr.as_str()), (Some(0), ""));
    assert!(killed > 0, "the storm was over before it began");
    let warnings = run.report().warnings();
    let times = if killed == 1 { "killed once".into() } else { format!("killed {killed} times") };
    assert!(warnings.contains(&times), "{times}: {warnings}");
    run
}

#[test]
fn collector_killed_during_a_fork_storm_loses_nothing() {
    let kills = rounds(10);
    // Enough for a kill each 25 children on average.
    let children = kills * 40;
    let run = storm_with_kills(program("storm"), "calm", children, kills, 50);
    run.report().assert_all_exact(u64::from(children) + 1);
}

/// More records than the ring has room for, from when something is said to the command until it says that it is over.
pub const MORE_THAN_THE_RING: &str = "echo ready; read x; i=0; while [ $i -lt 1500 ]; do (exit 3); i=$((i+1)); done; echo over; read x; exit 0";

/// Stops the collector, and has the command have its children. Gives the collector.
pub fn stopped_meanwhile(running: &Running, stdin: &mut ChildStdin) -> u32 {
    running.wait_for_output("ready");
    wait_until("a collector", || collector(running).is_some());
    let collector = collector(running).unwrap();
    kill(collector, libc::SIGSTOP);
    stdin.write_all(b"\n").unwrap();
    running.wait_for_output("over");
    collector
}

#[test]
fn collector_stopped_past_a_full_ring_loses_nothing() {
    for signal in [libc::SIGCONT, libc::SIGKILL] {
        let mut running =
            tracked(["sh", "-c", MORE_THAN_THE_RING]).with(|command| command.stdin(Stdio::piped())).start();
        let mut stdin = running.stdin();
        kill(stopped_meanwhile(&running, &mut stdin), signal);
        drop(stdin);
        let run = running.wait();
        assert_eq!((run.status.code(), run.stderr.as_str()), (Some(0), ""));
        run.report().assert_all_exact(1501);
    }
}

#[test]
fn killed_collector_loses_few_connector_events() {
    let run = tracked(["/bin/true"]).run();
    if let Some(reason) = run.report().at("coverage.connector_absent").as_str() {
        skip!("{reason}");
    }
    let kills = rounds(10);
    let children = kills * 400;
    let run = storm_with_kills(static_program("storm"), "brief", children, kills, 500);
    let report = run.report();
    let (total, all) = (report.u64("processes.total"), u64::from(children) + 1);
    assert!(total <= all, "{total} for {all}");
    // What the socket had no room for while no collector was there must be said, and else no more may miss than what
    // one has read at once and not taken down: 64 events, of which every other is a birth.
    if report.u64("coverage.connector_overruns") == 0 {
        let most_lost = 33 * u64::from(kills);
        assert!(total + most_lost >= all, "{total} for {all}: {}", report.warnings());
    } else {
        assert!(report.warnings().contains("faster than it could be read"), "{}", report.warnings());
    }
}

#[test]
fn launcher_killed_in_a_fork_storm_loses_no_process() {
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
fn processes_killed_or_stopped_at_random_stay_exact() {
    storm("kill", rounds(500));
}

#[test]
fn processes_killed_inside_shim_code_stay_exact() {
    storm("step", rounds(60));
}

#[test]
fn report_so_far_survives_killing_everything() {
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
