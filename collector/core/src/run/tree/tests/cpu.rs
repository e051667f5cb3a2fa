//! Own CPU time: each microsecond is counted once, and only where the sources allow to conclude it.

use super::*;

// Requirement: CPU-1
#[test]
fn own_cpu_is_reaped_usage_less_waited_children() {
    let mut run = Run::new();
    run.start(102, MAIN).start(103, 102).exit(103, 500, 0).reaped(102, 103, 550);
    run.exit(102, 1000, 550).reaped(MAIN, 102, 1650).exit(MAIN, 10, 1650).reaped(LAUNCHER, MAIN, 1700);
    let summaries = run.end();
    assert_eq!(summary_of(&summaries, 103).own_usage.cpu_us(), 550, "the kernel's teardown is in it");
    assert_eq!(summary_of(&summaries, 102).own_usage.cpu_us(), 1100);
    assert_eq!(summary_of(&summaries, MAIN).own_usage.cpu_us(), 50);
    assert_eq!(total_us(&summaries), 1700, "all of it is what the launcher reaped");
    assert!(summaries.iter().all(|p| p.own_usage.quality == Quality::Exact
        && p.own_usage.unattributed_us == 0
        && !p.provenance.joined));
}

#[test]
fn reaped_without_exit_subtracts_waited_children() {
    let mut run = Run::new();
    run.start(102, MAIN).start(103, 102).exit(103, 500, 0).reaped(102, 103, 550);
    run.reaped_with(MAIN, 102, 0, libc::SIGKILL, used(1650, 0));
    let summaries = run.end();
    let killed = summary_of(&summaries, 102);
    assert_eq!((killed.own_usage.cpu_us(), killed.own_usage.quality), (1100, Quality::Exact));
    assert_eq!((killed.exit.code, killed.exit.signal), (None, Some(libc::SIGKILL)));
}

#[test]
fn without_reaped_record_the_exit_record_counts() {
    let mut run = Run::new();
    run.start(102, MAIN).exit(102, 900, 5).finalize(&[]).finalize(&[102]);
    assert!(run.tree.take_summaries().is_empty(), "a REAPED record may still come");
    run.later(200).finalize(&[102]);
    let summaries = run.tree.take_summaries();
    let process = summary_of(&summaries, 102);
    assert_eq!((process.own_usage.cpu_us(), process.own_usage.quality), (900, Quality::Exact));
    assert_eq!((process.exit.code, process.own_usage.unattributed_us), (Some(3), 5));
}

// Requirement: CPU-2
#[test]
fn child_of_system_is_counted_once() {
    // glibc waits inside system(): the child is in its parent's sums, but no record says that it was reaped.
    let mut run = Run::new();
    run.start(102, MAIN).start(103, 102).exit(103, 500, 0).exit(102, 100, 520).reaped(MAIN, 102, 620);
    run.finalize(&[102, 103]);
    let summaries = run.tree.take_summaries();
    assert_eq!(summary_of(&summaries, 103).own_usage.cpu_us(), 500);
    assert_eq!(summary_of(&summaries, 102).own_usage.cpu_us(), 100);
    assert_eq!(summary_of(&summaries, 102).own_usage.unattributed_us, 20, "the child's teardown");
    assert_eq!(total_us(&summaries), 620);
}

// Requirement: SEE-53
#[test]
fn what_sampled_children_lack_is_not_their_parents() {
    // 103 and its child 104 write no records. Of 104 the last sample is known, and its parent's parent reaps 103.
    let mut run = Run::new();
    run.kernel_fork(102, MAIN).execs(102).sampled(102, 20_000, MIB, MIB);
    run.kernel_fork(103, 102).execs(103).sampled(103, 30_000, MIB, MIB);
    run.kernel_fork(104, 103).execs(104).sampled(104, 40_000, MIB, MIB);
    run.over(104, 0).ends_with_clock(103, 35_000).over(103, 0).over(102, 0).reaped(MAIN, 102, 200);
    let summaries = run.later(500).finalize(&[102, 103, 104]).end();
    let known =
        |pid| (summary_of(&summaries, pid).own_usage.cpu_us(), summary_of(&summaries, pid).own_usage.quality);
    assert_eq!((known(104), known(103)), ((40, Quality::Sampled), (35, Quality::Exact)));
    assert_eq!((known(102), total_us(&summaries)), ((20, Quality::Sampled), 200));
}

