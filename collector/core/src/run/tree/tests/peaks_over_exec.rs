//! Peak RSS and the tree's RAM over fork and exec.

use super::*;

// Requirement: RAM-51
#[test]
fn sample_before_an_exec_is_no_peak_of_the_new_program() {
    let peak_of = |run: &mut Run| {
        let summaries = run.over(102, 0).later(500).finalize(&[102]).end();
        (
            summary_of(&summaries, 102).memory.peak_rss_bytes.map(|peak| peak / MIB),
            summary_of(&summaries, 102).memory.peak_quality,
        )
    };
    // A spawned child, which shared its parent's memory until then.
    let mut run = Run::new();
    run.kernel_fork(102, MAIN).sampled(102, 1, 90 * MIB, MIB).execs(102);
    assert_eq!(peak_of(&mut run), (None, Quality::Unknown));
    // /proc shows the new program before the connector's event is read.
    let mut run = Run::new();
    run.kernel_fork(102, MAIN).sampled(102, 1, 90 * MIB, MIB);
    let id = run.id(102);
    run.tree.set_unreported_image(id, UnreportedMemory::Own, run.now_ns);
    assert_eq!(peak_of(run.execs(102)), (None, Quality::Unknown));
    // The sample is taken after the exec, whose event comes late; its peak may still be the old program's.
    let mut run = Run::new();
    run.kernel_fork(102, MAIN).sampled(102, 1, 90 * MIB, MIB).sampled(102, 1, 3 * MIB, MIB);
    let observed = run.tree.get(run.id(102)).unwrap().observed;
    assert_eq!((observed.peak_rss_bytes, observed.rss_bytes), (90 * MIB, 3 * MIB));
    let (at_ns, now_ns) = (observed.at_ns - 1, run.now_ns);
    run.tree.apply_kernel(&KernelEvent { at_ns, pid: 102, what: What::Exec }, now_ns);
    assert_eq!(peak_of(&mut run), (Some(3), Quality::Sampled));
    // Only START reports the exec, and the kernel's maximum at the end is below a sample.
    let mut run = Run::new();
    run.fork(102, MAIN, 90 * MIB_KIB).sampled(102, 1, 90 * MIB, MIB).sampled(102, 1, 3 * MIB, MIB);
    run.now_ns -= MS + 1;
    run.start(102, MAIN).later(2).exit(102, 10, 0).reaped(MAIN, 102, 10);
    let summaries = run.later(500).finalize(&[102]).end();
    assert_eq!(
        (summary_of(&summaries, 102).memory.peak_rss_bytes, summary_of(&summaries, 102).memory.peak_quality),
        (Some(3 * MIB), Quality::Exact)
    );
}

// Requirement: RAM-53
#[test]
fn replaced_static_program_leaves_its_sampled_peak() {
    let peak_of = |inherited_kib: u64| {
        let mut run = Run::new();
        run.kernel_fork(102, MAIN).execs(102);
        let id = run.id(102);
        run.tree.confirm_uninstrumented(id);
        run.later(1).sampled(102, 1, 30 * MIB, MIB).execs(102);
        run.start_as(102, MAIN, 0, inherited_kib, "is_instrumented");
        let event =
            Event::Exit { status: 0, vm_hwm_kib: 10, own: used(1, 50 * MIB_KIB), children: used(0, 0) };
        run.record(102, MAIN, FLAG_IMAGE, event);
        let summaries = run.end();
        (
            summary_of(&summaries, 102).memory.peak_rss_bytes.map(|peak| peak / MIB),
            summary_of(&summaries, 102).memory.peak_quality,
        )
    };
    // It had up to 50 MiB: more than any sample saw.
    assert_eq!(peak_of(50 * MIB_KIB), (Some(30), Quality::Sampled));
    // No earlier program can have had more than the last one.
    assert_eq!(peak_of(40 * MIB_KIB), (Some(50), Quality::Exact));
}

