//! What a task used, as the report and the sinks have it.

use std::sync::Arc;

use gpu_track_abi::task::TaskKind;
use serde::{Deserialize, Serialize};

use super::task_totals::{EndOfTask, TaskTotals};
use super::tree::task_table::{TaskEntry, TaskTable};
use super::tree::{Quality, TaskId};
use crate::model::ended_task::{EndedTask, TaskAround};
use crate::model::report::{Exit, TaskIo, TaskUsage};
use crate::model::signal::signal_name;
use crate::model::tree_sample::IoBytes;

/// A task of which no process is left, for the sinks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TaskSummary {
    id: TaskId,
    task: TaskEntry,
    totals: TaskTotals,
    /// The start of the run, CLOCK_MONOTONIC nanoseconds.
    run_start_ns: u64,
    began_ns: Option<u64>,
    /// The tasks around it, innermost first.
    around: Vec<(TaskId, TaskKind, Arc<str>)>,
}

impl TaskSummary {
    /// Makes the summary of a task. `None`: it has had no process. `run_start_ns`: the start of the run, CLOCK_MONOTONIC nanoseconds.
    pub(super) fn new(table: &TaskTable, id: TaskId, totals: &TaskTotals, run_start_ns: u64) -> Option<Self> {
        let task = table.get(id).filter(|_| totals.has_had_process())?;
        let around = table.with_those_around(task.parent);
        let around = around.map(|(id, task)| (id, task.kind, Arc::clone(&task.name))).collect();
        let began_ns = totals.begins_ns.map(|first_ns| match totals.told_end_ns {
            // A process can have started as another program, before it entered the task.
            0 => task.start_ns,
            before_ns => first_ns.max(before_ns.saturating_add(1)),
        });
        Some(Self { id, task: task.clone(), totals: totals.clone(), run_start_ns, began_ns, around })
    }

    /// The task as sinks write it.
    pub fn ended(&self) -> EndedTask {
        let Self { id, task, totals, run_start_ns, began_ns, around } = self;
        let usage = usage(*id, task, totals, *run_start_ns);
        let around = around
            .iter()
            .map(|(id, kind, name)| TaskAround { id: id.0, title: TaskUsage::title_of(*kind, name) });
        let around = around.collect();
        EndedTask { start_ns: task.start_ns, end_ns: totals.end_ns, usage, began_ns: *began_ns, around }
    }
}

/// Makes the entry of a task, without those within it. `run_start_ns`: the start of the run, CLOCK_MONOTONIC nanoseconds.
pub(crate) fn usage(id: TaskId, task: &TaskEntry, totals: &TaskTotals, run_start_ns: u64) -> TaskUsage {
    let peak_bytes = totals.peak_bytes();
    let peak_quality = match totals.exact_ram_bytes {
        Some(_) => Quality::Exact,
        None if peak_bytes > 0 => Quality::Sampled,
        None => Quality::Unknown,
    };
    let has_tries = is_begun_once_a_try(task.kind);
    let last = totals.last.as_ref().filter(|_| has_tries);
    let io = IoBytes::of_blocks(totals.usage.input_blocks, totals.usage.output_blocks);
    TaskUsage {
        id: id.0,
        kind: Some(task.kind),
        name: task.name.to_string(),
        parent: Some(task.parent.0).filter(|_| task.parent != TaskId::WORKFLOW),
        start_s: Some(task.start_ns.saturating_sub(run_start_ns) as f64 / 1e9),
        wall_s: Some(totals.end_ns.saturating_sub(task.start_ns) as f64 / 1e9),
        processes: totals.processes,
        starts: Some(totals.starts),
        failed_starts: Some(totals.failed).filter(|_| has_tries),
        still_running: totals.running,
        // All its processes can be in tasks within it.
        cpu_s: (totals.is_cpu_known || totals.processes == 0).then_some(totals.cpu_us() as f64 / 1e6),
        peak_ram_bytes: Some(peak_bytes).filter(|bytes| *bytes > 0),
        peak_quality,
        gpu_ram_bytes: totals.gpu_bytes,
        io: TaskIo {
            read_bytes: totals.is_io_known.then_some(io.read),
            write_bytes: totals.is_io_known.then_some(io.written),
        },
        exit: last.map(|last| last.exit).unwrap_or_default(),
        why: last.and_then(|last| why(last, totals)),
        ..TaskUsage::default()
    }
}

/// Whether a process that begins a task of this kind is one try of the task. A test of pytest is no process, and a variable can be set
/// for each of several programs: any process with such a mark begins the task if its parent lacks the mark.
pub(crate) fn is_begun_once_a_try(kind: TaskKind) -> bool {
    !matches!(kind, TaskKind::Pytest | TaskKind::Env)
}

/// Why a task failed, by the end of its last try, and by a process of it that a signal ended. `None`: it did not fail, or its end is not
/// known.
///
/// The process is named if the task's exit code is that of its signal, as shells have it. It is also named if no process of the task began
/// after its end.
fn why(last: &EndOfTask, totals: &TaskTotals) -> Option<String> {
    let by_signal = |end: &EndOfTask| {
        let signal = signal_name(end.exit.signal?);
        Some(format!("{signal} ended {} (pid {})", end.command, end.pid))
    };
    match last.exit {
        Exit { signal: Some(_), .. } => by_signal(last),
        Exit { code: Some(code), .. } if code != 0 => {
            let of_try = || totals.killed.iter().filter(|killed| killed.end_ns >= last.start_ns);
            let by_code = of_try().find(|killed| killed.exit.signal == Some(code - 128));
            let latest = of_try().max_by_key(|killed| killed.end_ns);
            let killed = by_code.or(latest.filter(|killed| killed.end_ns >= totals.went_on_ns));
            Some(match killed.and_then(by_signal) {
                Some(killed) => format!("exit code {code}, after {killed}"),
                None => format!("exit code {code}"),
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: TASK-5
    #[test]
    fn process_that_a_signal_ended_is_the_reason_if_nothing_went_on_or_the_code_is_that_of_the_signal() {
        let end = |(code, signal), start_ns, end_ns| EndOfTask {
            pid: 7,
            command: "sort".into(),
            exit: Exit { code, signal },
            start_ns,
            end_ns,
        };
        let killed = vec![end((None, Some(9)), 30, 50), end((None, Some(13)), 30, 45)];
        let of = |code, start_ns, went_on_ns| {
            let totals = TaskTotals { killed: killed.clone(), went_on_ns, ..TaskTotals::default() };
            why(&end((Some(code), None), start_ns, 90), &totals).unwrap()
        };
        let (alone, after) = ("exit code 3", ", after SIGKILL ended sort (pid 7)");
        assert_eq!(of(3, 20, 40), format!("{alone}{after}"));
        assert_eq!(of(3, 20, 60), alone, "the job went on");
        assert_eq!(of(137, 20, 60), format!("exit code 137{after}"));
        assert_eq!(of(3, 60, 40), alone, "that was the try before");
        assert_eq!(of(141, 20, 60), "exit code 141, after SIGPIPE ended sort (pid 7)");
    }
}
