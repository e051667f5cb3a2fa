//! The report's tasks: the heaviest ones, the others, and what belongs to none.

use std::cmp::Reverse;

use gpu_track_abi::record::Usage;

use super::Inputs;
use crate::model::ids::TaskId;
use crate::model::quality::Quality;
use crate::model::report::{
    Coverage, Exit, MOST_TASKS, NestedTasks, OTHER_TASKS, TaskIo, TaskUsage, WORKFLOW,
};
use crate::model::sorting::Sorting;
use crate::model::tree_sample::IoBytes;
use crate::run::task_summary::{self, is_begun_once_a_try};
use crate::run::task_totals::TaskTotals;
use crate::run::tree::task_table::TaskEntry;

/// The parts of a run of which a task has its share.
struct OfRun<'a> {
    inputs: &'a Inputs<'a>,
    /// Block I/O is exactly known.
    is_io_known: bool,
}

/// Makes the entries of the tasks, most CPU time first, then that of the others and that of the rest. Empty: the run had no tasks.
pub(super) fn tasks(inputs: &Inputs, coverage: &Coverage, wall_s: f64, exit: Exit) -> Vec<TaskUsage> {
    let is_io_known = coverage.exact > 0 && inputs.config.attached.is_none();
    let of_run = OfRun { inputs, is_io_known };
    let (listed, others) = heaviest(of_run.entries());
    let too_many = inputs.run.tasks.get(TaskId::OTHERS).filter(|totals| totals.processes > 0);
    let of_others = others.iter().map(Entry::sums).chain(too_many.map(Sums::of_too_many)).reduce(Sums::plus);
    let Some(sum) = listed.iter().map(Entry::sums).chain(of_others).reduce(Sums::plus) else {
        return Vec::new();
    };
    let mut list: Vec<TaskUsage> = listed.iter().map(|one| of_run.usage(one)).collect();
    list.extend(of_others.map(|sums| of_run.others(&sums)));
    let workflow = of_run.workflow(&sum, coverage);
    let ram_bytes = inputs.run.tasks.get(TaskId::WORKFLOW).map_or(0, |rest| rest.ram_bytes);
    let is_ram_known = ram_bytes > 0;
    list.push(TaskUsage {
        start_s: Some(0.0),
        wall_s: Some(wall_s),
        peak_ram_bytes: is_ram_known.then_some(ram_bytes),
        peak_quality: if is_ram_known { Quality::Sampled } else { Quality::Unknown },
        exit,
        ..workflow
    });
    list
}

/// The tasks with an entry of their own, most CPU time first, and all others. A task has at least the CPU time and the RAM of those in
/// it, and a lower number. So the tasks around a listed one are listed, too.
fn heaviest(mut all: Vec<Entry>) -> (Vec<Entry>, Vec<Entry>) {
    all.order_by_key(|one| {
        (Reverse(one.with_nested().cpu_us()), Reverse(one.peak_with_nested_bytes()), one.id)
    });
    let others = all.split_off(all.len().min(MOST_TASKS));
    all.order_by_key(|one| (Reverse(one.totals.cpu_us()), Reverse(one.totals.ram_bytes), one.id));
    (all, others)
}

/// What several tasks used together.
#[derive(Debug, Clone, Copy)]
struct Sums {
    /// How many tasks. `None`: not known.
    tasks: Option<u64>,
    processes: u64,
    still_running: u64,
    /// `None`: what began is no task.
    starts: Option<u64>,
    /// How many starts were tries that failed. `None`: not all were tries, or that is not known.
    failed: Option<u64>,
    usage: Usage,
    unattributed_us: u64,
    is_cpu_known: bool,
    is_io_known: bool,
}

impl Sums {
    /// Those of the tasks that the run did not tell apart.
    fn of_too_many(totals: &TaskTotals) -> Self {
        Self {
            tasks: None,
            processes: totals.processes,
            still_running: totals.running,
            starts: Some(totals.starts),
            failed: None,
            usage: totals.usage,
            unattributed_us: totals.unattributed_us,
            is_cpu_known: totals.is_cpu_known,
            is_io_known: totals.is_io_known,
        }
    }

    fn plus(self, other: Self) -> Self {
        let both = |a: Option<u64>, b: Option<u64>| Option::zip(a, b).map(|(a, b)| a + b);
        Self {
            tasks: both(self.tasks, other.tasks),
            processes: self.processes + other.processes,
            still_running: self.still_running + other.still_running,
            starts: both(self.starts, other.starts),
            failed: both(self.failed, other.failed),
            usage: self.usage.plus(&other.usage),
            unattributed_us: self.unattributed_us.saturating_add(other.unattributed_us),
            is_cpu_known: self.is_cpu_known || other.is_cpu_known,
            is_io_known: self.is_io_known || other.is_io_known,
        }
    }

    fn cpu_us(&self) -> u64 {
        self.usage.cpu_us().saturating_add(self.unattributed_us)
    }

    fn cpu_s(&self) -> Option<f64> {
        self.is_cpu_known.then_some(self.cpu_us() as f64 / 1e6)
    }
}

