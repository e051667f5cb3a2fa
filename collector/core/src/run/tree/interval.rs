//! Parts of the time between two samples in which a process lived, or one of its images had memory.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::contribution::Contribution;
use super::process::{Image, Process};
use crate::model::ids::{ProcessId, TaskId};

/// A span of time in which a process lived, or in which one of its images had memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveInterval {
    /// It counts as a process and has no memory; else it is the memory of an image.
    pub is_process: bool,
    /// It is the command's first process.
    pub is_main: bool,
    /// The process.
    pub id: ProcessId,
    /// Its pid.
    pub pid: u32,
    /// Its command name.
    pub command: Arc<str>,
    /// The innermost task that it is in.
    pub task: TaskId,
    /// Begin, CLOCK_MONOTONIC nanoseconds: it was there by then.
    pub start_ns: u64,
    /// When it most likely began, CLOCK_MONOTONIC nanoseconds: time-weighted means count from there. It is not after `start_ns`,
    /// or it is `end_ns`: memory that was there for an unknown time is in no mean.
    pub likely_start_ns: u64,
    /// End, CLOCK_MONOTONIC nanoseconds.
    pub end_ns: u64,
    /// The most that it added to footprints since its last sample.
    pub memory: Contribution,
    /// The process ended by `end_ns`, perhaps earlier, and others may have had its memory by then. So the interval counts only in
    /// the upper bound of the RAM (`at_most`).
    pub is_end_rough: bool,
    /// How much more may be private, bytes: how the process shares its memory was never read. `None`: all of it, since no sample
    /// saw the image.
    pub unread_bytes: Option<u64>,
    /// The largest RSS in that time, as far as known, bytes.
    pub rss_bytes: u64,
    /// When its CPU time was last counted, CLOCK_MONOTONIC nanoseconds.
    pub counted_at_ns: u64,
    /// CPU time since then, nanoseconds. Negative: more had been counted than it used.
    pub cpu_ns: i64,
    /// Threads at its last sample; 1 if there was none.
    pub threads: u64,
}

impl Process {
    /// Two intervals from its last sample, or else from its start, until `now_ns`, CLOCK_MONOTONIC nanoseconds: the process
    /// itself, and its memory, which counts from the start of its image only. `memory` is the most that it added to footprints in
    /// that time. Beyond it, `unread_bytes` may be private. `rss_bytes` is its largest RSS.
    pub(in crate::run) fn intervals_until(
        &self,
        now_ns: u64,
        memory: Contribution,
        unread_bytes: u64,
        rss_bytes: u64,
    ) -> [LiveInterval; 2] {
        let unread_bytes = Some(unread_bytes);
        let image = LiveInterval { memory, unread_bytes, rss_bytes, ..self.image_interval(now_ns) };
        [self.process_interval(now_ns), image]
    }

    /// The interval of its image from the last sample, or else from the image's start, to `end_ns`, CLOCK_MONOTONIC
    /// nanoseconds. Its memory is left at 0.
    pub(super) fn image_interval(&self, end_ns: u64) -> LiveInterval {
        let start_ns = self.program.image_start_ns.max(self.observed.at_ns).min(end_ns);
        let process = self.process_interval(end_ns);
        // The first image began when the process did: perhaps before `lifetime.start_ns`, at which it was there already.
        let is_first = self.program.image_start_ns <= self.lifetime.start_ns;
        // Where the image's peak is unknown, or less than the sample saw, the RSS of the sample counts.
        let rss_bytes = self.last_image_peak().0.unwrap_or(0).max(self.observed.rss_bytes);
        LiveInterval {
            is_process: false,
            unread_bytes: self.is_image_sampled().then_some(self.observed.unread_bytes),
            rss_bytes,
            start_ns,
            likely_start_ns: if is_first { process.likely_start_ns.min(start_ns) } else { start_ns },
            ..process
        }
    }

