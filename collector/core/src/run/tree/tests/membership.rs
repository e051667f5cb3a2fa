//! Which processes are in the tree, and which records are about the same process.

use super::*;

#[test]
fn exit_of_a_vfork_child_ends_the_stale_process_of_its_pid() {
    let mut run = Run::new();
    run.start(102, MAIN).exit_with(102, MAIN, FLAG_BORROWED_MEMORY, used(7, 0), used(0, 0));
    assert_eq!((run.tree.counts().created, run.tree.alive().len()), (3, 1));
}

// Requirement: SEE-8
#[test]
fn pid_with_another_pidfd_inode_is_another_process() {
    let mut run = Run::new();
    run.start_as(102, MAIN, 7, MIB_KIB, "a").start_as(102, MAIN, 8, MIB_KIB, "b");
    assert_eq!((run.tree.counts().created, run.tree.alive().len()), (3, 2));
    // REAPED is about the oldest unreaped process of the pid.
    run.reaped(MAIN, 102, 5).reaped(MAIN, 102, 6);
    let summaries = run.end();
    let cpu = |name| summaries.iter().find(|p| &*p.name.command == name).map(|p| p.own_usage.cpu_us());
    assert_eq!((cpu("a"), cpu("b")), (Some(5), Some(6)));
}

// Requirement: HOST-56
#[test]
fn without_pidfs_fork_and_second_reaping_show_new_processes() {
    let mut run = Run::new();
    run.start(102, MAIN).fork(102, MAIN, MIB_KIB);
    assert_eq!((run.tree.counts().created, run.tree.alive().len()), (3, 2));
    // Two STARTs of one pid look like an exec; the second REAPED shows that there were two.
    run.start(103, MAIN).start(103, MAIN).reaped(MAIN, 103, 5).reaped(MAIN, 103, 6);
    assert_eq!(run.end().iter().filter(|process| process.ids.pid() == 103).count(), 2);
}

// Requirement: SEE-52
#[test]
fn uninstrumented_child_is_found_by_its_reaper() {
    let mut run = Run::new();
    run.reaped_with(MAIN, 102, 0, 9 << 8, used(5, 0));
    let summaries = run.end();
    let child = summary_of(&summaries, 102);
    assert_eq!(
        (child.provenance.found_by, child.provenance.has_record, child.parent_pid),
        (Layer::Wait, false, Some(MAIN))
    );
    assert_eq!(
        (child.exit.code, child.own_usage.cpu_us(), child.own_usage.quality),
        (Some(9), 5, Quality::Exact)
    );
    // The reaper is neither in the tree nor the launcher: the child is not in the tree.
    let mut run = Run::new();
    assert_eq!(run.reaped(555, 102, 5).tree.counts().created, 1);
}

#[test]
fn uninstrumented_parent_adopts_children_that_named_it() {
    let mut run = Run::new();
    run.start(103, 102).exit(103, 500, 0).reaped(MAIN, 102, 620);
    let summaries = run.finalize(&[102, 103]).tree.take_summaries();
    assert_eq!(
        (summary_of(&summaries, 103).provenance.joined, summary_of(&summaries, 103).own_usage.cpu_us()),
        (false, 500)
    );
    assert_eq!(summary_of(&summaries, 102).own_usage.cpu_us(), 120);
}

#[test]
fn parent_found_by_scan_adopts_children_that_named_it() {
    // A static program (102) starts a dynamic one at once, and a scan finds it a moment later.
    let mut run = Run::new();
    run.start(103, 102).scan(102, MAIN).exit(103, 500, 0).finalize(&[103]).later(500).finalize(&[103]);
    run.reaped(MAIN, 102, 620);
    let summaries = run.finalize(&[102, 103]).end();
    assert!(!summary_of(&summaries, 103).provenance.joined);
    assert_eq!(total_us(&summaries), 620);
}