// Requirement: CPU-51
#[test]
fn child_of_system_in_a_killed_process_is_counted_once() {
    let mut run = Run::new();
    run.start(102, MAIN).start(103, 102).exit(103, 500, 0);
    run.reaped_with(MAIN, 102, 0, libc::SIGKILL, used(620, 0)).finalize(&[102, 103]);
    let summaries = run.tree.take_summaries();
    assert_eq!(
        (summary_of(&summaries, 103).own_usage.cpu_us(), summary_of(&summaries, 102).own_usage.cpu_us()),
        (500, 120)
    );
}

#[test]
fn grandchild_below_a_killed_system_shell_is_counted_once() {
    // 102 calls system(); its shell 103 reaps 104 and is then killed. 102's children hold all of it.
    let mut run = Run::new();
    run.start(102, MAIN).start(103, 102).start(104, 103).exit(104, 500, 0).reaped(103, 104, 500);
    run.sampled(103, 40_000, MIB, MIB);
    let shell = run.id(103);
    run.tree.observe_end(shell, run.now_ns, Some(run.now_ns));
    run.exit(102, 100, 540).reaped(MAIN, 102, 640).finalize(&[102, 103, 104]);
    assert_eq!(total_us(&run.tree.take_summaries()), 640);
}

#[test]
fn autoreaped_child_is_subtracted_from_no_process() {
    let mut run = Run::new();
    run.start(102, MAIN).start(103, 102).exit(103, 500, 0);
    run.exit_with(102, 0, FLAG_IMAGE | FLAG_AUTOREAP, used(100, 0), used(0, 0)).reaped(MAIN, 102, 110);
    run.finalize(&[102, 103]);
    let summaries = run.tree.take_summaries();
    assert_eq!(
        (summary_of(&summaries, 103).own_usage.cpu_us(), summary_of(&summaries, 102).own_usage.cpu_us()),
        (500, 110)
    );
    assert_eq!((run.tree.counts().autoreaped, total_us(&summaries)), (1, 610));
}

#[test]
fn killed_parent_ignoring_sigchld_keeps_its_clock_time() {
    // Autoreaped children are in no RUSAGE_CHILDREN: there is nothing to subtract.
    let mut run = Run::new();
    run.start(102, MAIN).start(103, 102).exit(103, 500_000, 0).sampled(102, 100_000_000, MIB, MIB);
    run.reaped_with(MAIN, 102, 0, libc::SIGKILL, used(120_000, 0)).finalize(&[102, 103]);
    assert!(summary_of(&run.tree.take_summaries(), 102).own_usage.cpu_us() >= 100_000);
}

// Requirement: CPU-2, CPU-5
#[test]
fn waits_of_an_uninstrumented_process_leave_out_children_that_the_kernel_reaped() {
    // It waits for 103, then ignores SIGCHLD: 104 and 105 are in no sum.
    let mut run = Run::new();
    run.kernel_fork(102, MAIN).execs(102);
    for (pid, cpu_ns) in [(103, 400_000_000), (104, 30_000_000), (105, 30_000_000)] {
        run.kernel_fork(pid, 102)
            .execs(pid)
            .ends_with_clock(pid, cpu_ns)
            .over(pid, 0)
            .later(300)
            .finalize(&[pid]);
    }
    run.ends_with_clock(102, 20_000_000).over(102, 0).reaped(MAIN, 102, 420_050);
    let summaries = run.later(300).finalize(&[102]).end();
    assert_eq!(
        (summary_of(&summaries, 102).own_usage.cpu_us(), summary_of(&summaries, 102).own_usage.quality),
        (20_000, Quality::Exact)
    );
    assert_eq!((total_us(&summaries), run.tree.counts().autoreaped), (480_050, 2), "50 us are unattributed");
}

