//! Processes of other pid namespaces: their records and the connector's events are matched.

use super::*;

#[test]
fn namespace_init_is_reaped_under_its_host_pid() {
    let mut run = Run::new();
    run.start(102, MAIN).inside(INSIDE, |run| {
        run.fork(1, 102, MIB_KIB).start(1, 0).start(2, 1).exit(2, 70, 0).reaped(1, 2, 75).exit(1, 20, 75);
    });
    run.reaped(102, 103, 98).exit(102, 1, 98).reaped(MAIN, 102, 100);
    assert_eq!(run.tree.counts().created, 4);
    let summaries = run.end();
    assert_eq!(
        (summary_of(&summaries, 103).own_usage.cpu_us(), summary_of(&summaries, 103).parent_pid),
        (23, Some(102))
    );
    assert_eq!((summary_of(&summaries, 2).own_usage.cpu_us(), total_us(&summaries)), (75, 100));
}

/// A raw clone made the init of a pid namespace: no START, no FORK, and its first record is its EXIT.
fn cloned_init_exits(run: &mut Run, pid_ns: u32, own_us: u64, children_us: u64) {
    run.inside(pid_ns, |run| {
        run.exit(1, own_us, children_us);
    });
}

// Requirement: CPU-2
#[test]
fn init_without_a_start_is_the_process_that_the_launcher_reaps() {
    let mut run = Run::new();
    cloned_init_exits(&mut run, INSIDE, 2000, 200_000);
    // An orphan of the same usage that ended otherwise, and one that used less, are other processes.
    run.reaped_with(LAUNCHER, 501, 0, 9, used(203_000, 0)).reaped_with(
        LAUNCHER,
        502,
        0,
        3 << 8,
        used(900, 0),
    );
    run.reaped_with(LAUNCHER, 503, 0, 3 << 8, used(204_000, 0));
    assert_eq!(run.tree.counts().created, 4);
    let summaries = run.end();
    let init = summary_of(&summaries, 503);
    assert_eq!(
        (init.ids.key.pid, init.own_usage.cpu_us(), init.own_usage.unattributed_us),
        (1, 4000, 200_000)
    );
    assert_eq!((total_us(&summaries), init.provenance.joined), (203_000 + 900 + 204_000, false));
}

// Requirement: CPU-2
#[test]
fn inits_without_a_start_are_told_apart_by_their_usage() {
    let mut run = Run::new();
    run.start(102, MAIN);
    for (pid_ns, own_us) in [(21, 5000), (22, 90_000), (23, 40_000)] {
        cloned_init_exits(&mut run, pid_ns, own_us, 0);
    }
    // One is an orphan by now, and its maker waits for another one.
    run.reaped_with(LAUNCHER, 500, 0, 3 << 8, used(41_000, 0));
    run.reaped_with(102, 501, 0, 3 << 8, used(91_000, 0)).reaped_with(102, 502, 0, 3 << 8, used(6000, 0));
    assert_eq!(run.tree.counts().created, 5);
    let summaries = run.end();
    assert_eq!(
        [500, 501, 502].map(|pid| summary_of(&summaries, pid).own_usage.cpu_us()),
        [41_000, 91_000, 6000]
    );
    assert_eq!(summary_of(&summaries, 501).parent_pid, Some(102));
}

#[test]
fn scan_shows_the_host_pid_of_a_process_inside() {
    let mut run = Run::new();
    run.start(102, MAIN).inside(INSIDE, |run| {
        run.fork(1, 102, MIB_KIB);
        let id = run.id(1);
        run.tree.set_host_pid(id, 103);
    });
    assert!(run.tree.knows(Key { pid_ns: HERE, pid: 103 }, 0, run.now_ns));
    assert_eq!(run.reaped(102, 103, 98).end().iter().filter(|process| process.ids.pid() == 103).count(), 1);
}

