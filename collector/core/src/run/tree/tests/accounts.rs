//! The kernel's accounts of exits: what they make exact, and what not.

use super::*;
use crate::model::exit_account::ThreadAccount;

fn account(cpu_us: u64, peak_mib: u64, faulted_mib: u64) -> ExitAccount {
    ExitAccount {
        cpu_ns: Some(cpu_us * 1000),
        is_cpu_whole: true,
        peak_rss_bytes: Some(peak_mib * MIB),
        thread: Some(ThreadAccount { user_us: 3, system_us: 1, faulted_bytes: faulted_mib * MIB }),
    }
}

/// A child of an uninstrumented child of the command.
fn of_grandchild(account: ExitAccount) -> ProcessSummary {
    let mut run = Run::new();
    run.kernel_fork(102, MAIN).execs(102).later(60).kernel_fork(103, 102).execs(103);
    run.accounted(103, account).over(103, 0);
    summary_of(&run.end(), 103).clone()
}

// Requirement: SEE-22, SEE-97
#[test]
fn account_has_the_figures_of_a_process_that_no_sample_saw() {
    let child = of_grandchild(account(700, 5, 3));
    assert_eq!((child.own_usage.usage.cpu_us(), child.own_usage.quality), (700, Quality::Exact));
    assert_eq!((child.memory.peak_rss_bytes, child.memory.peak_quality), (Some(5 * MIB), Quality::Exact));
    assert_eq!(
        (child.own_usage.usage.user_us, child.own_usage.usage.system_us),
        (525, 175),
        "as three to one"
    );
    let of_tick = ExitAccount { is_cpu_whole: false, ..account(700, 5, 3) };
    assert_eq!(of_grandchild(of_tick).own_usage.quality, Quality::Sampled);
}

// Requirement: SEE-22, SEE-99
#[test]
fn accounted_peak_is_not_exact_if_an_earlier_image_may_have_had_more() {
    let peak = |child: &ProcessSummary| (child.memory.peak_rss_bytes, child.memory.peak_quality);
    // Before its exec it may have written to its copy of its parent's memory.
    let sampled = (Some(5 * MIB), Quality::Sampled);
    assert_eq!(peak(&of_grandchild(account(700, 5, 8))), sampled);
    let has_threads = ExitAccount { thread: None, ..account(700, 5, 3) };
    assert_eq!(peak(&of_grandchild(has_threads)), sampled);
    // It ran another program, whose peak is in no record.
    let mut run = Run::new();
    run.start(102, MAIN).execs(102).later(60).accounted(102, account(700, 5, 3)).over(102, 0);
    assert_eq!(summary_of(&run.end(), 102).memory.peak_quality, Quality::Sampled);
    // The connector lost events: another program may have run before.
    let mut run = Run::new();
    run.kernel_fork(102, MAIN).execs(102).later(60).kernel(0, What::Lost { dropped: 1 });
    run.accounted(102, account(700, 5, 3)).over(102, 0);
    assert_eq!(peak(summary_of(&run.end(), 102)), sampled);
    // It runs in memory that may be its parent's.
    let mut run = Run::new();
    run.kernel_fork(102, MAIN).execs(102).later(60).kernel_fork(103, 102);
    run.accounted(103, account(700, 5, 3)).over(103, 0);
    assert_eq!(peak(summary_of(&run.end(), 103)), (None, Quality::Unknown));
}

// Requirement: SEE-54, SEE-97
#[test]
fn teardown_of_accounted_children_is_not_their_parents() {
    let mut run = Run::new();
    run.kernel_fork(102, MAIN).execs(102).later(60);
    for pid in [103, 104] {
        run.kernel_fork(pid, 102).execs(pid).accounted(pid, account(10_000, 5, 3)).over(pid, 0);
    }
    // Its children's teardown took 7 ms each, and its own 1 ms.
    run.accounted(102, account(3000, 5, 3)).over(102, 0).reaped(MAIN, 102, 38_000).finalize(&[102, 103, 104]);
    let summaries = run.later(500).finalize(&[102, 103, 104]).end();
    let shell = summary_of(&summaries, 102).own_usage;
    assert_eq!((shell.cpu_us(), shell.quality, shell.unattributed_us), (3000, Quality::Exact, 15_000));
    assert_eq!(total_us(&summaries), 38_000);
}

