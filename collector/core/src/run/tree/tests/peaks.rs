//! Peak RSS: when it is exact, and when it may be another process's.

use super::*;

// Requirement: RAM-6
#[test]
fn vfork_child_without_exec_has_no_memory() {
    let mut run = Run::new();
    run.exit_with(102, MAIN, FLAG_BORROWED_MEMORY, used(7, 400 * MIB_KIB), used(0, 0)).reaped(MAIN, 102, 9);
    let lives = run.tree.take_intervals(u64::MAX);
    assert!(lives.iter().all(|life| life.memory.added_bytes == 0), "{lives:?}");
    let summaries = run.end();
    let child = summary_of(&summaries, 102);
    assert_eq!(
        (child.own_usage.cpu_us(), child.memory.peak_rss_bytes, child.provenance.joined),
        (9, None, false)
    );
    // A child of a raw clone writes the same record, and has memory of its own, which it copies when it writes to it.
    assert_eq!((child.memory.peak_quality, child.memory.missing), (Quality::Unknown, None));
    let own = Usage { minor_faults: 400, ..used(7, 400 * MIB_KIB) };
    let mut run = Run::new();
    run.exit_with(102, MAIN, FLAG_BORROWED_MEMORY, own, used(0, 0)).reaped(MAIN, 102, 9);
    assert!(summary_of(&run.end(), 102).memory.missing.is_some());
}

// Requirement: RAM-6
#[test]
fn program_that_was_killed_below_what_it_inherited_held_no_more_than_it_read_in() {
    let missing_of = |minor_faults| {
        let mut run = Run::new();
        let usage = Usage { minor_faults, ..used(7, 400 * MIB_KIB) };
        run.start_as(102, MAIN, 0, 400 * MIB_KIB, "sleep").reaped_with(MAIN, 102, 0, libc::SIGKILL, usage);
        let memory = summary_of(&run.end(), 102).memory;
        assert_eq!(memory.peak_quality, Quality::Unknown);
        memory.missing.unwrap().at_most_bytes
    };
    assert_eq!(missing_of(100), Some(100 * 4096));
    assert_eq!(missing_of(300), Some(400 << 20), "its maximum is the bound");
}

#[test]
fn fork_child_without_exec_had_at_least_its_rss_at_fork() {
    let mut run = Run::new();
    run.kernel_fork(102, MAIN).fork(102, MAIN, 7 * MIB_KIB).over(102, 9);
    let summaries = run.end();
    assert_eq!(
        (summary_of(&summaries, 102).memory.peak_rss_bytes, summary_of(&summaries, 102).memory.peak_quality),
        (Some(7 * MIB), Quality::Sampled)
    );
}

// Requirement: RAM-4
#[test]
fn peak_is_never_the_parents() {
    let big = 2048 * MIB_KIB;
    // A large program started a small one: ru_maxrss is inherited.
    let peak_of = |max_kib: u64, vm_hwm_kib: u64| {
        let mut run = Run::new();
        run.start_as(102, MAIN, 0, big, "small");
        let event = Event::Exit { status: 0, vm_hwm_kib, own: used(1, max_kib), children: used(0, 0) };
        run.record(102, MAIN, FLAG_IMAGE, event);
        let summaries = run.end();
        (summary_of(&summaries, 102).memory.peak_rss_bytes, summary_of(&summaries, 102).memory.peak_quality)
    };
    assert_eq!(peak_of(big, 10), (Some(10 * 1024), Quality::Exact), "VmHWM");
    assert_eq!(peak_of(big, 0), (None, Quality::Unknown));
    assert_eq!(peak_of(big + 1, 0), (Some((big + 1) * 1024), Quality::Exact), "it grew, so it is its own");
}

/// REAPED includes all threads, which have ended by then.
#[test]
fn reaped_peak_replaces_exit_peak_unless_a_childs() {
    let peak_of = |children: u64, reaped: u64| {
        let mut run = Run::new();
        run.start_as(102, MAIN, 0, 50, "threads");
        let event = Event::Exit { status: 0, vm_hwm_kib: 10, own: used(1, 60), children: used(0, children) };
        run.record(102, MAIN, FLAG_IMAGE, event);
        run.reaped_with(MAIN, 102, 0, 0, used(1, reaped));
        let summaries = run.end();
        (summary_of(&summaries, 102).memory.peak_rss_bytes, summary_of(&summaries, 102).memory.peak_quality)
    };
    assert_eq!(peak_of(0, 90), (Some(90 * 1024), Quality::Exact));
    assert_eq!(peak_of(80, 90), (Some(90 * 1024), Quality::Exact));
    assert_eq!(peak_of(90, 90), (Some(60 * 1024), Quality::Exact), "it may be its child's");
    assert_eq!(peak_of(0, 40), (Some(60 * 1024), Quality::Exact));
}