#[test]
fn clock_ahead_by_rounding_counts_no_child_twice() {
    // 102 runs an uninstrumented program, waits for 103 by a raw system call, and is seen as a zombie before it is reaped.
    let mut run = Run::new();
    run.start(102, MAIN).start(103, 102).exit(103, 40_000, 0).sampled(102, 60_003_000, MIB, MIB);
    run.reaped(MAIN, 102, 100_000).finalize(&[102, 103]);
    assert_eq!(total_us(&run.tree.take_summaries()), 100_000);
}

// Requirement: CPU-2, CPU-51
#[test]
fn children_without_records_are_unattributed() {
    let mut run = Run::new();
    run.exit(MAIN, 10, 700).reaped(LAUNCHER, MAIN, 720);
    let summaries = run.end();
    assert_eq!(
        (
            summary_of(&summaries, MAIN).own_usage.cpu_us(),
            summary_of(&summaries, MAIN).own_usage.unattributed_us
        ),
        (20, 700)
    );
}

// Requirement: CPU-7, CPU-54
#[test]
fn own_cpu_from_samples_is_marked_and_without_any_unknown() {
    let mut run = Run::new();
    run.start(102, MAIN).start(103, MAIN).sampled(102, 8_000_000, MIB, MIB);
    for pid in [102, 103] {
        let id = run.id(pid);
        run.tree.observe_end(id, run.now_ns, Some(run.now_ns));
    }
    let summaries = run.finalize(&[]).end();
    let (seen, unseen) = (summary_of(&summaries, 102), summary_of(&summaries, 103));
    assert_eq!(
        (seen.own_usage.quality, seen.own_usage.usage.user_us, seen.own_usage.usage.system_us),
        (Quality::Sampled, 6000, 2000)
    );
    assert_eq!((unseen.own_usage.quality, unseen.exit.code), (Quality::Unknown, None));
    assert!(
        !seen.is_still_running && !unseen.is_still_running && summary_of(&summaries, MAIN).is_still_running
    );
}

#[test]
fn reaped_record_of_another_process_takes_no_figures_away() {
    let mut run = Run::new();
    run.start(102, MAIN).exit(102, 90_000, 0).reaped(MAIN, 102, 10);
    assert_eq!(summary_of(&run.end(), 102).own_usage.cpu_us(), 90_000);
}

// Requirement: CPU-4
#[test]
fn killed_parent_is_not_charged_for_an_unwaited_child() {
    // 103's zombie outlives 102, and is gone when the launcher's REAPED is written, but not read.
    let mut run = Run::new();
    run.start(102, MAIN).start(103, 102).exit(103, 40_000, 0);
    run.reaped_with(MAIN, 102, 0, libc::SIGKILL, used(90_000, 0));
    let (gone_ns, complete_ns) = (run.now_ns + MS, run.now_ns);
    finalize(&mut run.tree, gone_ns, complete_ns, |pid| pid == 103);
    run.reaped(LAUNCHER, 103, 41_000);
    assert_eq!(total_us(&run.end()), 131_000);
    // An uninstrumented process is no different: the connector reported its end, and /proc was read too late.
    let mut run = Run::new();
    run.start(102, MAIN).kernel_fork(103, 102).execs(103).kernel(103, What::Exit { status: libc::SIGKILL });
    let end_ns = run.now_ns;
    run.exit(102, 50_000, 0).reaped(MAIN, 102, 50_000);
    let (gone_ns, complete_ns) = (run.now_ns + MS, run.now_ns);
    for id in ends(&run.tree) {
        run.tree.observe_end(id, end_ns, Some(gone_ns));
    }
    finalize(&mut run.tree, gone_ns, complete_ns, |_| false);
    run.reaped(LAUNCHER, 103, 41_000);
    assert_eq!(total_us(&run.end()), 91_000);
}