// Requirement: RAM-5
#[test]
fn growth_before_a_late_start_counts() {
    // The program `slow` has 9 MiB, and the process had up to 50.
    let peak_of = |run: &mut Run| {
        let summaries = run.later(1).sampled(102, 1, 5 * MIB, MIB).reports_late(102).end();
        (
            summary_of(&summaries, 102).memory.peak_rss_bytes.map(|peak| peak / MIB),
            summary_of(&summaries, 102).memory.peak_quality,
        )
    };
    let taken_for_uninstrumented = |mut run: Run| {
        let id = run.execs(102).id(102);
        run.tree.confirm_uninstrumented(id);
        run
    };
    let mut run = Run::new();
    run.kernel_fork(102, MAIN).execs(102).start(102, MAIN);
    assert_eq!(
        peak_of(&mut taken_for_uninstrumented(run)),
        (Some(50), Quality::Exact),
        "its first program's"
    );
    let mut run = Run::new();
    run.kernel_fork(102, MAIN).fork(102, MAIN, 10 * MIB_KIB);
    assert_eq!(
        peak_of(&mut taken_for_uninstrumented(run)),
        (Some(40), Quality::Bound),
        "what a copy grew by"
    );
    // A scan found the new program before its START.
    let mut run = Run::new();
    let id = run.fork(102, MAIN, 10 * MIB_KIB).id(102);
    run.tree.set_unreported_image(id, UnreportedMemory::Own, run.now_ns);
    run.tree.set_program(id, Program { command: Some("slow".into()), ..Program::default() });
    assert_eq!(peak_of(&mut run), (Some(40), Quality::Bound));
}

// Requirement: RAM-74
#[test]
fn fork_child_that_execs_an_uninstrumented_program_has_an_upper_bound() {
    // Of 300 MiB, 100 may have been a copy of its parent's memory.
    for is_confirmed in [false, true] {
        let mut run = Run::new();
        let id = run.kernel_fork(102, MAIN).fork(102, MAIN, 100 * MIB_KIB).execs(102).id(102);
        if is_confirmed {
            run.tree.confirm_uninstrumented(id);
        }
        run.over(102, libc::SIGKILL);
        let (usage, reaper_max_rss_kib) = (used(1, 300 * MIB_KIB), 100 * MIB_KIB);
        let reaped =
            Event::Reaped { child: 102, status: libc::SIGKILL, reaper_max_rss_kib, usage, clock_ns: 0 };
        run.record(MAIN, 0, 0, reaped);
        let certain = run.tree.take_intervals(u64::MAX).iter().map(|life| life.memory.added_bytes).sum();
        let summaries = run.end();
        let child = summary_of(&summaries, 102);
        assert_eq!(
            (child.memory.peak_rss_bytes, child.memory.peak_quality),
            (Some(300 * MIB), Quality::Bound)
        );
        assert_eq!((certain, child.memory.known_rss.either_bytes), (200 * MIB, 300 * MIB));
    }
}

// Requirement: RAM-53
#[test]
fn copy_of_an_uninstrumented_program_may_have_been_larger() {
    // A program of 9 MiB, in a process that had 50 before.
    let peak_of = |run: &mut Run, parent: u32, max_kib: u64| {
        run.start_as(103, parent, 0, 50 * MIB_KIB, "prog");
        let (own, children) = (used(1, max_kib), used(0, 0));
        let vm_hwm_kib = 9 * MIB_KIB;
        run.record(103, parent, FLAG_IMAGE, Event::Exit { status: 0, vm_hwm_kib, own, children });
        let summaries = run.end();
        (
            summary_of(&summaries, 103).memory.peak_rss_bytes.map(|peak| peak / MIB),
            summary_of(&summaries, 103).memory.peak_quality,
        )
    };
    let below_static = || {
        let mut run = Run::new();
        let id = run.kernel_fork(102, MAIN).execs(102).id(102);
        run.tree.confirm_uninstrumented(id);
        run.kernel_fork(103, 102).execs(103);
        run
    };
    assert_eq!(peak_of(&mut below_static(), 102, 50 * MIB_KIB), (Some(9), Quality::Sampled));
    assert_eq!(peak_of(&mut below_static(), 102, 60 * MIB_KIB), (Some(60), Quality::Exact));
    // No record names its parent.
    assert_eq!(peak_of(&mut Run::new(), 102, 50 * MIB_KIB), (Some(9), Quality::Sampled));
    // An instrumented parent's fork child writes FORK, so this one was spawned.
    let mut run = Run::new();
    run.kernel_fork(103, MAIN).execs(103);
    assert_eq!(peak_of(&mut run, MAIN, 50 * MIB_KIB), (Some(9), Quality::Exact));
}