// Requirement: SEE-97
#[test]
fn accounted_cpu_time_without_much_teardown_is_not_exact() {
    // It takes 10 ms to take 100 MiB down.
    assert_eq!(of_grandchild(account(700, 100, 99)).own_usage.quality, Quality::Sampled);
    assert_eq!(
        of_grandchild(account(2_000_000, 100, 99)).own_usage.quality,
        Quality::Exact,
        "that is half a percent"
    );
}

// Requirement: SEE-22
#[test]
fn account_without_figures_makes_none_zero() {
    let child = of_grandchild(ExitAccount::default());
    assert_eq!(child.own_usage.quality, Quality::Unknown);
    assert_eq!((child.memory.peak_rss_bytes, child.memory.peak_quality), (None, Quality::Unknown));
}

// Requirement: SEE-99
#[test]
fn accounted_peak_with_threads_counts_where_an_instrumented_parent_reaps() {
    let mut run = Run::new();
    let has_threads = ExitAccount { thread: None, ..account(700, 5, 3) };
    run.kernel_fork(102, MAIN).execs(102).later(60).accounted(102, has_threads).over(102, 0);
    let child = run.reaped_with(MAIN, 102, 0, 0, used(800, MIB_KIB)).end();
    let memory = summary_of(&child, 102).memory;
    assert_eq!((memory.peak_rss_bytes, memory.peak_quality), (Some(5 * MIB), Quality::Sampled));
}

// Requirement: SEE-22
#[test]
fn account_belongs_to_the_process_that_had_the_pid_then() {
    let mut run = Run::new();
    let at = |run: &Run| run.now_ns;
    let begun_ns = at(&run);
    run.kernel_fork(102, MAIN).execs(102).later(100);
    let first = run.id(102);
    assert_eq!(run.tree.accounted(102, begun_ns), Some(first));
    // Its last thread may have started later than it.
    assert_eq!(run.tree.accounted(102, at(&run)), Some(first));
    assert_eq!(
        (run.tree.accounted(102, begun_ns - 100 * MS), run.tree.accounted(103, begun_ns)),
        (None, None)
    );
    run.kernel(102, What::Exit { status: 0 });
    let ended_ns = at(&run);
    run.tree.observe_end(first, ended_ns, None);
    // The account of a later process, of which nothing is known yet.
    assert_eq!(run.tree.accounted(102, ended_ns + 1000 * MS), None);
    run.later(500).kernel_fork(102, MAIN);
    let second = run.id(102);
    assert_eq!(run.tree.accounted(102, begun_ns), Some(first));
    assert_eq!(run.tree.accounted(102, at(&run)), Some(second));
}

// Requirement: RAM-24
#[test]
fn peak_in_an_account_that_comes_after_the_end_counts_from_the_last_sample_on() {
    let mut run = Run::new();
    run.kernel_fork(102, MAIN).execs(102).later(60).sampled(102, 5_000, MIB, MIB);
    let id = run.id(102);
    run.kernel(102, What::Exit { status: 9 });
    run.tree.observe_end(id, run.now_ns, None);
    run.tree.finalize(run.now_ns, run.now_ns);
    run.tree.note_account(id, account(700, 50, 50));
    let now_ns = run.now_ns;
    let memory = run.tree.take_intervals(now_ns).into_iter().filter(|life| !life.is_process);
    let bytes: u64 = memory.map(|life| life.memory.added_bytes).sum();
    assert!(bytes >= 49 * MIB, "{bytes}");
}