// Requirement: SEE-6
#[test]
fn double_fork_daemon_is_a_descendant() {
    let mut run = Run::new();
    run.fork(102, MAIN, MIB_KIB)
        .fork(103, 102, MIB_KIB)
        .exit(102, 1, 0)
        .reaped(MAIN, 102, 1)
        .finalize(&[102]);
    run.start(103, LAUNCHER);
    let summaries = run.end();
    let daemon = summary_of(&summaries, 103);
    assert!(daemon.is_still_running && !daemon.provenance.joined && !daemon.ids.is_main);
}

#[test]
fn daemon_forked_before_its_parents_exit_is_a_descendant() {
    // The parent's _exit and the child's atfork handler race: EXIT may be in the ring before FORK.
    let mut run = Run::new();
    run.fork(102, MAIN, MIB_KIB).exit(102, 1, 0).fork(103, 102, MIB_KIB);
    let daemon = run.tree.get(run.id(103)).unwrap();
    assert_ne!(daemon.ancestry.parent, Parent::Unknown);
    assert!(!summary_of(&run.end(), 103).provenance.joined);
}

#[test]
fn process_without_a_known_parent_is_joined() {
    let mut run = Run::new();
    run.start(500, 400).exit(500, 5, 0);
    assert!(summary_of(&run.end(), 500).provenance.joined);
    assert_eq!(run.tree.counts().joined_unreaped, 1);
    // A process with a reaper in the tree belongs to it.
    let mut run = Run::new();
    run.start(500, 400).exit(500, 5, 0).reaped(LAUNCHER, 500, 5).end();
    assert_eq!(run.tree.counts().joined_unreaped, 0);
}

// Requirement: NODE-14
#[test]
fn processes_of_a_run_without_a_command_join_it_and_are_finalized_as_they_end() {
    let mut run = Run::new();
    run.tree = Tree::new(RunContext { has_main: false, ..context() });
    run.start(500, 400).start(501, 500).exit(501, 2000, 0).reaped(500, 501, 2000).exit(500, 1000, 2000);
    run.later(1000).finalize(&[500]).later(1000).finalize(&[500]);
    let summaries = run.tree.take_summaries();
    assert!(summary_of(&summaries, 500).provenance.joined && !summary_of(&summaries, 501).provenance.joined);
    assert!(!summaries.iter().any(|process| process.ids.is_main) && !run.tree.has_main());
    // The child's CPU time is the joined one's, which waited for it.
    assert_eq!(
        (run.tree.counts().joined_unreaped, run.tree.counts().joined_unreaped_cpu_us),
        (1, total_us(&summaries))
    );
}

#[test]
fn connector_forks_of_the_launcher_are_not_counted() {
    let mut run = Run::new();
    run.kernel_fork(700, LAUNCHER).execs(700).over(700, 9);
    assert_eq!(run.tree.counts().created, 1);
}

#[test]
fn launcher_report_makes_the_first_process_main() {
    let mut run = Run { tree: Tree::new(context()), now_ns: T0 + 5 * MS, pid_ns: HERE };
    run.tree.set_main(MAIN, T0 + MS, "static");
    run.later(9).start(102, MAIN).reaped(LAUNCHER, MAIN, 5);
    let summaries = run.end();
    let main = summary_of(&summaries, MAIN);
    assert!(main.ids.is_main && !main.provenance.joined && &*main.name.command == "static");
    assert_eq!(main.wall_ns, 14 * MS, "from the launcher's fork to its reaping");
    assert!(!summary_of(&summaries, 102).ids.is_main);
}

#[test]
fn main_reaped_before_the_launcher_report_is_one_process() {
    let mut run = Run { tree: Tree::new(context()), now_ns: T0 + 5 * MS, pid_ns: HERE };
    run.reaped(LAUNCHER, MAIN, 5).finalize(&[MAIN]).tree.set_main(MAIN, T0 + MS, "static");
    let summaries = run.end();
    assert_eq!((summaries.len(), summaries[0].ids.is_main), (1, true));
}

