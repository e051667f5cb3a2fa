//! Any component is killed or stopped at any moment: the others continue, and the counts stay right.

use std::io::Write;
use std::path::Path;
use std::process::ChildStdin;
use std::time::{Duration, Instant};

use rustix::process::{Signal, pidfd_send_signal};

use crate::support::run::{Run, Running};
use crate::support::{WATCHDOG, kill, leftovers, pidfd, program, skip, static_program, tracked, wait_until};
use crate::{Random, rounds};

/// The time limit of a run with many rounds.
const LONG: Duration = Duration::from_secs(1200);

/// Kills all processes of a run and waits for their ends. The launcher is stopped first, so that it restarts nothing.
pub fn kill_all(running: &Running) {
    kill(running.pid(), libc::SIGSTOP);
    let mut killed = Vec::new();
    // Processes start and end meanwhile.
    wait_until("the end of all processes", || {
        let live = leftovers::processes(running.mark());
        for process in live.iter().filter_map(|(pid, _)| pidfd::open(*pid)) {
            // The process may have ended already.
            let _ = pidfd_send_signal(&process, Signal::KILL);
            killed.push(process);
        }
        live.is_empty()
    });
    assert!(
        killed.iter().all(|process| pidfd::ends_within(process, WATCHDOG)),
        "a killed process is still there"
    );
}

/// Waits until the command has written `more` further bytes; false if it has ended.
pub fn progressed(running: &Running, more: u64) -> bool {
    let length = || std::fs::metadata(running.path("stdout")).unwrap().len();
    let wanted = length() + more;
    let has_ended = || std::fs::read_to_string(running.path("stdout")).unwrap().ends_with('\n');
    wait_until("progress", || length() >= wanted || has_ended());
    !has_ended()
}

/// The launcher gives up if a hundred collectors in a row each live for less than 20 ms. Unread records also fill the ring
/// meanwhile. So one collector in this many is left alone for [`LONG_LIFE`].
const ONE_IN: u32 = 50;
const LONG_LIFE: Duration = Duration::from_millis(400);

/// Runs tests/programs/storm.c and kills the collector up to `kills` times, each time after fewer than `apart` children.
fn storm_with_kills(storm: String, how: &str, children: u32, kills: u32, apart: u64) -> Run {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let running = tracked([storm, how.into(), children.to_string()]).watchdog(LONG).start();
    let (mut killed, mut last) = (0, 0);
    while killed < kills && progressed(&running, random.below(apart)) {
        let Some(pid) = running.collector().filter(|pid| *pid != last) else { continue };
        let seen = Instant::now();
        while killed % ONE_IN == ONE_IN - 1 && seen.elapsed() < LONG_LIFE && progressed(&running, 1) {}
        kill(pid, libc::SIGKILL);
        (killed, last) = (killed + 1, pid);
    }
    let run = running.wait();
    assert_eq!((run.status.code(), run.stderr.as_str()), (Some(0), ""));
    assert!(killed > 0, "the command ended before any kill");
    let warnings = run.report().warnings();
    let times = if killed == 1 { "killed once".into() } else { format!("killed {killed} times") };
    assert!(warnings.contains(&times), "{times}: {warnings}");
    run
}

// Requirement: FAULT-1, FAULT-60, FAULT-64
#[test]
fn collector_killed_during_a_fork_storm_loses_nothing() {
    let kills = rounds(10);
    // Enough for one kill per 25 children on average.
    let children = kills * 40;
    let run = storm_with_kills(program("storm"), "calm", children, kills, 50);
    run.report().assert_all_exact(u64::from(children) + 1);
}

/// A shell script that waits for a line on stdin, then writes more records than the ring holds, then prints `over`.
pub const MORE_THAN_THE_RING: &str = "echo ready; read x; i=0; while [ $i -lt 1500 ]; do (exit 3); i=$((i+1)); done; echo over; read x; exit 0";

/// Stops the collector and lets [`MORE_THAN_THE_RING`] start its children. Gives the collector's pid.
pub fn stop_collector_during_children(running: &Running, stdin: &mut ChildStdin) -> u32 {
    running.wait_for_output("ready");
    let collector = running.wait_for_collector();
    kill(collector, libc::SIGSTOP);
    stdin.write_all(b"\n").unwrap();
    running.wait_for_output("over");
    collector
}

// Requirement: FAULT-7, FAULT-81
#[test]
fn collector_stopped_past_a_full_ring_loses_nothing() {
    for signal in [libc::SIGCONT, libc::SIGKILL] {
        let mut running = tracked(["sh", "-c", MORE_THAN_THE_RING]).piped_stdin().start();
        let mut stdin = running.stdin();
        kill(stop_collector_during_children(&running, &mut stdin), signal);
        drop(stdin);
        let run = running.wait();
        assert_eq!((run.status.code(), run.stderr.as_str()), (Some(0), ""));
        run.report().assert_all_exact(1501);
    }
}

