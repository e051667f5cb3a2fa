//! What the processes of each task of a pipeline used. Which task a process is in, the tree knows ([`TaskTable`]).
//!
//! Each process counts in one task, the innermost, so the sums of all tasks and of the rest are those of the run. Beside that, a
//! task in which others began has its largest RAM together with them.
//!
//! The RAM of a task is the sum of what its processes add to the tree's footprint at a time. As for the tree, a process that lived
//! for a part of the time between two samples counts for exactly that time. A page that older processes outside the task map, such
//! as one of the C library, counts with those. So the sum is a lower bound, and the RSS of one process is another.

use gpu_track_abi::task::TaskKind;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use super::sampling::Sample;
use super::task_summary::TaskSummary;
use super::task_totals::TaskTotals;
use super::tree::task_table::TaskTable;
use super::tree::{LiveInterval, ProcessId, ProcessSummary, TaskId, Tree};

/// What the processes of the tasks used.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Tasks {
    /// By [`TaskId`].
    totals: Vec<TaskTotals>,
    /// The tasks of which the sinks do not know all figures.
    untold: FxHashSet<TaskId>,
}

/// What a set of processes held at a sample, and in the time before it.
#[derive(Debug, Default)]
struct SetMemory {
    /// At the sample, bytes.
    now_bytes: u64,
    /// At all times since the sample before, bytes.
    steady_bytes: u64,
    /// On GPUs, bytes.
    gpu_bytes: Option<u64>,
    /// Memory that was there for a part of that time: from, to (CLOCK_MONOTONIC nanoseconds), bytes.
    spans: Vec<(u64, u64, u64)>,
}

impl SetMemory {
    fn add_span(&mut self, interval: &LiveInterval) {
        // A process lived for a moment even if its start and end have the same time.
        let start_ns = interval.start_ns.min(interval.end_ns);
        let end_ns = interval.end_ns.max(start_ns + 1);
        self.spans.push((start_ns, end_ns, interval.memory.added_bytes));
    }

    /// The largest sum at any time until the sample, bytes. `from_ns`: the time of the sample before, CLOCK_MONOTONIC nanoseconds.
    /// What ended before that was reported late, and counts by itself.
    fn peak_bytes(&self, from_ns: u64) -> u64 {
        let (late, of_window): (Vec<_>, Vec<_>) = self.spans.iter().partition(|(_, end, _)| *end <= from_ns);
        let in_window = self.steady_bytes.saturating_add(largest_sum(&of_window, from_ns));
        self.now_bytes.max(in_window).max(largest_sum(&late, 0))
    }
}

/// The largest sum of the bytes of spans that have a moment in common, from `from_ns` on.
fn largest_sum(spans: &[&(u64, u64, u64)], from_ns: u64) -> u64 {
    // At one time, ends come first: a span that ends when another begins was not there together with that one.
    let mut steps: Vec<(u64, bool, u64)> = Vec::with_capacity(spans.len() * 2);
    for (start, end, bytes) in spans {
        steps.push((*start.max(&from_ns), true, *bytes));
        steps.push((*end, false, *bytes));
    }
    steps.sort_unstable();
    let (mut sum, mut largest) = (0_u64, 0);
    for (_, is_begin, bytes) in steps {
        sum = if is_begin { sum.saturating_add(bytes) } else { sum.saturating_sub(bytes) };
        largest = largest.max(sum);
    }
    largest
}

/// The memory of each task by itself, and of those with nested tasks together with these.
#[derive(Debug, Default)]
struct Sets {
    own: FxHashMap<TaskId, SetMemory>,
    with_nested: FxHashMap<TaskId, SetMemory>,
}

impl Sets {
    /// Changes the sets that a process of this task is in.
    fn change(&mut self, table: &TaskTable, task: TaskId, change: impl Fn(&mut SetMemory)) {
        change(self.own.entry(task).or_default());
        for (around, entry) in table.with_those_around(task) {
            if entry.has_nested {
                change(self.with_nested.entry(around).or_default());
            }
        }
    }
}

impl Tasks {
    /// What a task used. `None`: nothing of it is known.
    pub(crate) fn get(&self, id: TaskId) -> Option<&TaskTotals> {
        self.totals.get(id.0 as usize)
    }

    /// The totals of a task, to be changed; those of a new one are empty. The table bounds how many there are.
    fn totals_of(&mut self, id: TaskId) -> &mut TaskTotals {
        self.untold.insert(id);
        let index = id.0 as usize;
        if self.totals.len() <= index {
            self.totals.resize_with(index + 1, TaskTotals::default);
        }
        &mut self.totals[index]
    }

