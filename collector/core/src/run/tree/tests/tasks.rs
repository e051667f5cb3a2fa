//! Tasks of a pipeline: which one a process is in, and from when on.

use gpu_track_abi::task::TaskKind;

use super::*;
use crate::run::tree::process::Ids;

impl Run {
    /// A program with this job of GNU parallel in its environment starts.
    fn start_in_job(&mut self, pid: u32, parent: u32, job: u32) -> &mut Self {
        self.start_in(pid, parent, (TaskKind::Parallel, job))
    }

    /// A program with this mark of a task starts.
    fn start_in(&mut self, pid: u32, parent: u32, (kind, hash): (TaskKind, u32)) -> &mut Self {
        let mut task = TaskKeys::NONE;
        task.hashes[kind as usize] = hash;
        let realtime_ns = self.now_ns + 6 * T0;
        let names = [0; NAME_BYTES];
        let rank = Rank::default();
        let event = Event::Start { realtime_ns, pidfd_inode: 0, max_rss_kib: MIB_KIB, names, rank, task };
        self.record(pid, parent, 0, event)
    }

    fn ids(&self, pid: u32) -> Ids {
        self.tree.get(self.id(pid)).unwrap().ids
    }
}

// Requirement: TASK-3
#[test]
fn process_stays_where_it_was_made_though_its_parent_has_entered_a_task() {
    let mut run = Run::new();
    run.kernel_fork(102, MAIN).kernel_fork(103, 102).start_in_job(102, MAIN, 7).fork(103, 102, MIB_KIB);
    assert_eq!((run.ids(102).task, run.ids(103).task), (TaskId::FIRST, TaskId::WORKFLOW));
    run.fork(104, 102, MIB_KIB);
    assert_eq!(run.ids(104).task, TaskId::FIRST);
}

// Requirement: TASK-3
#[test]
fn child_whose_parent_was_not_known_is_in_the_parents_task() {
    let mut run = Run::new();
    run.start_in_job(MAIN, LAUNCHER, 7).start(103, 102);
    assert_eq!(run.ids(103).task, TaskId::WORKFLOW);
    let main = run.id(MAIN);
    run.tree.found_in_proc(&ChildSeen::of_test(Key { pid_ns: HERE, pid: 102 }, main, run.now_ns));
    assert_eq!((run.ids(103).task, run.ids(103).born_in), (TaskId::FIRST, TaskId::FIRST));
}

// Requirement: TASK-18, TASK-53
#[test]
fn equal_commands_of_snakemake_are_one_task_only_if_the_job_before_has_failed() {
    let job = (TaskKind::Snakemake, 7);
    for is_finalized in [false, true] {
        let mut run = Run::new();
        let tasks = |run: &mut Run, pids: [u32; 2]| pids.map(|pid| run.ids(pid).task.0);
        run.start_in(102, MAIN, job).start_in(103, MAIN, job);
        assert_eq!(tasks(&mut run, [102, 103]), [2, 3], "the first still runs");
        let mut end = |pid, status| {
            run.reaped_with(MAIN, pid, 0, status, used(1, MIB_KIB));
            if is_finalized {
                run.later(20_000).finalize(&[pid]);
            }
        };
        end(102, 3 << 8);
        end(103, 0);
        run.start_in(104, MAIN, job);
        assert_eq!(run.ids(104).task.0, 4, "the last one with this command has succeeded");
        run.reaped_with(MAIN, 104, 0, 9, used(1, MIB_KIB)).start_in(105, MAIN, job);
        assert_eq!(run.ids(105).task.0, 4, "tried again after SIGKILL");
    }
}

// Requirement: TASK-1
#[test]
fn each_compiler_process_is_a_task() {
    let (mut run, unit) = (Run::new(), (TaskKind::Compile, 7));
    run.start_in(102, MAIN, unit)
        .reaped_with(MAIN, 102, 0, 1 << 8, used(1, MIB_KIB))
        .start_in(103, MAIN, unit);
    assert_eq!(run.ids(103).task.0, 3, "another conftest.c, or the x.c of another directory");
}

/// To look for such children at each START would let forged records cost the square of their number.
// Requirement: TASK-59
#[test]
fn child_whose_record_was_read_before_its_parents_stays_where_it_was() {
    let mut run = Run::new();
    run.start(103, 102).start_in_job(102, MAIN, 7);
    assert_eq!([102, 103].map(|pid| run.ids(pid).task), [TaskId::FIRST, TaskId::WORKFLOW]);
}

// Requirement: TASK-6
#[test]
fn task_begins_with_its_process_or_when_that_enters_it_after_another_program() {
    let mut run = Run::new();
    let start_ns = |run: &Run, task: u32| run.tree.tasks.get(TaskId(task)).unwrap().start_ns;
    let forked_ns = run.now_ns;
    run.fork(102, MAIN, MIB_KIB).later(30).start_in_job(102, MAIN, 7);
    assert!(!run.ids(102).ran_before_task, "a copy of the parent is no program");
    assert_eq!(start_ns(&run, TaskId::FIRST.0), forked_ns, "its CPU time is also that before the exec");
    run.start_in_job(102, MAIN, 7);
    assert!(!run.ids(102).ran_before_task, "an exec within the task");
    run.start_in_job(102, MAIN, 8);
    assert!(run.ids(102).ran_before_task);
    assert_eq!(start_ns(&run, TaskId::FIRST.0 + 1), run.now_ns - MS);
    run.fork(103, MAIN, MIB_KIB).later(5000).start_in_job(103, MAIN, 9);
    assert_eq!(start_ns(&run, TaskId::FIRST.0 + 2), run.now_ns - MS, "a shell did something else before");
}