/// Whether the process connector works here, according to a run.
fn has_connector() -> bool {
    tracked(["/bin/true"]).run().report().at("coverage.connector_absent").is_null()
}

/// Asserts that all processes were counted, unless the kernel had no room for the events: that must be reported.
fn assert_no_event_is_lost(run: &Run, processes: u64) {
    let (report, warnings) = (run.report(), run.report().warnings());
    let total = report.u64("processes.total");
    if report.u64("coverage.connector_overruns") == 0 {
        assert_eq!(total, processes, "{warnings}");
        assert!(!warnings.contains("lived only then"), "{warnings}");
    } else {
        assert!(total <= processes, "{total} for {processes}");
        assert!(warnings.contains("faster than they could be read"), "{warnings}");
    }
}

// Requirement: FAULT-17, FAULT-61, SEE-57
#[test]
fn killed_collector_loses_no_connector_event() {
    if !has_connector() {
        skip!("no process connector here");
    }
    let kills = rounds(10);
    let children = kills * 400;
    let run = storm_with_kills(static_program("storm"), "brief", children, kills, 500);
    assert_no_event_is_lost(&run, u64::from(children) + 1);
}

// Requirement: FAULT-17
#[test]
fn collector_started_after_the_commands_end_reads_what_it_did() {
    if !has_connector() {
        skip!("no process connector here");
    }
    // No snapshot is saved, so a new collector learns of the command from the launcher alone.
    let running =
        tracked([static_program("storm"), "brief".into(), "200".into()]).options(&["--st", "3600"]).start();
    running.wait_for_collector();
    running.replace_collector();
    // The launcher sees the ends of both at once.
    kill(running.pid(), libc::SIGSTOP);
    kill(running.wait_for_collector(), libc::SIGKILL);
    while progressed(&running, 1) {}
    kill(running.pid(), libc::SIGCONT);
    assert_no_event_is_lost(&running.wait(), 201);
}

// Requirement: FAULT-2, FAULT-68
#[test]
fn launcher_killed_in_a_fork_storm_loses_no_process() {
    let running = tracked([program("storm"), "calm".into(), "200".into()]).leaves_processes().start();
    let collector = running.wait_for_collector();
    assert!(progressed(&running, 20));
    kill(running.pid(), libc::SIGKILL);
    wait_until("the collector's end", || !Path::new(&format!("/proc/{collector}")).exists());
    assert!(running.path("stdout").metadata().unwrap().len() > 200, "the command ran to its end");
    let run = running.wait();
    assert_eq!(run.report().u64("processes.total"), 201);
    assert!(run.report().warnings().contains("launcher was killed"), "{}", run.report().warnings());
}

/// Runs tests/programs/storm.c, which kills and stops its own children; all of them must be exact.
fn assert_storm_is_exact(how: &str, rounds: u32) {
    let run = tracked([program("storm"), how.into(), rounds.to_string()]).watchdog(LONG).run();
    if run.status.code() == Some(95) {
        skip!("tracing is not allowed here");
    }
    assert_eq!((run.status.code(), run.stderr.as_str()), (Some(0), ""), "{}", run.stdout);
    let (children, rest) = run.stdout.split_once(" children, ").unwrap();
    assert_ne!(rest.trim(), "0 half-way", "no child was stopped or killed before its end");
    let (children, report) = (children.parse::<u64>().unwrap(), run.report());
    assert_eq!(report.u64("processes.total"), children + 1);
    assert_eq!(report.u64("coverage.exact"), children + 1);
    assert!(!report.warnings().contains("Invalid"), "a record is damaged: {}", report.warnings());
}

// Requirement: FAULT-6, FAULT-92
#[test]
fn processes_killed_or_stopped_at_random_stay_exact() {
    assert_storm_is_exact("kill", rounds(500));
}

// Requirement: FAULT-6, FAULT-92
#[test]
fn processes_killed_inside_shim_code_stay_exact() {
    assert_storm_is_exact("step", rounds(60));
}

// Requirement: FAULT-69, OUT-8
#[test]
fn report_so_far_survives_killing_everything() {
    let shm = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut running = tracked(["sh", "-c", "/bin/true; read x; exit 0"])
        .options(&["--session-dir", shm.path().to_str().unwrap()])
        .piped_stdin()
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

// Requirement: OUT-12, OUT-53
#[test]
fn report_file_of_a_killed_run_is_free() {
    let running = tracked(["cat"]).piped_stdin().leaves_processes().start();
    let lock = running.path(".report.json.gpu-track-lock");
    wait_until("the lock", || lock.exists());
    running.wait_for_collector();
    kill_all(&running);
    assert!(lock.exists(), "nothing was left to remove it");
    let report = running.path("report.json");
    let next = tracked(["true"]).only_options(&["-f", "json", "-o", report.to_str().unwrap()]).run();
    assert_eq!(next.status.code(), Some(0), "{}", next.stderr);
    assert!(!lock.exists());
    drop(running.wait());
}