    /// Notes that a task has got another name.
    pub(super) fn note_named(&mut self, id: TaskId) {
        self.untold.insert(id);
    }

    /// Takes the tasks of which no process is left, and which have changed since they were last taken. `run_start_ns`: the start of the
    /// run, CLOCK_MONOTONIC nanoseconds.
    ///
    /// A task can go on later: a process with its mark is a new try of it. Then it is taken again, with the figures of all tries.
    pub(super) fn take_ended(&mut self, tree: &Tree, run_start_ns: u64) -> Vec<TaskSummary> {
        let mut live: FxHashSet<TaskId> = FxHashSet::default();
        for process in tree.unfinalized() {
            // Those around a task that is in the set are in it, too.
            tree.tasks.with_those_around(process.ids.task).all(|(id, _)| live.insert(id));
        }
        let mut ended: Vec<TaskId> = self.untold.extract_if(|id| !live.contains(id)).collect();
        ended.sort_unstable();
        let mut summaries = Vec::new();
        for id in ended {
            let Some(totals) = self.totals.get_mut(id.0 as usize) else { continue };
            summaries.extend(TaskSummary::new(&tree.tasks, id, totals, run_start_ns));
            (totals.told_end_ns, totals.begins_ns) = (totals.end_ns, None);
        }
        summaries
    }

    /// Forgets which tasks have changed, because no sink wants to know.
    pub(super) fn forget_changed(&mut self) {
        self.untold.clear();
    }

    /// Adds a process that was finalized to its task. `gpu_bytes`: the peak of its GPU memory, if that is known.
    pub(crate) fn add_finalized(
        &mut self,
        table: &TaskTable,
        process: &ProcessSummary,
        gpu_bytes: Option<u64>,
    ) {
        let (task, born_in) = (process.ids.task, process.ids.born_in);
        if task == TaskId::WORKFLOW {
            return;
        }
        self.totals_of(task).add(process, gpu_bytes);
        // OTHERS is not in the table, so the loops below do not reach it.
        if task == TaskId::OTHERS && born_in != task {
            self.totals_of(task).add_start(process);
        }
        for (around, _) in table.with_those_around(task) {
            let totals = self.totals_of(around);
            totals.end_ns = totals.end_ns.max(process.end_ns());
            totals.begins_ns = Some(totals.begins_ns.unwrap_or(u64::MAX).min(process.start_ns));
        }
        // The process began the tasks from its own outwards, up to the one that it was made in.
        let (mut has_begun, mut ran_script) = (true, process.ids.ran_script);
        for (around, entry) in table.with_those_around(task) {
            has_begun &= around != born_in;
            let is_try = match entry.kind {
                TaskKind::Nextflow => std::mem::take(&mut ran_script),
                _ => has_begun,
            };
            if is_try {
                self.totals_of(around).add_start(process);
            } else if around == task {
                self.totals_of(task).note_other(process);
            }
        }
    }

    /// Takes in what the processes of each task held at a sample, and since the one before. `gpu_bytes`: what a process holds on GPUs.
    pub(crate) fn add_sample(
        &mut self,
        tree: &Tree,
        sample: &Sample,
        gpu_bytes: impl Fn(ProcessId) -> Option<u64>,
    ) {
        if tree.tasks.is_empty() {
            self.totals_of(TaskId::WORKFLOW).raise_ram(sample.now.footprint_bytes);
            return;
        }
        let mut sets = Sets::default();
        for held in &sample.holders {
            let Some(process) = tree.get(held.id) else { continue };
            let on_gpus = gpu_bytes(held.id).filter(|bytes| *bytes > 0);
            sets.change(&tree.tasks, process.ids.task, |set| {
                set.now_bytes = set.now_bytes.saturating_add(held.contribution.added_bytes);
                set.steady_bytes = set.steady_bytes.saturating_add(held.steady_bytes.unwrap_or(0));
                if let Some(bytes) = on_gpus {
                    set.gpu_bytes = Some(set.gpu_bytes.unwrap_or(0).saturating_add(bytes));
                }
            });
        }
        let has_memory = |interval: &&LiveInterval| {
            !interval.is_process && !interval.is_end_rough && interval.memory.added_bytes > 0
        };
        for interval in sample.intervals.iter().filter(has_memory) {
            sets.change(&tree.tasks, interval.task, |set| set.add_span(interval));
        }
        for (task, set) in sets.own {
            let totals = self.totals_of(task);
            totals.raise_ram(set.peak_bytes(sample.from_ns));
            totals.gpu_bytes = totals.gpu_bytes.max(set.gpu_bytes);
        }
        for (task, set) in sets.with_nested {
            let totals = self.totals_of(task);
            totals.ram_with_nested_bytes = totals.ram_with_nested_bytes.max(set.peak_bytes(sample.from_ns));
        }
    }
}