// Requirement: RAM-9, SEE-52
#[test]
fn reaped_peak_counts_only_above_all_other_causes() {
    let peak_of = |of_child: u64, max_kib: u64| {
        let mut run = Run::new();
        run.start_as(102, MAIN, 0, 50, "killed").start_as(103, 102, 0, 50, "child");
        run.reaped_with(102, 103, 0, 0, used(1, of_child));
        run.reaped_with(MAIN, 102, 0, libc::SIGKILL, used(1, max_kib));
        let summaries = run.end();
        (summary_of(&summaries, 102).memory.peak_rss_bytes, summary_of(&summaries, 102).memory.peak_quality)
    };
    assert_eq!(peak_of(70, 90), (Some(90 * 1024), Quality::Exact));
    assert_eq!(peak_of(90, 90), (None, Quality::Unknown), "its child's");
    assert_eq!(peak_of(10, 50), (None, Quality::Unknown), "inherited over exec");
}

#[test]
fn uninstrumented_peak_is_exact_only_above_its_parents() {
    let peak_of = |max_kib| {
        let mut run = Run::new();
        // The reaper itself had 1 MiB.
        run.reaped_with(MAIN, 102, 0, 0, used(1, max_kib));
        summary_of(&run.end(), 102).memory.peak_rss_bytes
    };
    assert_eq!(peak_of(MIB_KIB + 1), Some((MIB_KIB + 1) * 1024));
    assert_eq!(peak_of(MIB_KIB), None);
}

#[test]
fn static_program_of_a_large_parents_child_adds_little() {
    let mut run = Run::new();
    run.kernel_fork(102, MAIN)
        .fork(102, MAIN, 400 * MIB_KIB)
        .sampled(102, 1, 400 * MIB, MIB)
        .execs(102)
        .over(102, 0);
    assert!(
        run.tree.take_intervals(u64::MAX).iter().all(|life| life.memory.added_bytes <= MIB),
        "only what it did not share"
    );
    let usage = used(1, 400 * MIB_KIB);
    run.record(
        MAIN,
        0,
        0,
        Event::Reaped { child: 102, status: 0, reaper_max_rss_kib: 400 * MIB_KIB, usage, clock_ns: 0 },
    );
    assert_eq!(summary_of(&run.end(), 102).memory.peak_rss_bytes, None);
}

#[test]
fn memory_known_from_reaped_counts_after_the_end() {
    let mut run = Run::new();
    run.start(102, MAIN).sampled(102, 1, 5 * MIB, 5 * MIB).over(102, 0);
    let bytes = |run: &mut Run| {
        run.tree.take_intervals(u64::MAX).iter().map(|life| life.memory.added_bytes).sum::<u64>()
    };
    assert_eq!(bytes(&mut run), 5 * MIB);
    run.reaped_with(MAIN, 102, 0, libc::SIGKILL, used(1, 9 * MIB_KIB));
    assert_eq!(bytes(&mut run), 4 * MIB);
    assert_eq!(summary_of(&run.end(), 102).memory.peak_rss_bytes, Some(9 * MIB));
}

#[test]
fn killed_fork_childs_peak_is_bounded_by_reaped() {
    let mut run = Run::new();
    run.fork(102, MAIN, 50 * MIB_KIB).reaped_with(MAIN, 102, 0, libc::SIGKILL, used(1, 50 * MIB_KIB));
    let summaries = run.end();
    assert_eq!(
        (summary_of(&summaries, 102).memory.peak_rss_bytes, summary_of(&summaries, 102).memory.peak_quality),
        (Some(50 * MIB), Quality::Bound)
    );
}