#[test]
fn adopted_child_is_finalized_before_its_younger_parent() {
    let mut run = Run::new();
    // 301 names an unknown parent, which is found, as a younger entry, when it is reaped.
    run.start(301, 300).exit(301, 4, 0);
    run.reaped(MAIN, 300, 10).exit(MAIN, 1, 10).reaped(LAUNCHER, MAIN, 11);
    let summaries = run.end();
    let own =
        |pid: u32| summaries.iter().find(|process| process.ids.pid() == pid).unwrap().own_usage.cpu_us();
    assert_eq!((own(301), own(300), own(MAIN)), (4, 6, 1));
}

#[test]
fn child_found_dead_later_is_subtracted_from_its_parent() {
    // 102 waits by raw system calls, and so does MAIN for it. 103 runs a static program, which writes no EXIT record. The
    // connector reports its end, or a sample finds it, or neither before 102 is finalized.
    for found_by in ["the connector", "a sample", "neither"] {
        let mut run = Run::new();
        run.kernel_fork(102, MAIN).kernel_fork(103, 102).fork(103, MAIN, MIB_KIB).execs(103);
        run.sampled(103, 55_000_000, MIB, MIB);
        if found_by == "the connector" {
            run.kernel(103, What::Exit { status: 0 });
        }
        run.exit(102, 20_000, 60_000).exit(MAIN, 10_000, 80_000).reaped(LAUNCHER, MAIN, 90_000);
        if found_by == "a sample" {
            let id = run.id(103);
            run.tree.observe_end(id, run.now_ns, Some(run.now_ns));
        }
        for id in ends(&run.tree) {
            let at_ns = run.tree.get(id).and_then(|process| process.end.kernel_exit).unwrap().at_ns;
            run.tree.observe_end(id, at_ns, Some(at_ns));
        }
        run.finalize(&[102, 103]).later(1).finalize(&[102, 103]).later(300).finalize(&[102, 103]);
        let summaries = run.tree.take_summaries();
        assert_eq!((summaries.len(), total_us(&summaries)), (3, 90_000), "found by {found_by}");
    }
}

#[test]
fn clock_of_another_time_namespace_is_corrected() {
    let mut run = Run::new();
    let names = [0; NAME_BYTES];
    // Its clock is a day ahead: the real time shows that it started at T0 + 10 ms, and ended at T0 + 30 ms.
    let day = 86_400_000 * MS;
    let mut origin =
        Origin { pid: 102, pid_ns: HERE, parent: MAIN, monotonic_ns: T0 + day + 10 * MS, flags: 0 };
    let start = Event::Start {
        realtime_ns: 7 * T0 + 10 * MS,
        pidfd_inode: 0,
        max_rss_kib: 0,
        names,
        rank: Rank::default(),
        task: TaskKeys::NONE,
    };
    run.tree.apply(&origin, &start, T0 + 50 * MS);
    origin.monotonic_ns = T0 + day + 30 * MS;
    let exit = Event::Exit { status: 0, vm_hwm_kib: 0, own: Usage::default(), children: Usage::default() };
    run.tree.apply(&origin, &exit, T0 + 50 * MS);
    assert_eq!(summary_of(&run.end(), 102).wall_ns, 20 * MS);
}

// Requirement: CPU-10
#[test]
fn clock_of_a_static_command_is_its_own_part_of_what_the_launcher_reaped() {
    let mut run = Run { tree: Tree::new(context()), now_ns: T0, pid_ns: HERE };
    run.tree.set_main(MAIN, T0, "static");
    // Its child lived too short for any figure.
    run.execs(MAIN).kernel_fork(102, MAIN).over(102, 0).kernel(MAIN, What::Exit { status: 0 });
    let reaped = Event::Reaped {
        child: MAIN,
        status: 0,
        reaper_max_rss_kib: MIB_KIB,
        usage: used(5000, 0),
        clock_ns: 3_000_000,
    };
    run.record(LAUNCHER, 0, 0, reaped);
    let summaries = run.end();
    let main = summary_of(&summaries, MAIN);
    assert_eq!(
        (main.own_usage.cpu_us(), main.own_usage.quality, main.own_usage.unattributed_us),
        (3000, Quality::Exact, 2000)
    );
    assert_eq!(
        (summary_of(&summaries, 102).own_usage.quality, total_us(&summaries)),
        (Quality::Unknown, 5000)
    );
}