#[cfg(test)]
mod tests {
    use gpu_track_abi::task::TaskKeys;

    use super::*;
    use crate::model::ids::Key;
    use crate::model::report::Exit;
    use crate::run::cause::tests::process;
    use crate::run::sampling::Held;
    use crate::run::tree::{ChildSeen, Contribution, Quality, RunContext};

    const OK: Exit = Exit { code: Some(0), signal: None };
    const KILLED: Exit = Exit { code: None, signal: Some(9) };

    /// A mark of this kind.
    fn mark(kind: TaskKind, hash: u32) -> TaskKeys {
        let mut keys = TaskKeys::NONE;
        keys.hashes[kind as usize] = hash;
        keys
    }

    /// A tree with a job of parallel, and a compile unit in it.
    fn tree() -> (Tree, TaskId, TaskId) {
        let mut tree = Tree::new(RunContext::of_test(1, 1, 0));
        let job = tree.tasks.enter_new(TaskId::WORKFLOW, &mark(TaskKind::Parallel, 1), 1);
        let unit = tree.tasks.enter_new(job, &mark(TaskKind::Compile, 1), 1);
        (tree, job, unit)
    }

    /// A process of a task, made by one of another task, which ended so.
    fn ended(pid: u32, task: TaskId, born_in: TaskId, end_s: u64, exit: Exit) -> ProcessSummary {
        let mut ended = process(pid, "sh", exit);
        (ended.ids.task, ended.ids.born_in) = (task, born_in);
        (ended.start_ns, ended.wall_ns) = (1_000_000_000, (end_s - 1) * 1_000_000_000);
        ended
    }

    // Requirement: TASK-4
    #[test]
    fn process_counts_in_its_innermost_task_and_begins_those_that_its_parent_lacks() {
        let (tree, job, unit) = tree();
        let mut tasks = Tasks::default();
        tasks.add_finalized(&tree.tasks, &ended(20, job, TaskId::WORKFLOW, 5, OK), None);
        tasks.add_finalized(&tree.tasks, &ended(21, job, job, 3, KILLED), Some(7));
        tasks.add_finalized(&tree.tasks, &ended(22, unit, job, 9, KILLED), None);
        tasks.add_finalized(&tree.tasks, &ended(23, TaskId::WORKFLOW, TaskId::WORKFLOW, 9, OK), None);
        let [of_job, of_unit] = [job, unit].map(|id| tasks.get(id).unwrap());
        assert_eq!((of_job.processes, of_job.starts, of_job.failed), (2, 1, 0));
        assert_eq!((of_job.usage.user_us, of_job.gpu_bytes), (4_000_000, Some(7)));
        assert_eq!((of_job.last.as_ref().unwrap().pid, of_job.killed[0].pid), (20, 21));
        assert_eq!(of_job.end_ns, 9_000_000_000, "the nested task ended later");
        assert_eq!((of_unit.processes, of_unit.starts, of_unit.failed), (1, 1, 1));
        assert!(of_unit.is_io_known);
        let (tree, job, _) = self::tree();
        let mut sampled = ended(24, job, TaskId::WORKFLOW, 5, OK);
        sampled.own_usage.quality = Quality::Sampled;
        let mut tasks = Tasks::default();
        tasks.add_finalized(&tree.tasks, &sampled, None);
        let of_job = tasks.get(job).unwrap();
        assert!(of_job.is_cpu_known && !of_job.is_io_known);
        assert!(tasks.get(TaskId::WORKFLOW).is_none_or(|rest| rest.processes == 0));
    }