/// A task, and what it used.
struct Entry<'a> {
    id: TaskId,
    task: &'a TaskEntry,
    totals: &'a TaskTotals,
    /// What the tasks within it used. `None`: there are none.
    nested: Option<Sums>,
    /// The largest RAM of one of these, with those in it, bytes.
    nested_peak_bytes: u64,
}

impl Entry<'_> {
    /// What it used itself.
    fn sums(&self) -> Sums {
        let failed = Some(self.totals.failed).filter(|_| is_begun_once_a_try(self.task.kind));
        Sums { tasks: Some(1), failed, ..Sums::of_too_many(self.totals) }
    }

    /// What it and those within it used.
    fn with_nested(&self) -> Sums {
        self.nested.map_or(self.sums(), |nested| nested.plus(self.sums()))
    }

    /// Its largest RAM together with those within it, bytes; 0: unknown. What one task held by itself, all held together.
    fn peak_with_nested_bytes(&self) -> u64 {
        self.totals.ram_with_nested_bytes.max(self.totals.peak_bytes()).max(self.nested_peak_bytes)
    }
}

impl<'a> OfRun<'a> {
    /// The tasks that had a process, and those around them.
    fn entries(&self) -> Vec<Entry<'a>> {
        let run = self.inputs.run;
        let mut all: Vec<Entry> = Vec::new();
        let totals_of = |id| run.tasks.get(id).filter(|totals| totals.has_had_process());
        let entry =
            |(id, task)| Some(Entry { id, task, totals: totals_of(id)?, nested: None, nested_peak_bytes: 0 });
        all.extend(run.tree.tasks.iter().filter_map(entry));
        // A nested task has a higher number than the one around it.
        for at in (0..all.len()).rev() {
            let Some(one) = all.get(at) else { continue };
            let (sums, peak_bytes) = (one.with_nested(), one.peak_with_nested_bytes());
            let around = all.binary_search_by_key(&one.task.parent, |other| other.id);
            if let Some(around) = around.ok().and_then(|at| all.get_mut(at)) {
                around.nested = Some(around.nested.map_or(sums, |nested| nested.plus(sums)));
                around.nested_peak_bytes = around.nested_peak_bytes.max(peak_bytes);
            }
        }
        all
    }

    /// Makes the entry of a task.
    fn usage(&self, one: &Entry) -> TaskUsage {
        let with_all = one.with_nested();
        TaskUsage {
            io: self.io(&one.sums()),
            with_nested: one.nested.map(|nested| NestedTasks {
                tasks: nested.tasks.unwrap_or(0),
                processes: with_all.processes,
                cpu_s: with_all.cpu_s(),
                peak_ram_bytes: Some(one.peak_with_nested_bytes()).filter(|bytes| *bytes > 0),
            }),
            ..task_summary::usage(one.id, one.task, one.totals, self.inputs.run.start_ns)
        }
    }

    /// Makes the entry of the tasks that have none of their own.
    fn others(&self, sums: &Sums) -> TaskUsage {
        TaskUsage { tasks: sums.tasks, ..self.rest(TaskId::OTHERS, sums) }
    }

    /// Makes the sums of what is in no task. `of_tasks`: those of all tasks.
    fn workflow(&self, of_tasks: &Sums, coverage: &Coverage) -> TaskUsage {
        let run = &self.inputs.run.totals;
        let sums = Sums {
            tasks: None,
            processes: coverage.processes.saturating_sub(of_tasks.processes),
            still_running: run.survivors.count.saturating_sub(of_tasks.still_running),
            starts: None,
            failed: None,
            usage: run.own_usage.minus(&of_tasks.usage),
            unattributed_us: run.unattributed_us.saturating_sub(of_tasks.unattributed_us),
            is_cpu_known: coverage.exact + coverage.sampled > 0,
            // `io` asks whether that of the run is known.
            is_io_known: true,
        };
        self.rest(TaskId::WORKFLOW, &sums)
    }

    /// Makes an entry that has only sums.
    fn rest(&self, id: TaskId, sums: &Sums) -> TaskUsage {
        TaskUsage {
            id: id.0,
            name: if id == TaskId::WORKFLOW { WORKFLOW } else { OTHER_TASKS }.to_owned(),
            processes: sums.processes,
            starts: sums.starts,
            failed_starts: sums.failed,
            still_running: sums.still_running,
            cpu_s: sums.cpu_s(),
            io: self.io(sums),
            ..TaskUsage::default()
        }
    }

    /// The I/O of these sums, as far as it is known.
    fn io(&self, sums: &Sums) -> TaskIo {
        let io = IoBytes::of_blocks(sums.usage.input_blocks, sums.usage.output_blocks);
        let if_known = |bytes: u64| (self.is_io_known && sums.is_io_known).then_some(bytes);
        TaskIo { read_bytes: if_known(io.read), write_bytes: if_known(io.written) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::build::nulls::report_of;
    use crate::run::RunState;
    use crate::run::random_trees::random_runs;

    /// Tasks of this kind, each begun in this one, which used so many microseconds. The first has the number 2.
    type Made<'a> = (&'a str, u32, u64);

    /// A run of these tasks. `too_many_us`: what those used that the run did not tell apart.
    fn run_of(tasks: &[Made], too_many_us: u64) -> (RunState, u64) {
        let (mut run, at_ns) = random_runs(1).next().unwrap();
        let entry = |(kind, parent, _): &Made| json!({"kind": kind, "name": "x", "parent": parent, "hashes": [0, 0, 0, 0, 0, 0, 0], "depth": 0, "has_nested": false, "start_ns": 0, "begun_by": 0, "has_failed": false});
        let entries: Vec<Value> = tasks.iter().map(entry).collect();
        let table = json!({"entries": entries, "ids": {}, "has_others": too_many_us > 0});
        run.tree.tasks = serde_json::from_value(table).unwrap();
        let last = json!({"pid": 7, "command": "sh", "exit": {"code": 3, "signal": null}, "start_ns": 1, "end_ns": 9});
        let totals = |user_us: u64| TaskTotals {
            processes: u64::from(user_us > 0),
            usage: Usage { user_us, ..Usage::default() },
            is_cpu_known: true,
            is_io_known: user_us != 70,
            starts: 3,
            failed: 2,
            end_ns: u64::from(user_us > 0) * 9,
            exact_ram_bytes: Some(user_us),
            ram_bytes: 1,
            ram_with_nested_bytes: 1,
            last: serde_json::from_value(last.clone()).unwrap(),
            ..TaskTotals::default()
        };
        let all = [0, too_many_us].into_iter().chain(tasks.iter().map(|(.., cpu_us)| *cpu_us));
        let all: Vec<TaskTotals> = all.map(totals).collect();
        run.tasks = serde_json::from_value(json!({"totals": all, "untold": []})).unwrap();
        (run, at_ns)
    }

    fn tasks_of(tasks: &[Made], too_many_us: u64) -> Vec<TaskUsage> {
        let (run, at_ns) = run_of(tasks, too_many_us);
        report_of(&run, at_ns).tasks
    }

    // Requirement: TASK-51
    #[test]
    fn others_are_one_entry_and_tasks_around_a_listed_one_are_listed() {
        let mut made: Vec<Made> = vec![("snakemake", 0, 1), ("parallel", 2, 5000)];
        made.extend((0..MOST_TASKS as u64 + 20).map(|at| ("parallel", 0, 100 + at)));
        for (too_many_us, count) in [(0, Some(22)), (900_000, None)] {
            let list = tasks_of(&made, too_many_us);
            let mut ids: Vec<u32> = list.iter().map(|task| task.id).collect();
            assert!(list.iter().filter_map(|task| task.parent).all(|parent| ids.contains(&parent)));
            assert_eq!((list[0].id, list[0].parent), (3, Some(2)), "most CPU time first");
            ids.sort_unstable();
            ids.dedup();
            assert_eq!((ids.len(), list.len()), (MOST_TASKS + 2, MOST_TASKS + 2), "each has its own number");
            let others = &list[MOST_TASKS];
            let of_others: u64 = (100..122).sum::<u64>() + too_many_us;
            assert_eq!((others.id, others.tasks, others.cpu_s), (1, count, Some(of_others as f64 / 1e6)));
        }
    }

    // Requirement: TASK-6
    #[test]
    fn ram_with_nested_tasks_is_at_least_that_of_each() {
        let list = tasks_of(&[("nextflow", 0, 70), ("parallel", 2, 900), ("compile", 3, 80)], 0);
        let nested = |task: &TaskUsage| (task.id, task.with_nested.and_then(|all| all.peak_ram_bytes));
        assert_eq!(
            list[..3].iter().map(nested).collect::<Vec<_>>(),
            [(3, Some(900)), (4, None), (2, Some(900))]
        );
    }

    // Requirement: TASK-4
    #[test]
    fn io_of_a_task_without_an_exact_process_is_unknown() {
        let list = tasks_of(&[("nextflow", 0, 70), ("parallel", 2, 900)], 0);
        let is_known = |task: &TaskUsage| (task.id, task.io.write_bytes.is_some());
        assert_eq!(list.iter().map(is_known).collect::<Vec<_>>(), [(3, true), (2, false), (0, true)]);
    }

    // Requirement: TASK-5, TASK-52
    #[test]
    fn processes_of_a_test_or_a_variable_are_no_tries() {
        for (kind, failed) in
            [("snakemake", Some(2)), ("slurm_step", Some(2)), ("pytest", None), ("env", None)]
        {
            let task = &tasks_of(&[(kind, 0, 1)], 0)[0];
            assert_eq!((task.starts, task.failed_starts), (Some(3), failed), "{kind}");
            assert_eq!((task.exit.code.is_some(), task.why.is_some()), (failed.is_some(), failed.is_some()));
        }
        let mut made = vec![("parallel", 0, 9); MOST_TASKS];
        made.extend([("parallel", 0, 2), ("env", 0, 1)]);
        assert_eq!(tasks_of(&made, 0)[MOST_TASKS].failed_starts, None, "a part is unknown");
        made.pop();
        assert_eq!(tasks_of(&made, 0)[MOST_TASKS].failed_starts, Some(2));
    }
}
