//! Events of the process connector.

use super::*;

#[test]
fn records_and_connector_events_are_of_one_process() {
    let mut run = Run::new();
    run.kernel_fork(102, MAIN)
        .fork(102, MAIN, MIB_KIB)
        .execs(102)
        .start(102, MAIN)
        .exit(102, 5, 0)
        .over(102, 768);
    run.kernel_fork(103, MAIN).execs(103).start(103, MAIN).exit(103, 5, 0).over(103, 0);
    // The pid is used again.
    run.kernel_fork(102, MAIN).execs(102).start(102, MAIN).exit(102, 7, 0).over(102, 0);
    assert_eq!((run.tree.counts().created, run.tree.alive().len()), (4, 1));
    let summaries = run.end();
    let wall_ms: Vec<_> = summaries.iter().filter(|p| p.ids.pid() == 102).map(|p| p.wall_ns / MS).collect();
    assert_eq!(wall_ms.len(), 2);
    assert!(
        wall_ms.contains(&4) && wall_ms.contains(&3),
        "from the fork, not from the first record: {wall_ms:?}"
    );
    assert!(summaries.iter().all(|process| process.provenance.has_record));
}

// Requirement: SEE-53
#[test]
fn uninstrumented_tree_is_known_from_the_connector() {
    // A static shell (102) starts a static program (103), which starts a dynamic one (104).
    let mut run = Run::new();
    run.kernel_fork(102, MAIN)
        .execs(102)
        .sampled(102, 40_000, MIB, MIB)
        .kernel_fork(103, 102)
        .execs(103)
        .kernel_fork(104, 103)
        .execs(104)
        .start(104, 103);
    run.exit(104, 30, 0).over(104, 0).over(103, 9).over(102, 256).reaped(MAIN, 102, 100);
    let summaries = run.later(500).finalize(&[102, 103, 104]).end();
    assert_eq!(summaries.len(), 4);
    let (shell, program) = (summary_of(&summaries, 102), summary_of(&summaries, 103));
    assert_eq!(
        (shell.exit.code, program.exit.signal),
        (Some(0), Some(9)),
        "the status of REAPED, else the connector's"
    );
    assert_eq!((shell.own_usage.quality, program.own_usage.quality), (Quality::Sampled, Quality::Unknown));
    assert_eq!((shell.own_usage.cpu_us(), summary_of(&summaries, 104).own_usage.cpu_us()), (40, 30));
    assert_eq!(
        (shell.own_usage.unattributed_us, total_us(&summaries)),
        (30, 100),
        "the unknown part is no process's"
    );
    assert_eq!(
        (program.parent_pid, &*program.name.command, program.provenance.found_by),
        (Some(102), "(unseen)", Layer::Connector)
    );
    assert!(summaries.iter().all(|process| !process.provenance.joined));
}

#[test]
fn records_read_after_a_known_end_still_count() {
    let mut run = Run::new();
    run.start(102, MAIN);
    let id = run.id(102);
    run.tree.observe_end(id, run.now_ns + 1, Some(run.now_ns + 1));
    run.tree.note_status(id, 9);
    // A record that it wrote before its end is read after it.
    run.start(102, MAIN);
    let summaries = run.later(500).end();
    let ended = summary_of(&summaries, 102);
    assert_eq!((summaries.len(), ended.exit.signal), (2, Some(9)), "the first process and this one");
}

#[test]
fn exec_in_another_thread_cancels_the_first_threads_end() {
    let mut run = Run::new();
    run.kernel_fork(102, MAIN).execs(102).start(102, MAIN).kernel(102, What::Exit { status: 0 });
    run.execs(102).start(102, MAIN);
    assert_eq!((run.tree.counts().created, run.tree.alive().len()), (2, 2));
    assert!(ends(&run.tree).is_empty());
}

#[test]
fn killed_process_ended_when_killed_not_when_reaped() {
    let mut run = Run::new();
    run.kernel_fork(102, MAIN).fork(102, MAIN, MIB_KIB);
    let killed_ns = run.now_ns;
    run.kernel(102, What::Exit { status: libc::SIGKILL }).later(500);
    run.reaped_with(MAIN, 102, 0, libc::SIGKILL, used(10, 0));
    let summaries = run.end();
    let killed = summary_of(&summaries, 102);
    assert_eq!(killed.start_ns + killed.wall_ns, killed_ns);
}

// Requirement: HOST-51
#[test]
fn exit_without_status_has_none() {
    let mut run = Run::new();
    run.exit_with(MAIN, LAUNCHER, FLAG_IMAGE | FLAG_NO_STATUS, used(1, 0), used(0, 0));
    assert_eq!(summary_of(&run.end(), MAIN).exit, crate::model::report::Exit::default());
}

#[test]
fn connector_knows_the_parent_of_a_raw_clones_child() {
    // 102 was made by a raw clone, so its child names 101 as its parent.
    let mut run = Run::new();
    run.kernel_fork(102, MAIN).kernel_fork(103, 102).fork(103, MAIN, MIB_KIB);
    assert_eq!(run.tree.get(run.id(103)).unwrap().ancestry.parent, Parent::Known(run.id(102)));
}