#[test]
fn child_of_system_in_a_pid_namespace_is_counted_once() {
    let mut run = Run::new();
    run.start(102, MAIN).inside(INSIDE, |run| {
        run.fork(1, 102, MIB_KIB).start(2, 1).start(3, 2).exit(3, 500, 0).exit(2, 10, 500).reaped(1, 2, 510);
    });
    run.finalize(&[]).later(3000).finalize(&[]);
    assert_eq!(total_us(&run.tree.take_summaries()), 510);
}

#[test]
fn pid_namespace_ends_with_its_init() {
    // The kernel kills all that is left in it; no record reports that.
    let mut run = Run::new();
    run.start(102, MAIN).inside(INSIDE, |run| {
        run.fork(1, 102, MIB_KIB).start(2, 1).exit(1, 5, 0);
    });
    run.reaped(102, 103, 6);
    assert!(!summary_of(&run.end(), 2).is_still_running);
}

#[test]
fn records_of_a_namespace_match_connector_processes() {
    let mut run = Run::new();
    run.kernel_fork(500, MAIN).inside(INSIDE, |run| {
        run.start(1, 0);
    });
    assert_eq!((run.tree.counts().created, run.tree.get(run.id(500)).unwrap().ids.key.pid), (2, 1));
    // The connector reports its children by host pids; each writes a record, or is reaped, once.
    run.kernel_fork(501, 500).kernel_fork(502, 500).kernel_fork(503, 500);
    run.inside(INSIDE, |run| {
        run.start(3, 1).exit(3, 5, 0).start(2, 1).exit(2, 6, 0);
        run.reaped(1, 3, 5).reaped(1, 2, 6);
    });
    run.execs(503).kernel(503, What::Exit { status: 0 }).inside(INSIDE, |run| {
        run.reaped(1, 4, 7);
    });
    run.over(502, 0).over(501, 0);
    assert_eq!((run.tree.counts().created, total_us(&run.end())), (5, 18));
}

#[test]
fn child_of_an_uninstrumented_init_matches_its_connector_fork() {
    let mut run = Run::new();
    run.kernel_fork(500, MAIN).execs(500).kernel_fork(501, 500).execs(501).inside(INSIDE, |run| {
        run.start(2, 1).exit(2, 6, 0);
    });
    run.over(501, 0).over(500, 0);
    let summaries = run.end();
    assert_eq!(
        (
            summaries.len(),
            summary_of(&summaries, 501).provenance.has_record,
            summary_of(&summaries, 500).provenance.has_record
        ),
        (3, true, false)
    );
}

/// A pid namespace whose init has the host pid 500.
fn with_namespace() -> Run {
    let mut run = Run::new();
    run.kernel_fork(500, MAIN).inside(INSIDE, |run| {
        run.start(1, 0);
    });
    run
}

fn outside_of(run: &Run, pid: u32) -> Option<u32> {
    let id = run.tree.youngest_alive(Key { pid_ns: INSIDE, pid })?;
    run.tree.get(id)?.ids.host_pid
}

#[test]
fn record_of_a_namespace_does_not_end_a_process_again() {
    let mut run = with_namespace();
    run.kernel_fork(501, 500);
    let id = run.id(501);
    // Its zombie was seen, and all records up to then are applied. Its reaper has not reported it yet.
    run.kernel(501, What::Exit { status: 0 });
    run.tree.observe_end(id, run.now_ns, None);
    run.finalize(&[]).inside(INSIDE, |run| {
        run.exit(2, 6, 0);
    });
    let intervals = run.tree.take_intervals(u64::MAX);
    assert_eq!(intervals.iter().filter(|interval| interval.id == id && interval.is_process).count(), 1);
    // The reaper's record is about the zombie.
    run.inside(INSIDE, |run| {
        run.reaped_with(1, 3, 0, 0, used(5, 0));
    });
    assert_eq!(summary_of(&run.end(), 501).own_usage.cpu_us(), 5);
}