    // Requirement: TASK-18
    #[test]
    fn try_of_nextflow_is_its_script_and_not_what_else_has_the_mark() {
        let mut tree = Tree::new(RunContext::of_test(1, 1, 0));
        let outer = tree.tasks.enter_new(TaskId::WORKFLOW, &mark(TaskKind::Nextflow, 1), 1);
        let task = tree.tasks.enter_new(outer, &mark(TaskKind::Nextflow, 2), 1);
        let mut tasks = Tasks::default();
        let mut add = |command: &str, born_in, end_s, exit| {
            let mut process = ended(20, task, born_in, end_s, exit);
            process.name.command = command.into();
            process.ids.ran_script = command == "bash .command.sh";
            tasks.add_finalized(&tree.tasks, &process, None);
        };
        add("rm", outer, 2, OK);
        // With a trace, `.command.run` has the mark, too, and runs the script.
        add("bash .command.run", outer, 5, KILLED);
        add("bash .command.sh", task, 4, KILLED);
        add("tee", outer, 6, OK);
        let totals = tasks.get(task).unwrap();
        assert_eq!((totals.processes, totals.starts, totals.failed), (4, 1, 1));
        assert_eq!(totals.last.as_ref().unwrap().exit, KILLED);
        assert_eq!(tasks.get(outer).unwrap().starts, 0, "the script is that of the task within it");
    }

    // Requirement: TASK-60
    #[test]
    fn daemon_counts_in_the_task_that_started_it() {
        let (tree, job, _) = tree();
        let mut tasks = Tasks::default();
        tasks.add_finalized(&tree.tasks, &ended(20, job, TaskId::WORKFLOW, 3, OK), None);
        let daemon = ProcessSummary { is_still_running: true, ..ended(21, job, job, 90, Exit::default()) };
        tasks.add_finalized(&tree.tasks, &daemon, None);
        let of_job = tasks.get(job).unwrap();
        assert_eq!((of_job.processes, of_job.running, of_job.end_ns), (2, 1, 90_000_000_000));
        assert_eq!((of_job.starts, of_job.last.as_ref().unwrap().exit), (1, OK));
    }

    // Requirement: TASK-58
    #[test]
    fn sinks_get_a_task_when_no_process_of_it_or_within_it_is_left_and_again_if_it_goes_on() {
        let (mut tree, job, unit) = tree();
        tree.set_main(10, 0, "parallel");
        let main = tree.alive()[0];
        let live = tree.found_in_proc(&ChildSeen::of_test(Key { pid_ns: 1, pid: 30 }, main, 1));
        let mut tasks = Tasks::default();
        tasks.add_finalized(&tree.tasks, &ended(20, unit, job, 5, KILLED), Some(7));
        let taken = |tasks: &mut Tasks, tree: &Tree| {
            let ended = tasks.take_ended(tree, 1).into_iter().map(|task| task.ended());
            ended
                .map(|task| (task.usage.id, task.usage.starts, task.began_ns, task.end_ns))
                .collect::<Vec<_>>()
        };
        const S: u64 = 1_000_000_000;
        tree.get_mut(live).unwrap().ids.task = unit;
        assert_eq!(taken(&mut tasks, &tree), []);
        // The task around it still has a process.
        tree.get_mut(live).unwrap().ids.task = job;
        assert_eq!(taken(&mut tasks, &tree), [(unit.0, Some(1), Some(1), 5 * S)]);
        tree.get_mut(live).unwrap().ids.task = TaskId::WORKFLOW;
        assert_eq!(taken(&mut tasks, &tree), [(job.0, Some(0), Some(1), 5 * S)]);
        let of_job = TaskSummary::new(&tree.tasks, job, tasks.get(job).unwrap(), 1).unwrap().ended().usage;
        assert_eq!((of_job.processes, of_job.cpu_s), (0, Some(0.0)), "all its processes are in the unit");
        assert_eq!(taken(&mut tasks, &tree), [], "nothing is new");
        // A second try, which began before the first had ended.
        tasks.add_finalized(&tree.tasks, &ended(21, job, TaskId::WORKFLOW, 7, OK), None);
        assert_eq!(taken(&mut tasks, &tree), [(job.0, Some(1), Some(5 * S + 1), 7 * S)]);
        tasks.note_named(unit);
        let named = &tasks.take_ended(&tree, 1)[0].ended();
        assert_eq!((named.usage.id, named.began_ns), (unit.0, None));
        let around: Vec<(u32, &str)> = named.around.iter().map(|one| (one.id, &*one.title)).collect();
        assert_eq!(around, [(job.0, "parallel ")]);
        assert_eq!(named.usage.why.as_deref(), Some("SIGKILL ended sh (pid 20)"));
        // A resumed collector takes what its state has not taken, and no task that had no process.
        let mut resumed: Tasks = postcard::from_bytes(&postcard::to_stdvec(&tasks).unwrap()).unwrap();
        assert_eq!(taken(&mut resumed, &tree), []);
        let unused = tree.tasks.enter_new(TaskId::WORKFLOW, &mark(TaskKind::Parallel, 9), 1);
        resumed.totals_of(unused).raise_ram(5);
        assert_eq!(taken(&mut resumed, &tree), []);
    }