#[test]
fn late_reaped_record_is_of_the_finalized_process() {
    let mut run = Run::new();
    run.start(102, MAIN).exit(102, 5, 0).finalize(&[102]).later(200).finalize(&[102]).reaped(MAIN, 102, 6);
    assert_eq!(run.tree.counts().created, 2);
}

// Requirement: SEE-8
#[test]
fn pid_reused_much_later_is_another_process() {
    let mut run = Run::new();
    run.start(102, MAIN).exit(102, 5, 0).finalize(&[102]).later(200).finalize(&[102]);
    run.later(3_600_000).reaped(MAIN, 102, 6);
    assert_eq!(run.tree.counts().created, 3);
}

// Requirement: SEE-10
#[test]
fn failed_spawn_is_counted_and_has_no_figures() {
    let mut run = Run::new();
    run.record(MAIN, LAUNCHER, 0, Event::SpawnFailed { error: libc::ENOENT });
    assert_eq!((run.tree.counts().created, run.tree.counts().failed_spawns, run.end().len()), (2, 1, 1));
}

/// A static child of `MAIN` that /proc shows to have started between these times, milliseconds from now on.
fn found_started_between(run: &mut Run, pid: u32, from_ms: u64, until_ms: u64) -> ProcessId {
    let (key, parent) = (Key { pid_ns: HERE, pid }, run.id(MAIN));
    let earliest_start_ns = run.now_ns + from_ms * MS;
    let start_ns = run.now_ns + until_ms * MS;
    let seen_ns = start_ns;
    run.tree.found_in_proc(&ChildSeen {
        earliest_start_ns,
        seen_ns,
        ..ChildSeen::of_test(key, parent, start_ns)
    })
}

// Requirement: RAM-1, RAM-75
#[test]
fn child_of_a_rounded_start_is_there_from_its_latest_start_on() {
    let mut run = Run::new();
    let (now_ns, id) = (run.now_ns, found_started_between(&mut run, 102, 0, 10));
    // It has its pid from its earliest start on.
    let identity = run.tree.get(id).unwrap().identity();
    assert!(identity.can_be(0, now_ns) && !identity.can_be(0, now_ns + 31 * MS));
    assert!(run.tree.knows(Key { pid_ns: HERE, pid: 102 }, 0, now_ns));
    run.later(30).reaped(MAIN, 102, 8000);
    let lives = run.tree.take_intervals(u64::MAX);
    assert_eq!(lives.len(), 2);
    for life in lives {
        let spans = [life.start_ns, life.likely_start_ns, life.end_ns].map(|at_ns| (at_ns - now_ns) / MS);
        assert_eq!(spans, [10, 5, 30]);
        assert!(life.counted_at_ns == life.likely_start_ns || !life.is_process);
    }
    assert_eq!(summary_of(&run.end(), 102).wall_ns, 25 * MS);
}

// Requirement: RAM-1
#[test]
fn child_that_ended_before_its_latest_start_has_started_before() {
    let mut run = Run::new();
    let now_ns = run.now_ns;
    found_started_between(&mut run, 102, 0, 10);
    run.later(4).reaped(MAIN, 102, 8000);
    let spans = run.tree.take_intervals(u64::MAX).into_iter().map(|life| (life.start_ns, life.end_ns));
    assert_eq!(spans.collect::<Vec<_>>(), [(now_ns + 4 * MS, now_ns + 4 * MS); 2]);
    // A FORK record knows the start.
    let now_ns = run.now_ns;
    let id = found_started_between(&mut run, 103, 0, 10);
    run.later(3).fork(103, MAIN, 0);
    let lifetime = run.tree.get(id).unwrap().lifetime;
    assert_eq!((lifetime.start_ns, lifetime.earliest_start_ns), (now_ns + 3 * MS, now_ns + 3 * MS));
}
