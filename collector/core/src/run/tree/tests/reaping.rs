//! Orphans, subreapers and tracers: which process's sums include a child.

use super::*;

#[test]
fn tracer_makes_no_process_and_ends_only_its_children() {
    let mut run = Run::new();
    run.start(102, MAIN).start(103, 102).start(104, 103);
    // strace (102) waits for its child 103, for the grandchild 104, and for a thread 999.
    run.reaped_with(102, 104, FLAG_TRACER, 0, used(5, 0)).reaped_with(102, 999, FLAG_TRACER, 0, used(5, 0));
    assert_eq!((run.tree.counts().created, run.tree.alive().len()), (4, 4));
    run.reaped_with(102, 103, FLAG_TRACER, 0, used(8, 0)).reaped_with(102, 103, FLAG_TRACER, 0, used(8, 0));
    // A subreaper reaps an orphan, not the tracer.
    run.reaped_with(102, 104, FLAG_TRACER, 0, used(5, 0));
    assert_eq!((run.tree.counts().created, run.tree.alive().len()), (4, 3));
    run.exit(102, 1, 8).reaped(MAIN, 102, 9);
    let summaries = run.end();
    assert_eq!(
        (
            summary_of(&summaries, 103).own_usage.cpu_us(),
            summary_of(&summaries, 102).own_usage.unattributed_us
        ),
        (8, 0)
    );
}

// Requirement: SEE-6
#[test]
fn orphan_is_reaped_and_found_by_the_launcher() {
    let mut run = Run::new();
    run.start(102, MAIN).start(103, 102).exit(102, 1, 0).reaped(MAIN, 102, 1).finalize(&[]);
    run.exit(103, 40, 0).reaped(LAUNCHER, 103, 44).reaped(LAUNCHER, 105, 3);
    let summaries = run.end();
    assert_eq!(
        (summary_of(&summaries, 103).own_usage.cpu_us(), summary_of(&summaries, 103).provenance.found_by),
        (44, Layer::Preload)
    );
    assert_eq!(
        (summary_of(&summaries, 105).provenance.found_by, summary_of(&summaries, 105).provenance.joined),
        (Layer::Subreaper, false)
    );
}

#[test]
fn orphan_gone_from_proc_waits_for_its_reaped_record() {
    let mut run = Run::new();
    run.start(102, MAIN).start(103, 102).exit(102, 1, 0).reaped(MAIN, 102, 1).finalize(&[102]);
    run.exit(103, 40, 0).finalize(&[103]).reaped(LAUNCHER, 103, 44);
    assert_eq!(summary_of(&run.end(), 103).own_usage.cpu_us(), 44);
}

#[test]
fn orphan_may_be_reaped_before_its_parents_kill_is_known() {
    // timeout -s KILL kills its child and itself; the launcher reaps the child before the shell reaps timeout.
    let mut run = Run::new();
    run.start(102, MAIN).start(103, 102).reaped_with(LAUNCHER, 103, 0, 9, used(50, 0));
    run.reaped_with(MAIN, 102, 0, 9, used(5, 0)).exit(MAIN, 1, 5).reaped(LAUNCHER, MAIN, 6);
    let summaries = run.end();
    assert_eq!((summaries.len(), total_us(&summaries)), (3, 56));
}

/// 102 runs a static program that is a subreaper; its child 103 is instrumented.
fn below_a_static_subreaper() -> Run {
    let mut run = Run::new();
    run.kernel_fork(102, MAIN).execs(102).kernel_fork(103, 102).execs(103).start(103, 102);
    run
}