    // Requirement: TASK-5
    #[test]
    fn task_that_is_tried_again_has_the_exit_of_its_last_process() {
        let (tree, job, _) = tree();
        let mut tasks = Tasks::default();
        tasks.add_finalized(&tree.tasks, &ended(21, job, TaskId::WORKFLOW, 8, OK), None);
        tasks.add_finalized(&tree.tasks, &ended(20, job, TaskId::WORKFLOW, 4, KILLED), None);
        let of_job = tasks.get(job).unwrap();
        assert_eq!((of_job.starts, of_job.failed, of_job.last.as_ref().unwrap().exit), (2, 1, OK));
    }

    // Requirement: TASK-6
    #[test]
    fn ram_of_a_task_is_its_largest_sum_at_a_time() {
        let (mut tree, job, unit) = tree();
        tree.set_main(10, 0, "parallel");
        let main = tree.alive()[0];
        for (pid, task) in [(20, job), (21, job), (22, unit)] {
            let id = tree.found_in_proc(&ChildSeen::of_test(Key { pid_ns: 1, pid }, main, 1));
            tree.get_mut(id).unwrap().ids.task = task;
        }
        let held = |id: &ProcessId| Held {
            id: *id,
            rss_bytes: 4500,
            contribution: Contribution::private(4000),
            steady_bytes: Some(3000),
            unread_bytes: 0,
            cpu_ns: 0,
        };
        let span = |start_ns, end_ns, added_bytes| {
            let memory = Contribution::private(added_bytes);
            let [_, image] = tree.get(main).unwrap().intervals_until(end_ns, memory, 0, 0);
            LiveInterval { task: job, start_ns, ..image }
        };
        let holders: Vec<Held> = tree.alive().iter().map(held).collect();
        let mut tasks = Tasks::default();
        let mut sample = Sample { holders, from_ns: 100, at_ns: 200, ..Sample::default() };
        tasks.add_sample(&tree, &sample, |_| Some(5));
        let of = |tasks: &Tasks, task| {
            let totals = tasks.get(task).unwrap();
            (totals.ram_bytes, totals.ram_with_nested_bytes, totals.gpu_bytes)
        };
        assert_eq!(of(&tasks, job), (8000, 12_000, Some(10)));
        assert_eq!(of(&tasks, unit), (4000, 4000, Some(5)));
        assert_eq!(of(&tasks, TaskId::WORKFLOW).0, 4000);
        // Two processes that lived at one time between the samples, one after them, and one that was reported late.
        sample.intervals =
            vec![span(110, 150, 2500), span(140, 160, 600), span(160, 170, 900), span(10, 20, 9000)];
        tasks.add_sample(&tree, &sample, |_| None);
        assert_eq!(of(&tasks, job), (9100, 12_100, Some(10)));
        assert_eq!(largest_sum(&[&(1, 5, 3), &(5, 6, 4), &(2, 3, 2)], 0), 5);
    }

    // Requirement: TASK-56
    #[test]
    fn peak_of_a_process_counts_unless_it_ran_another_program_before_the_task() {
        let (tree, job, unit) = tree();
        let mut tasks = Tasks::default();
        for (task, ran_before_task) in [(job, false), (unit, true)] {
            let mut process = ended(20, task, TaskId::WORKFLOW, 5, OK);
            process.ids.ran_before_task = ran_before_task;
            process.memory.known_rss.own_bytes = 9;
            tasks.add_finalized(&tree.tasks, &process, None);
        }
        let ram = [job, unit].map(|id| tasks.get(id).map(|of| (of.exact_ram_bytes, of.ram_bytes)).unwrap());
        assert_eq!(ram, [(Some(20 << 20), 9), (None, 0)]);
        assert_eq!(tasks.get(unit).unwrap().usage.user_us, 2_000_000, "CPU time can't be divided");
    }

    #[test]
    fn ram_before_the_first_task_is_the_rest() {
        let tree = Tree::new(RunContext::of_test(1, 1, 0));
        let mut sample = Sample::default();
        sample.now.footprint_bytes = 77;
        let mut tasks = Tasks::default();
        tasks.add_sample(&tree, &sample, |_| None);
        assert_eq!(tasks.get(TaskId::WORKFLOW).unwrap().ram_bytes, 77);
    }
}