#[test]
fn siblings_in_a_namespace_match_by_order_of_pids() {
    let mut run = with_namespace();
    run.kernel_fork(501, 500).kernel_fork(502, 500).execs(501).execs(502).inside(INSIDE, |run| {
        run.start(3, 1).start(2, 1);
    });
    assert_eq!([2, 3].map(|pid| outside_of(&run, pid)), [Some(501), Some(502)]);
    // Their children and grandchildren; threads may have taken pids in between.
    run.kernel_fork(503, 502).kernel_fork(504, 503).inside(INSIDE, |run| {
        run.fork(7, 3, MIB_KIB).fork(8, 7, MIB_KIB);
    });
    assert_eq!([7, 8].map(|pid| outside_of(&run, pid)), [Some(503), Some(504)]);
    // Inodes of pidfds number all pids that the kernel hands out: that is exact.
    run.kernel_fork(510, 502).kernel_fork(511, 502).tree.note_number(504, 7000);
    run.inside(INSIDE, |run| {
        let fork = |pidfd_inode| Event::Fork {
            realtime_ns: 7 * T0,
            pidfd_inode,
            max_rss_kib: MIB_KIB,
            parent_pid_ns: INSIDE,
        };
        run.record(11, 3, 0, fork(7006)).record(12, 3, 0, fork(7007));
    });
    assert_eq!([11, 12].map(|pid| outside_of(&run, pid)), [Some(510), Some(511)]);
    // A process is an orphan when it writes its first record.
    run.kernel_fork(505, 504).kernel_fork(506, 505).execs(506).kernel(505, What::Exit { status: 0 });
    run.inside(INSIDE, |run| {
        run.start(14, 1);
    });
    assert_eq!((outside_of(&run, 14), run.tree.counts().created), (Some(506), 10));
}

#[test]
fn pid_inside_of_a_static_init_is_known_from_its_child() {
    let mut run = Run::new();
    run.kernel_fork(500, MAIN).execs(500).kernel_fork(501, 500).execs(501).inside(INSIDE, |run| {
        run.start(2, 1);
    });
    assert_eq!([1, 2].map(|pid| outside_of(&run, pid)), [Some(500), Some(501)]);
    // The init waited for an orphan, too, which is subtracted from the REAPED record of the init.
    run.kernel_fork(502, 501).kernel_fork(503, 502).inside(INSIDE, |run| {
        run.fork(3, 2, MIB_KIB).fork(4, 3, MIB_KIB).exit(3, 1000, 0).reaped(2, 3, 1000);
        run.exit(4, 40_000, 0).exit(2, 2000, 1000);
    });
    run.over(503, 0).over(501, 0).kernel(500, What::Exit { status: 0 });
    run.reaped(MAIN, 500, 50_000).finalize(&[501, 503]);
    let summaries = run.end();
    assert_eq!(
        (summaries.len(), total_us(&summaries), summary_of(&summaries, 500).own_usage.cpu_us()),
        (5, 50_000, 7000)
    );
}

#[test]
fn maker_of_a_namespace_keeps_its_pid_and_outlives_the_init() {
    let mut run = Run::new();
    // A raw clone, which calls unshare(CLONE_NEWPID), and fork.
    run.kernel_fork(500, MAIN).kernel_fork(501, 500);
    let maker = run.id(500);
    let event =
        Event::Fork { realtime_ns: 7 * T0, pidfd_inode: 0, max_rss_kib: MIB_KIB, parent_pid_ns: HERE };
    run.inside(INSIDE, |run| {
        run.record(1, 500, 0, event);
    });
    assert_eq!((run.tree.counts().created, outside_of(&run, 1)), (3, Some(501)));
    run.inside(INSIDE, |run| {
        run.exit(1, 20, 0);
    });
    run.kernel(501, What::Exit { status: 3 << 8 }).reaped_with(500, 501, 0, 3 << 8, used(20, 0));
    assert_eq!(run.id(500), maker);
    run.exit(500, 30, 20).kernel(500, What::Exit { status: 0 }).reaped(MAIN, 500, 50);
    let summaries = run.end();
    assert_eq!((summaries.len(), total_us(&summaries)), (3, 50));
}