// Requirement: SEE-76
#[test]
fn orphan_below_a_static_subreaper_is_in_its_sums() {
    let mut run = below_a_static_subreaper();
    run.kernel_fork(104, 103).fork(104, 103, MIB_KIB).kernel_fork(105, 104).fork(105, 104, MIB_KIB);
    run.exit(104, 100, 0)
        .reaped(103, 104, 100)
        .exit(105, 5000, 0)
        .exit(103, 900, 100)
        .over(105, 0)
        .over(103, 0);
    run.later(1).reaped(MAIN, 102, 6700).finalize(&[103, 105]).later(300).finalize(&[103, 105]);
    let summaries = run.end();
    assert_eq!((total_us(&summaries), summary_of(&summaries, 102).own_usage.cpu_us()), (6700, 700));
}

#[test]
fn orphan_is_in_the_sums_of_the_nearest_static_ancestor() {
    // 102 is static and no subreaper; below it 103, which is instrumented, and 104, a static subreaper.
    let mut run = below_a_static_subreaper();
    run.kernel_fork(104, 103).execs(104).kernel_fork(105, 104).execs(105).start(105, 104);
    run.kernel_fork(106, 105)
        .fork(106, 105, MIB_KIB)
        .exit(105, 100, 0)
        .over(105, 0)
        .exit(106, 5000, 0)
        .over(106, 0);
    run.kernel(104, What::Exit { status: 0 })
        .later(1)
        .reaped(103, 104, 5800)
        .exit(103, 900, 5800)
        .over(103, 0);
    run.kernel(102, What::Exit { status: 0 }).reaped(MAIN, 102, 7000);
    run.finalize(&[103, 105, 106]).later(300).finalize(&[103, 105, 106]);
    let summaries = run.end();
    assert_eq!([102, 104].map(|pid| summary_of(&summaries, pid).own_usage.cpu_us()), [300, 700]);
    assert_eq!(total_us(&summaries), 7000);
}

#[test]
fn ancestor_that_became_instrumented_is_no_subreaper() {
    let mut run = below_a_static_subreaper();
    run.kernel_fork(104, 103).execs(104).kernel_fork(105, 104).execs(105).start(105, 104);
    run.execs(104).start(104, 103).exit(104, 100, 0).reaped(103, 104, 100).later(1).finalize(&[103, 105]);
    assert!(run.tree.youngest_alive(Key { pid_ns: HERE, pid: 104 }).is_none(), "it is finalized");
    run.exit(105, 5000, 0).over(105, 0).exit(103, 900, 100).over(103, 0);
    run.later(1).reaped(MAIN, 102, 6700).finalize(&[103, 105]).later(300).finalize(&[103, 105]);
    let summaries = run.end();
    assert_eq!((total_us(&summaries), summary_of(&summaries, 102).own_usage.cpu_us()), (6700, 700));
}

#[test]
fn orphan_is_in_the_sums_of_a_subreaper_known_by_reaped() {
    let mut run = Run::new();
    run.start(103, 102).fork(104, 103, MIB_KIB).fork(105, 104, MIB_KIB);
    run.exit(104, 100, 0).reaped(103, 104, 100).exit(105, 5000, 0).exit(103, 900, 100).later(1);
    run.reaped(MAIN, 102, 6700).finalize(&[103, 105]);
    // A process that reported late is no subreaper.
    run.fork(108, 107, MIB_KIB)
        .fork(109, 108, MIB_KIB)
        .fork(107, MAIN, MIB_KIB)
        .exit(108, 10, 0)
        .exit(109, 20, 0);
    run.exit(107, 30, 0).reaped(MAIN, 107, 30).reaped(LAUNCHER, 108, 10).reaped(LAUNCHER, 109, 20);
    run.later(300).finalize(&[103, 105]);
    let summaries = run.end();
    assert_eq!((total_us(&summaries), summary_of(&summaries, 102).own_usage.cpu_us()), (6760, 700));
    assert_eq!([107, 108, 109].map(|pid| summary_of(&summaries, pid).own_usage.cpu_us()), [30, 10, 20]);
}

