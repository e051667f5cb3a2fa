//! What a task used, as far as its processes were finalized and sampled.

use std::sync::Arc;

use gpu_track_abi::record::Usage;
use serde::{Deserialize, Serialize};

use super::tree::{ProcessSummary, Quality};
use crate::model::report::Exit;

/// What the processes of a task used. Those of nested tasks do not count, unless it says so.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct TaskTotals {
    /// How many have been finalized.
    pub(crate) processes: u64,
    /// How many of them still run.
    pub(crate) running: u64,
    /// What they used.
    pub(crate) usage: Usage,
    /// CPU time of their children that could not be attributed to a process, microseconds.
    pub(crate) unattributed_us: u64,
    /// The CPU time of at least one of them is known.
    pub(crate) is_cpu_known: bool,
    /// The I/O of at least one of them is exactly known.
    pub(crate) is_io_known: bool,
    /// How often a process began the task.
    pub(crate) starts: u64,
    /// How many of those processes failed.
    pub(crate) failed: u64,
    /// When the last process ended, in nested tasks, too, CLOCK_MONOTONIC nanoseconds.
    pub(crate) end_ns: u64,
    /// `end_ns` when it was last told to the sinks as ended; 0: it never was.
    pub(crate) told_end_ns: u64,
    /// The earliest start of the processes that were finalized since then, in nested tasks, too, CLOCK_MONOTONIC nanoseconds.
    pub(crate) begins_ns: Option<u64>,
    /// Largest RAM, bytes; 0: none was seen.
    pub(crate) ram_bytes: u64,
    /// Largest RAM together with the nested tasks, bytes.
    pub(crate) ram_with_nested_bytes: u64,
    /// The peak RSS of its only process, bytes, which is exact. `None`: it has several, or that one ran another program before it entered
    /// the task, or its peak is not known exactly.
    pub(crate) exact_ram_bytes: Option<u64>,
    /// Largest memory on GPUs, bytes. `None`: none was seen on a GPU whose driver reports memory.
    pub(crate) gpu_bytes: Option<u64>,
    /// The process that began the task and ended last.
    pub(crate) last: Option<EndOfTask>,
    /// The last process that a signal ended, of each signal.
    pub(crate) killed: Vec<EndOfTask>,
    /// The latest start of a process that did not begin the task, CLOCK_MONOTONIC nanoseconds.
    pub(crate) went_on_ns: u64,
}

/// A process whose end says how a task ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct EndOfTask {
    pub(crate) pid: u32,
    pub(crate) command: Arc<str>,
    pub(crate) exit: Exit,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub(crate) start_ns: u64,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub(crate) end_ns: u64,
}

impl EndOfTask {
    fn of(process: &ProcessSummary) -> Self {
        Self {
            pid: process.ids.pid(),
            command: Arc::clone(&process.name.command),
            exit: process.exit,
            start_ns: process.start_ns,
            end_ns: process.end_ns(),
        }
    }
}

impl TaskTotals {
    /// Their CPU time, microseconds.
    pub(crate) fn cpu_us(&self) -> u64 {
        self.usage.cpu_us().saturating_add(self.unattributed_us)
    }

    /// Its largest RAM, bytes; 0: unknown.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.exact_ram_bytes.unwrap_or(self.ram_bytes)
    }

    /// Whether a process of it, or of a task within it, was finalized. Tasks without one are those that turned out to be within others.
    pub(crate) fn has_had_process(&self) -> bool {
        self.end_ns > 0 || self.processes > 0
    }

    /// Adds a process of the task that was finalized. `gpu_bytes`: the peak of its GPU memory, if that is known.
    pub(super) fn add(&mut self, process: &ProcessSummary, gpu_bytes: Option<u64>) {
        self.processes += 1;
        self.running += u64::from(process.is_still_running);
        self.usage = self.usage.plus(&process.own_usage.usage);
        self.unattributed_us = self.unattributed_us.saturating_add(process.own_usage.unattributed_us);
        self.is_cpu_known |= process.own_usage.quality != Quality::Unknown;
        self.is_io_known |= process.own_usage.quality == Quality::Exact;
        let memory = &process.memory;
        // The process's own peaks can be those of a program before the task. Then only samples tell what was in the task.
        let is_of_task = !process.ids.ran_before_task;
        if is_of_task {
            self.raise_ram(memory.known_rss.own_bytes);
        }
        let is_exact = is_of_task && self.processes == 1 && memory.peak_quality == Quality::Exact;
        self.exact_ram_bytes = memory.peak_rss_bytes.filter(|_| is_exact);
        self.gpu_bytes = self.gpu_bytes.max(gpu_bytes);
        if let Some(signal) = process.exit.signal.filter(|signal| !is_helper_of_parallel(process, *signal)) {
            match self.killed.iter_mut().find(|killed| killed.exit.signal == Some(signal)) {
                Some(killed) if (killed.end_ns, killed.pid) > (process.end_ns(), process.ids.pid()) => {}
                Some(killed) => *killed = EndOfTask::of(process),
                None => self.killed.push(EndOfTask::of(process)),
            }
        }
    }

    /// Notes a process, which was finalized, as one that began the task.
    pub(super) fn add_start(&mut self, process: &ProcessSummary) {
        self.starts += 1;
        self.failed += u64::from(process.exit.is_failure());
        if self.last.as_ref().is_none_or(|last| last.end_ns <= process.end_ns()) {
            self.last = Some(EndOfTask::of(process));
        }
    }

    /// Notes a process of the task, which was finalized and did not begin it.
    pub(super) fn note_other(&mut self, process: &ProcessSummary) {
        self.went_on_ns = self.went_on_ns.max(process.start_ns);
    }

    /// Notes that the processes of the task held this much RAM together, bytes.
    pub(super) fn raise_ram(&mut self, bytes: u64) {
        self.ram_bytes = self.ram_bytes.max(bytes);
        self.ram_with_nested_bytes = self.ram_with_nested_bytes.max(bytes);
    }
}

/// GNU parallel kills a `sleep` of its own, which says nothing of a job.
fn is_helper_of_parallel(process: &ProcessSummary, signal: i32) -> bool {
    signal == libc::SIGKILL && &*process.name.command == "sleep"
}
