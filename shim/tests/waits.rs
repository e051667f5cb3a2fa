//! REAPED: one test for each wait function, and the calls that reap no child.

mod common;
use common::*;

use gpu_track_abi::layout::FLAG_NO_WAIT_RECORDS;
use gpu_track_abi::record::{Event, FLAG_TRACER, Origin};

fn waits(how: &str) -> Vec<(Origin, Event)> {
    let (events, output) = Session::new().case(&program("waits", &[]), &[how]);
    assert_clean(&output);
    events
}

/// The case reaps one child that ended with this wait status, and writes one REAPED.
fn reaps(how: &str, status: i32) {
    let events = waits(how);
    let parent = events[0].0.pid;
    let [(reaper, child, reported)] = reaped(&events)[..] else { panic!("{how}: {events:?}") };
    assert_eq!((reaper, reported), (parent, status), "{how}");
    assert!(events.iter().any(|(o, e)| o.pid == child && matches!(e, Event::Fork { .. })));
}

// Requirement: SEE-4
#[test]
fn wait() {
    reaps("wait", 21 << 8);
}
// Requirement: SEE-4
#[test]
fn waitpid() {
    reaps("waitpid", 21 << 8);
    reaps("waitpid-any", 21 << 8);
    reaps("waitpid-group", 21 << 8);
}
// Requirement: SEE-4
#[test]
fn wait3() {
    reaps("wait3", 21 << 8);
    reaps("wait3-null", 21 << 8);
}
// Requirement: SEE-4
#[test]
fn wait4() {
    reaps("wait4", 21 << 8);
}
// Requirement: SEE-4
#[test]
fn waitid() {
    reaps("waitid", 21 << 8);
    reaps("waitid-null", 21 << 8);
}
// Requirement: SHIM-4
#[test]
fn without_a_status_pointer() {
    reaps("null-status", 21 << 8);
}
// Requirement: CPU-3
#[test]
fn killed_children() {
    reaps("killed", libc::SIGKILL);
    reaps("killed-waitid", libc::SIGKILL);
}
// Requirement: SEE-4
#[test]
fn wnowait_writes_no_reaped() {
    reaps("nowait", 21 << 8);
}
#[test]
fn wnohang_on_a_live_child_writes_no_reaped() {
    reaps("nohang", 21 << 8);
}
#[test]
fn stop_and_continue_write_no_reaped() {
    reaps("stopped", 21 << 8);
}

// Requirement: SHIM-4
#[test]
fn errors_pass_through() {
    assert_eq!(kinds(&waits("no-child")), "SE");
}

// Requirement: SEE-84
#[test]
fn reaped_by_a_tracer_has_tracer_flag() {
    let events = waits("traced");
    let reaped: Vec<_> = events.iter().filter(|(_, e)| matches!(e, Event::Reaped { .. })).collect();
    assert_eq!(reaped.len(), 1);
    assert_eq!(reaped[0].0.flags, FLAG_TRACER);
}

/// REAPED is the only record with a killed child's usage.
#[test]
fn reaped_has_the_childs_usage() {
    let events = waits("burn");
    let found = events.iter().find_map(|(_, e)| match e {
        Event::Reaped { usage, reaper_max_rss_kib, .. } => {
            Some((usage.user_us + usage.system_us, *reaper_max_rss_kib))
        }
        _ => None,
    });
    let (cpu_us, reaper_max_rss_kib) = found.unwrap();
    assert!(cpu_us >= 245_000, "it used 250 ms: {cpu_us}");
    assert!(reaper_max_rss_kib > 0);
}

// Requirement: SHIM-6
#[test]
fn a_thread_cancelled_in_waitpid_unwinds() {
    reaps("cancel", 21 << 8);
}
// Requirement: SHIM-6
#[test]
fn a_thread_cancelled_in_waitid_unwinds() {
    reaps("cancel-waitid", 21 << 8);
}

// Requirement: SEE-4
#[test]
fn racing_threads_reap_each_child_once() {
    for how in ["race", "race-waitid"] {
        let events = waits(how);
        let mut children: Vec<_> = reaped(&events).into_iter().map(|(_, child, _)| child).collect();
        children.sort_unstable();
        children.dedup();
        assert_eq!((children.len(), reaped(&events).len()), (200, 200), "{how}");
    }
}

#[test]
fn no_reaped_if_the_wait_layer_is_off() {
    let session = Session::with_flags(FLAG_NO_WAIT_RECORDS);
    for how in ["wait", "waitid", "cancel-waitid"] {
        let (events, output) = session.case(&program("waits", &[]), &[how]);
        assert_clean(&output);
        assert_eq!(kinds(&events), "SFEE", "{how}");
    }
}