#[test]
fn zombie_left_by_a_killed_process_is_its_subreapers() {
    // 104 is killed and leaves a zombie. The REAPED record of 104 is too small to include it, or 104 has written a REAPED
    // record of another child: then it may have waited for it, and its own time is a lower bound.
    for (has_reported, own_us) in [(false, 300), (true, 30_000)] {
        let mut run = below_a_static_subreaper();
        run.kernel_fork(104, 103).fork(104, 103, MIB_KIB).kernel_fork(105, 104).fork(105, 104, MIB_KIB);
        if has_reported {
            run.kernel_fork(106, 104).fork(106, 104, MIB_KIB).exit(106, 10, 0).reaped(104, 106, 10);
        }
        let of_106 = if has_reported { 10 } else { 0 };
        run.exit(105, 5000, 0).kernel(104, What::Exit { status: libc::SIGKILL });
        run.reaped_with(103, 104, 0, libc::SIGKILL, used(own_us + of_106, 0)).exit(103, 900, own_us + of_106);
        run.over(105, 0).over(103, 0).reaped(MAIN, 102, 700 + 5000 + 900 + own_us + of_106);
        run.finalize(&[103, 105]).later(300).finalize(&[103, 105]);
        let summaries = run.end();
        let own = summary_of(&summaries, 104).own_usage;
        let expected =
            if has_reported { (own_us - 5000, Quality::Sampled) } else { (own_us, Quality::Exact) };
        assert_eq!((own.cpu_us(), own.quality), expected);
        assert_eq!(total_us(&summaries), 6600 + own_us + of_106);
        let subreaper = summary_of(&summaries, 102).own_usage;
        let rest_us = 700 + if has_reported { 5000 } else { 0 };
        assert_eq!(subreaper.cpu_us() + subreaper.unattributed_us, rest_us);
        assert_eq!(subreaper.quality == Quality::Exact, !has_reported);
    }
}

#[test]
fn exit_record_of_an_orphan_that_is_gone_still_counts() {
    // EXIT is the first record of 102, which is gone from /proc before that is read.
    let mut run = Run::new();
    run.scan(102, MAIN).exit(MAIN, 1, 0).reaped(LAUNCHER, MAIN, 1).later(500);
    let (now_ns, complete_ns) = (run.now_ns + MS, run.now_ns - MS);
    finalize(&mut run.tree, now_ns, complete_ns, |pid| pid == 102);
    run.exit(102, 5, 0).reaped(LAUNCHER, 102, 6);
    assert_eq!(run.tree.counts().created, 2);
    assert_eq!(total_us(&run.end()), 7);
}

/// The command is a static subreaper, which the launcher has not reported yet; 104 is an orphan below it.
fn orphan_below_an_unknown_command() -> Run {
    let mut run = Run { tree: Tree::new(context()), now_ns: T0, pid_ns: HERE };
    run.execs(MAIN)
        .kernel_fork(102, MAIN)
        .execs(102)
        .start(102, MAIN)
        .kernel_fork(103, 102)
        .execs(103)
        .start(103, 102);
    run.kernel_fork(104, 103)
        .fork(104, 103, MIB_KIB)
        .exit(104, 5000, 0)
        .exit(103, 100, 0)
        .reaped(102, 103, 100);
    run
}

#[test]
fn no_process_is_final_before_the_command_is_known() {
    let mut run = orphan_below_an_unknown_command();
    run.finalize(&[104]).tree.set_main(MAIN, T0, "init");
    run.exit(102, 900, 100).reaped(LAUNCHER, MAIN, 6700);
    assert_eq!(total_us(&run.end()), 6700);
}

#[test]
fn a_process_that_is_about_to_exec_reaps_no_orphans() {
    let mut run = orphan_below_an_unknown_command();
    run.execs(102).tree.set_main(MAIN, T0, "init");
    run.finalize(&[104]).start(102, MAIN).exit(102, 900, 100).reaped(LAUNCHER, MAIN, 6700);
    assert_eq!(total_us(&run.end()), 6700);
}