#[test]
fn orphan_inherits_its_makers_peak_not_its_reapers() {
    // A process of 400 MiB spawns a static program and ends; the launcher, which is small, reaps that.
    let mut run = Run::new();
    run.start(102, MAIN).kernel_fork(103, 102).execs(103).exit(102, 1, 0).reaped(MAIN, 102, 1);
    run.over(103, 0).reaped_with(LAUNCHER, 103, 0, 0, used(1, 400 * MIB_KIB));
    assert_eq!(summary_of(&run.end(), 103).memory.peak_rss_bytes, None);
}

#[test]
fn lost_events_make_no_peak_exact_for_lack_of_children() {
    let mut run = Run::new();
    run.kernel_fork(102, MAIN).execs(102);
    run.tree.forget_watched();
    let summaries = run.reaped_with(MAIN, 102, 0, 0, used(1, 9 * MIB_KIB)).end();
    assert_eq!(summary_of(&summaries, 102).memory.peak_quality, Quality::Bound);
}

// Requirement: RAM-52
#[test]
fn maximum_over_unknown_children_is_no_exact_peak() {
    let quality_of = |run: &mut Run, status| {
        let summaries = run.reaped_with(MAIN, 102, 0, status, used(1, 9 * MIB_KIB)).end();
        (
            summary_of(&summaries, 102).memory.peak_rss_bytes.map(|peak| peak / MIB),
            summary_of(&summaries, 102).memory.peak_quality,
        )
    };
    // It writes START and ends by a raw system call (Go): it may have waited by one, too.
    assert_eq!(quality_of(Run::new().start(102, MAIN), 0), (Some(9), Quality::Bound));
    assert_eq!(
        quality_of(Run::new().start(102, MAIN).sampled(102, 1, 5 * MIB, MIB), 0),
        (Some(5), Quality::Sampled)
    );
    assert_eq!(quality_of(Run::new().start(102, MAIN), libc::SIGKILL), (Some(9), Quality::Exact));
    assert_eq!(quality_of(Run::new().start(102, MAIN).start(103, 102), 0), (None, Quality::Unknown));
    // The connector shows that it had no child, or one.
    assert_eq!(quality_of(Run::new().kernel_fork(102, MAIN).execs(102), 0), (Some(9), Quality::Exact));
    assert_eq!(
        quality_of(Run::new().kernel_fork(102, MAIN).execs(102).kernel_fork(103, 102), 0),
        (None, Quality::Unknown)
    );
}

// Requirement: RAM-52
#[test]
fn raw_wait_for_a_child_spoils_a_killed_process_maximum() {
    // 102 waited for 103 by a raw system call: REAPED's maximum may be the child's.
    let mut run = Run::new();
    run.start(102, MAIN).kernel_fork(103, 102).execs(103).over(103, 0).later(500).finalize(&[103]);
    run.sampled(102, 1, 2 * MIB, MIB).reaped_with(MAIN, 102, 0, libc::SIGKILL, used(1, 9 * MIB_KIB));
    let summaries = run.end();
    assert_eq!(
        (summary_of(&summaries, 102).memory.peak_rss_bytes, summary_of(&summaries, 102).memory.peak_quality),
        (Some(2 * MIB), Quality::Sampled)
    );
}

// Requirement: RAM-20
#[test]
fn maximum_of_a_reaper_is_a_lower_bound_above_what_was_inherited() {
    // A static program's child holds 200 MiB. The reaper, which had 1 MiB, knows that one of the two did.
    let known_of = |max_kib: u64| {
        let mut run = Run::new();
        run.kernel_fork(102, MAIN).execs(102).kernel_fork(103, 102).sampled(102, 1, MIB, MIB);
        let summaries = run.over(103, 0).reaped_with(MAIN, 102, 0, 0, used(1, max_kib)).end();
        (summary_of(&summaries, 102).memory.known_rss, summary_of(&summaries, 103).memory.known_rss)
    };
    let parent = KnownRss { own_bytes: MIB, either_bytes: 200 * MIB, ..KnownRss::default() };
    assert_eq!(known_of(200 * MIB_KIB), (parent, KnownRss::default()));
    assert_eq!(known_of(MIB_KIB).0.either_bytes, 0, "it may have been inherited");
    // Below a program that reports itself, which had 2 MiB.
    let below_of = |children_kib: u64| {
        let mut run = Run::new();
        run.exit_with(MAIN, 0, FLAG_IMAGE, used(1, 2 * MIB_KIB), used(1, children_kib));
        summary_of(&run.end(), MAIN).memory.known_rss.below_bytes
    };
    assert_eq!([2, 200].map(|mib| below_of(mib * MIB_KIB)), [0, 200 * MIB]);
}