#[test]
fn reaped_child_in_a_namespace_matches_by_wait_status() {
    let mut run = with_namespace();
    run.kernel_fork(501, 500).kernel_fork(502, 500).kernel(501, What::Exit { status: 9 });
    run.kernel(502, What::Exit { status: 0 }).inside(INSIDE, |run| {
        run.reaped_with(1, 3, 0, 0, used(7, 0)).reaped_with(1, 2, 0, 9, used(5, 0));
    });
    let summaries = run.end();
    assert_eq!([501, 502].map(|pid| summary_of(&summaries, pid).own_usage.cpu_us()), [5, 7]);
    assert_eq!(summaries.len(), 4);
}

#[test]
fn killed_process_that_its_static_init_waited_for_is_in_its_sum() {
    // The orphan is finalized while the init lives, or when the init's sum is known, which is large enough for it.
    for is_late in [false, true] {
        let mut run = Run::new();
        run.kernel_fork(500, MAIN).execs(500).kernel_fork(501, 500).execs(501).inside(INSIDE, |run| {
            run.start(2, 1);
        });
        run.kernel_fork(502, 501).inside(INSIDE, |run| {
            run.fork(3, 2, MIB_KIB).exit(2, 3000, 0);
        });
        run.over(501, 0);
        let (id, remains_ns) = (run.id(502), 9_000_000);
        run.tree.get_mut(id).unwrap().observed.cpu_ns = Some(remains_ns);
        run.over(502, libc::SIGKILL);
        if !is_late {
            run.later(300).finalize(&[501, 502]);
        }
        let init = run.id(500);
        run.tree.get_mut(init).unwrap().observed.cpu_ns = Some(1_000_000);
        run.kernel(500, What::Exit { status: 0 }).reaped(MAIN, 500, 13_000);
        assert_eq!((run.tree.counts().killed_with_namespace, run.tree.counts().autoreaped), (0, 0));
        let summaries = run.end();
        assert_eq!(
            (total_us(&summaries), summary_of(&summaries, 500).own_usage.cpu_us()),
            (13_000, 1000),
            "late: {is_late}"
        );
    }
}

// Requirement: SEE-74, SEE-75
#[test]
fn process_killed_with_its_namespace_init_is_in_no_sum() {
    let mut run = with_namespace();
    run.kernel_fork(501, 500).kernel_fork(502, 500).inside(INSIDE, |run| {
        run.fork(2, 1, MIB_KIB).fork(3, 1, MIB_KIB).exit(2, 3000, 0).exit(1, 10_000, 0);
    });
    // The kernel reaps the zombie that is left, which is in the init's sums, and kills the other, which is not.
    run.kernel(501, What::Exit { status: 0 }).kernel(502, What::Exit { status: 9 });
    run.kernel(500, What::Exit { status: 0 }).reaped(MAIN, 500, 13_500);
    run.finalize(&[501, 502]).later(300).finalize(&[501, 502]);
    assert_eq!((run.tree.counts().killed_with_namespace, run.tree.counts().autoreaped), (1, 1));
    let summaries = run.end();
    assert_eq!(
        (summary_of(&summaries, 502).own_usage.quality, total_us(&summaries)),
        (Quality::Unknown, 13_500)
    );
    assert_eq!(summary_of(&summaries, 500).own_usage.cpu_us(), 10_500);
}