    /// Intervals until its end (`end_ns`, CLOCK_MONOTONIC nanoseconds) of the `memory` that it had since its last sample.
    ///
    /// Mostly that is one interval. But a sample reads one process after another, so a sample that found this one dead can have a time
    /// (`missing_ns`) before its end. From then on, the sample counts the memory that it shared with the others that were read. So the
    /// rest of its time is divided in two. What only it mapped counts on. What it may have shared counts in the upper bound alone, as
    /// the others may have died, too. If neither EXIT nor the connector dated the end, its own memory may have been another process's
    /// by then. So that also counts in the upper bound alone.
    pub(super) fn memory_intervals(&self, end_ns: u64, memory: Contribution) -> Vec<LiveInterval> {
        let whole = LiveInterval { memory, ..self.image_interval(end_ns) };
        let Some(missing_ns) = self.lifetime.missing_ns.filter(|missing_ns| *missing_ns < end_ns) else {
            return vec![whole];
        };
        // A fork child that no sample saw may have pages of files that its parent has, up to its parent's size.
        let files_bytes = match self.program.image {
            Image::Forked { rss_at_fork_bytes } if !self.is_image_sampled() => rss_at_fork_bytes,
            _ => 0,
        };
        let own = LiveInterval {
            memory: Contribution::private(memory.private_bytes.saturating_sub(files_bytes)),
            is_end_rough: self.end.exit.is_none() && self.end.kernel_exit.is_none(),
            start_ns: whole.start_ns.max(missing_ns),
            likely_start_ns: whole.likely_start_ns.max(missing_ns),
            ..whole.clone()
        };
        let shared = LiveInterval { memory: memory.minus(own.memory), is_end_rough: true, ..own.clone() };
        // The next sample's time begins at `missing_ns`. An interval that ended right then would count in it, too, beside `own`.
        let before = (whole.start_ns < missing_ns).then(|| LiveInterval { end_ns: missing_ns - 1, ..whole });
        let after = [own, shared].into_iter().filter(|part| !part.memory.is_zero());
        before.into_iter().chain(after).collect()
    }

    /// An interval with the CPU time that was not counted by its end, and no memory. `own_cpu_ns`: all CPU time that it used
    /// itself, nanoseconds. The uncounted time counts just before the end, since the kernel frees the memory then, after EXIT.
    /// It is negative if time that was counted for this process turned out to be a child's. `None`: there is none, or the
    /// process has not ended.
    pub(super) fn uncounted_interval(&self, own_cpu_ns: u64) -> Option<LiveInterval> {
        let end_ns = self.lifetime.end_ns?;
        let counted_ns = self.cpu.counted_cpu_ns;
        let cpu_ns = i64::try_from(i128::from(own_cpu_ns) - i128::from(counted_ns)).ok()?;
        if cpu_ns == 0 {
            return None;
        }
        // It is taken to have used one core all that time.
        let counted_at_ns = end_ns.saturating_sub(cpu_ns.unsigned_abs()).max(self.lifetime.start_ns);
        let image = self.image_interval(end_ns);
        Some(LiveInterval { cpu_ns, counted_at_ns, start_ns: end_ns, likely_start_ns: end_ns, ..image })
    }

    /// The interval of the process itself from the last sample, or else from its start, to `end_ns`, CLOCK_MONOTONIC
    /// nanoseconds. Its CPU time is left at 0.
    pub(super) fn process_interval(&self, end_ns: u64) -> LiveInterval {
        LiveInterval {
            is_process: true,
            is_main: self.ids.is_main,
            id: self.ids.id,
            pid: self.ids.pid(),
            command: self.name.command.clone(),
            task: self.ids.task,
            // A record can carry an earlier time than one that was applied before it, so `end_ns` can be before the start.
            start_ns: self.lifetime.start_ns.max(self.observed.at_ns).min(end_ns),
            likely_start_ns: self.lifetime.likely_start_ns().max(self.observed.at_ns).min(end_ns),
            end_ns,
            memory: Contribution::default(),
            is_end_rough: false,
            unread_bytes: None,
            rss_bytes: 0,
            counted_at_ns: end_ns,
            cpu_ns: 0,
            // A process that no sample saw has one thread at least.
            threads: self.observed.threads.max(1),
        }
    }
}