#[test]
fn fork_child_may_share_what_it_inherited() {
    let mut run = Run::new();
    run.fork(102, MAIN, 50 * MIB_KIB).exit_with(102, MAIN, 0, used(1, 60 * MIB_KIB), used(0, 0));
    let known = summary_of(&run.end(), 102).memory.known_rss;
    assert_eq!((known.own_bytes, known.copied_bytes), (60 * MIB, 50 * MIB));
}

#[test]
fn peak_of_an_earlier_image_alone_is_marked_sampled() {
    // Its last program ended by a raw system call, and had no more than the one before.
    let mut run = Run::new();
    run.start_as(102, MAIN, 0, 1, "a").start_as(102, MAIN, 0, 9 * MIB_KIB, "b");
    run.reaped_with(MAIN, 102, 0, 0, used(1, 9 * MIB_KIB));
    let summaries = run.end();
    assert_eq!(
        (summary_of(&summaries, 102).memory.peak_rss_bytes, summary_of(&summaries, 102).memory.peak_quality),
        (Some(9 * MIB), Quality::Sampled)
    );
}

// Requirement: RAM-54
#[test]
fn growth_of_a_fork_child_before_exec_is_an_upper_bound_of_its_own_peak() {
    let peak_of = |grown_kib: u64| {
        let mut run = Run::new();
        run.fork(102, MAIN, 100 * MIB_KIB).start_as(102, MAIN, 0, 100 * MIB_KIB + grown_kib, "true");
        run.record(
            102,
            MAIN,
            FLAG_IMAGE,
            Event::Exit { status: 0, vm_hwm_kib: 10, own: used(1, 0), children: used(0, 0) },
        );
        let memory = summary_of(&run.end(), 102).memory;
        (memory.peak_rss_bytes, memory.peak_quality, memory.known_rss.own_bytes)
    };
    let program = (Some(10 * 1024), Quality::Exact, 10 * 1024);
    assert_eq!(peak_of(2 * MIB_KIB), program, "pages of files that it read in again");
    assert_eq!(peak_of(5 * MIB_KIB), (Some(5 * MIB), Quality::Bound, MIB));
    assert_eq!(peak_of(50 * MIB_KIB), (Some(50 * MIB), Quality::Bound, 46 * MIB));
}

#[test]
fn fork_child_turned_static_has_no_parents_peak() {
    // ru_maxrss survives exec: it is that of the fork child's copy of its parent, not of the program.
    let mut run = Run::new();
    run.fork(102, MAIN, 400 * MIB_KIB).reaped_with(MAIN, 102, 0, 0, used(1, 400 * MIB_KIB));
    assert_eq!(summary_of(&run.end(), 102).memory.peak_quality, Quality::Unknown);
}

// Requirement: RAM-5
#[test]
fn earlier_image_keeps_its_peak() {
    // 300 MB in the first image: ru_maxrss grew until the next START.
    let mut run = Run::new();
    run.start_as(102, MAIN, 0, 50, "first").start_as(102, MAIN, 0, 300 * MIB_KIB, "second");
    run.exit_with(102, MAIN, FLAG_IMAGE, used(1, 300 * MIB_KIB), used(0, 0));
    assert_eq!(summary_of(&run.end(), 102).memory.peak_rss_bytes, Some(300 * MIB));
    // Below a larger parent, the EXEC record has it.
    let mut run = Run::new();
    run.start_as(102, MAIN, 0, 900 * MIB_KIB, "first");
    run.record(102, MAIN, 0, Event::Exec { vm_hwm_kib: 300 * MIB_KIB });
    run.start_as(102, MAIN, 0, 900 * MIB_KIB, "second");
    assert_eq!(summary_of(&run.end(), 102).memory.peak_rss_bytes, Some(300 * MIB));
    // A fork child that execs had its parent's memory only.
    let mut run = Run::new();
    run.fork(102, MAIN, 400 * MIB_KIB).start_as(102, MAIN, 0, 400 * MIB_KIB, "cc");
    assert_eq!(summary_of(&run.end(), 102).memory.peak_rss_bytes, None);
}