#[test]
fn proc_joins_connector_and_record_of_one_process() {
    let mut run = with_namespace();
    // The record comes before the event of its fork, so the two are not matched.
    run.inside(INSIDE, |run| {
        run.fork(2, 77, MIB_KIB);
    });
    run.kernel_fork(501, 500).kernel_fork(502, 501);
    let (forked, child) = (run.id(501), run.id(502));
    assert_eq!(run.tree.counts().created, 5);
    let kept = run.tree.found_inside(forked, Key { pid_ns: INSIDE, pid: 2 });
    let known = run.id(501);
    assert_eq!(kept, known);
    assert_ne!(known, forked);
    assert_eq!((run.tree.counts().created, outside_of(&run, 2)), (4, Some(501)));
    let ancestry = &run.tree.get_mut(child).unwrap().ancestry;
    assert_eq!((ancestry.parent, ancestry.uninstrumented_ancestor), (Parent::Known(known), None));
    // The record's parent is not known inside; the connector's is.
    let outer = run.id(500);
    let ancestry = &run.tree.get_mut(known).unwrap().ancestry;
    assert_eq!((ancestry.parent, ancestry.has_children), (Parent::Known(outer), true));
}

/// A child inside that a scan found before the events up to then were applied.
fn found_ahead(run: &mut Run, pid: u32, host_pid: u32, seen_ns: u64) {
    let (key, parent) = (Key { pid_ns: INSIDE, pid }, run.id(500));
    // /proc shows starts in ticks, so it may seem older than the process that had its pid before.
    let start_ns = seen_ns - 20 * MS;
    run.tree.found_ahead(ChildSeen { host_pid, seen_ns, ..ChildSeen::of_test(key, parent, start_ns) });
}

// Requirement: SEE-8
#[test]
fn scan_that_is_ahead_of_the_events_adds_no_process() {
    let mut run = with_namespace();
    run.kernel_fork(501, 500).execs(501);
    // 502 has the pid inside that 501 had, and neither 501's end nor 502's start is applied.
    let (applied_ns, seen_ns) = (run.now_ns, run.now_ns + 10 * MS);
    found_ahead(&mut run, 7, 502, seen_ns);
    run.tree.finalize(seen_ns, applied_ns);
    run.kernel(501, What::Exit { status: 0 }).inside(INSIDE, |run| {
        run.reaped(1, 7, 30);
    });
    run.kernel_fork(502, 500).execs(502).inside(INSIDE, |run| {
        run.start(7, 1);
    });
    run.tree.finalize(seen_ns, seen_ns);
    run.inside(INSIDE, |run| {
        run.exit(7, 50, 0).reaped(1, 7, 60);
    });
    run.over(502, 0);
    let summaries = run.end();
    assert_eq!((summaries.len(), total_us(&summaries)), (4, 90));
    assert_eq!([501, 502].map(|pid| summary_of(&summaries, pid).own_usage.cpu_us()), [30, 60]);
}

// Requirement: SEE-8
#[test]
fn child_whose_events_were_lost_is_added_when_all_before_it_is_applied() {
    let mut run = with_namespace();
    let now_ns = run.now_ns;
    found_ahead(&mut run, 7, 502, now_ns);
    run.tree.finalize(now_ns, now_ns - 1);
    assert_eq!(run.tree.alive().len(), 2);
    run.tree.finalize(now_ns, now_ns);
    assert_eq!((run.tree.alive().len(), outside_of(&run, 7)), (3, Some(502)));
}

// Requirement: SEE-7
#[test]
fn child_that_a_scan_saw_before_its_records_were_applied_counts_once() {
    let mut run = Run::new();
    let (seen_ns, start_ns) = (run.now_ns, run.now_ns);
    let (key, parent) = (Key { pid_ns: HERE, pid: 102 }, run.id(MAIN));
    run.tree.found_ahead(ChildSeen { seen_ns, ..ChildSeen::of_test(key, parent, start_ns) });
    // All its records are applied by now, but not all records of that time are known to be.
    run.fork(102, MAIN, 0).exit(102, 5, 0).reaped(MAIN, 102, 6);
    run.tree.finalize(run.now_ns, seen_ns - 1);
    assert_eq!(run.tree.take_summaries().len(), 1);
    run.finalize(&[]);
    assert_eq!((run.tree.counts().created, run.end().len()), (2, 1), "the first process and its child");
}