#[test]
fn killed_fork_child_may_have_execd_before() {
    let peak_of = |run: &mut Run| {
        let (usage, reaper_max_rss_kib) = (used(1, 108 * MIB_KIB), 100 * MIB_KIB);
        run.record(
            MAIN,
            0,
            0,
            Event::Reaped { child: 102, status: libc::SIGKILL, reaper_max_rss_kib, usage, clock_ns: 0 },
        );
        let summaries = run.end();
        (summary_of(&summaries, 102).memory.peak_rss_bytes, summary_of(&summaries, 102).memory.peak_quality)
    };
    // No source would have reported an exec.
    assert_eq!(peak_of(Run::new().fork(102, MAIN, 100 * MIB_KIB)), (Some(108 * MIB), Quality::Bound));
    let mut run = Run::new();
    run.kernel_fork(102, MAIN).fork(102, MAIN, 100 * MIB_KIB);
    assert_eq!(peak_of(&mut run), (Some(108 * MIB), Quality::Exact));
    // It runs a static program by now: the kernel's maximum includes what it had before.
    let mut run = Run::new();
    run.kernel_fork(102, MAIN).fork(102, MAIN, 100 * MIB_KIB);
    run.record(102, MAIN, 0, Event::Exec { vm_hwm_kib: 108 * MIB_KIB }).execs(102);
    let id = run.id(102);
    run.tree.confirm_uninstrumented(id);
    assert_eq!(peak_of(&mut run), (Some(8 * MIB), Quality::Sampled));
}

#[test]
fn fork_childs_share_is_what_it_touched_or_grew_by() {
    assert_eq!(unshared_after_fork(400, 400, 0), 0);
    assert_eq!(unshared_after_fork(400, 400, 30), 30);
    assert_eq!(unshared_after_fork(450, 400, 30), 50, "a huge page is one fault");
    assert_eq!(unshared_after_fork(20, 400, 30), 20, "never more than it has");
    let mut run = Run::new();
    run.fork(102, MAIN, 400 * MIB_KIB);
    let own = Usage { minor_faults: 256, max_rss_kib: 400 * MIB_KIB, ..Usage::default() };
    run.exit_with(102, MAIN, 0, own, used(0, 0));
    let bytes: Vec<_> = run
        .tree
        .take_intervals(u64::MAX)
        .iter()
        .map(|life| (life.is_process, life.memory.added_bytes))
        .collect();
    assert_eq!(bytes, [(true, 0), (false, MIB)]);
}

// Requirement: RAM-2
#[test]
fn ended_process_counts_memory_that_no_sample_saw() {
    let mut run = Run::new();
    run.start_as(102, MAIN, 0, MIB_KIB, "a").sampled(102, 3_000_000, 100 * MIB, 60 * MIB).later(9);
    let sampled_at = run.tree.get(run.id(102)).unwrap().observed.at_ns;
    run.exit_with(102, MAIN, FLAG_IMAGE, used(5000, 300 * MIB_KIB), used(0, 0));
    let lives = run.tree.take_intervals(u64::MAX);
    let (process, memory) = (&lives[0], &lives[1]);
    // 40 of its 100 MiB are shared with others; its growth is its own.
    assert_eq!((memory.memory.added_bytes, memory.start_ns), (260 * MIB, sampled_at));
    assert_eq!((process.is_process, process.threads, process.start_ns), (true, 2, sampled_at));
    assert_eq!(process.end_ns, sampled_at + 10 * MS);
    assert_eq!(process.cpu_ns, 5_000_000, "no window has counted any of it");
}
