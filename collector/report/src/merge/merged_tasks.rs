//! The tasks of several reports: the heaviest of all, the others, and what belonged to none.

use std::cmp::Reverse;

use super::head::cut;
use crate::model::report::{MOST_TASKS, OTHER_TASKS, Report, TaskIo, TaskUsage, WORKFLOW};
use crate::model::sorting::Sorting;

/// The tasks so far.
#[derive(Debug, Default)]
pub(super) struct MergedTasks {
    heaviest: Vec<TaskUsage>,
    others: Option<TaskUsage>,
    /// What belonged to none. All of a report without tasks does.
    workflow: Option<TaskUsage>,
    /// The number that the next report's tasks begin with, so that each has its own.
    next: u32,
}

impl MergedTasks {
    /// Adds the tasks of a report of this node. Its command started `start_s` seconds after the first one; `None`: its time has
    /// nothing to do with that of the others.
    pub(super) fn add(&mut self, node: &str, report: &Report, start_s: Option<f64>) {
        if report.tasks.is_empty() {
            add_to(&mut self.workflow, 0, WORKFLOW, &all_of(report));
        }
        let first = self.next;
        for task in &report.tasks {
            let number = |id: u32| if id < 2 { id } else { id.saturating_add(first) };
            let moved = TaskUsage {
                id: number(task.id),
                parent: task.parent.map(number),
                name: cut(&task.name),
                why: task.why.as_deref().map(cut),
                start_s: Option::zip(start_s, task.start_s).map(|(start_s, after_s)| start_s + after_s),
                node: Some(node.to_owned()),
                ..task.clone()
            };
            self.next = self.next.max(moved.id);
            match task.kind {
                Some(_) => self.heaviest.push(moved),
                None if task.name == WORKFLOW => add_to(&mut self.workflow, 0, WORKFLOW, &moved),
                None => add_to(&mut self.others, 1, OTHER_TASKS, &moved),
            }
        }
        // With the tasks in them: so the tasks around one that stays do, too. These have lower numbers.
        let cpu_s = |task: &TaskUsage| task.with_nested.map_or(task.cpu_s, |all| all.cpu_s);
        self.heaviest.order_by_key(|task| (most_first(cpu_s(task)), task.id));
        for rest in self.heaviest.drain(self.heaviest.len().min(MOST_TASKS)..) {
            add_to(&mut self.others, 1, OTHER_TASKS, &rest);
        }
    }

    /// The tasks, most CPU time first, then the others, and what belonged to none. Empty: no report had tasks.
    pub(super) fn list(&self) -> Vec<TaskUsage> {
        if self.heaviest.is_empty() && self.others.is_none() {
            return Vec::new();
        }
        let mut heaviest = self.heaviest.clone();
        heaviest.order_by_key(|task| (most_first(task.cpu_s), task.id));
        heaviest.into_iter().chain(self.others.clone()).chain(self.workflow.clone()).collect()
    }
}

/// Sort key: the most CPU time first, unknown as 0. In whole microseconds, because f64 has no total order (Ord).
fn most_first(cpu_s: Option<f64>) -> Reverse<u64> {
    Reverse((cpu_s.unwrap_or(0.0) * 1e6) as u64)
}

/// What belonged to no task in a report that has none: all.
fn all_of(report: &Report) -> TaskUsage {
    let io = TaskIo { read_bytes: report.io.read_bytes, write_bytes: report.io.write_bytes };
    TaskUsage {
        tasks: None,
        processes: report.processes.total,
        starts: None,
        failed_starts: None,
        still_running: report.processes.still_running.unwrap_or(0),
        cpu_s: report.cpu_time.total_s,
        io,
        ..empty(0, WORKFLOW)
    }
}

/// An entry of sums, without any.
fn empty(id: u32, name: &str) -> TaskUsage {
    TaskUsage {
        id,
        name: name.to_owned(),
        tasks: Some(0),
        starts: Some(0),
        failed_starts: Some(0),
        cpu_s: Some(0.0),
        io: TaskIo { read_bytes: Some(0), write_bytes: Some(0) },
        ..TaskUsage::default()
    }
}

/// Adds an entry to sums: one is unknown if a part of it is. The largest RAM of several nodes at one time is not known.
fn add_to(sums: &mut Option<TaskUsage>, id: u32, name: &str, other: &TaskUsage) {
    let both = |a: Option<u64>, b: Option<u64>| Option::zip(a, b).map(|(a, b)| a.saturating_add(b));
    let sums = sums.get_or_insert_with(|| empty(id, name));
    sums.tasks = both(sums.tasks, if other.is_task() { Some(1) } else { other.tasks });
    sums.processes = sums.processes.saturating_add(other.processes);
    sums.starts = both(sums.starts, other.starts);
    sums.failed_starts = both(sums.failed_starts, other.failed_starts);
    sums.still_running = sums.still_running.saturating_add(other.still_running);
    sums.cpu_s = Option::zip(sums.cpu_s, other.cpu_s).map(|(a, b)| a + b);
    sums.io.read_bytes = both(sums.io.read_bytes, other.io.read_bytes);
    sums.io.write_bytes = both(sums.io.write_bytes, other.io.write_bytes);
}

#[cfg(test)]
mod tests {
    use gpu_track_core::fixtures;

    use super::*;

    // Requirement: TASK-4
    #[test]
    fn node_without_tasks_is_in_no_task_and_what_is_unknown_of_one_node_is_unknown() {
        let mut report = fixtures::full();
        let mut merged = MergedTasks::default();
        merged.add("n1", &report, Some(0.0));
        assert!(merged.list().is_empty());
        let of_all = (report.processes.total, report.cpu_time.total_s.unwrap());
        report.tasks = fixtures::tasks();
        let of_rest = report.tasks[2].clone();
        merged.add("n2", &report, Some(0.0));
        let list = merged.list();
        let rest = &list[2];
        assert_eq!((rest.id, rest.starts, rest.failed_starts, rest.tasks), (0, None, None, None));
        assert_eq!(rest.processes, of_all.0 + of_rest.processes);
        assert!((rest.cpu_s.unwrap() - of_all.1 - of_rest.cpu_s.unwrap()).abs() < 1e-9);
        report.tasks.clear();
        report.cpu_time.total_s = None;
        merged.add("n3", &report, Some(0.0));
        assert_eq!(merged.list()[2].cpu_s, None);
    }

    // Requirement: TASK-51
    #[test]
    fn others_say_how_many_they_are_and_a_task_around_a_listed_one_is_listed() {
        let mut report = fixtures::full();
        let [mut rule, job, rest] = <[TaskUsage; 3]>::try_from(fixtures::tasks()).unwrap();
        rule.cpu_s = Some(0.0);
        let jobs = (0..MOST_TASKS as u32).map(|at| TaskUsage { id: 4 + at, parent: None, ..job.clone() });
        report.tasks = jobs.collect();
        let others = TaskUsage { id: 1, name: OTHER_TASKS.into(), tasks: Some(40), ..rest.clone() };
        report.tasks.extend([rule, job, others, rest]);
        let mut merged = MergedTasks::default();
        for node in ["n1", "n2"] {
            merged.add(node, &report, None);
        }
        let list = merged.list();
        let ids: Vec<u32> = list.iter().map(|task| task.id).collect();
        assert!(list.iter().filter_map(|task| task.parent).all(|parent| ids.contains(&parent)));
        assert_eq!(
            (list.len(), list[MOST_TASKS].tasks),
            (MOST_TASKS + 2, Some(2 * 40 + MOST_TASKS as u64 + 4))
        );
    }
}
