//! Memory and processes that lived for a part of the time between two samples.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::contribution::Contribution;
use super::process::{Image, Process};
use crate::model::ids::ProcessId;

/// A process, or the memory of one of its images, from one time to another.
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
    /// Begin, CLOCK_MONOTONIC nanoseconds: it was there by then.
    pub start_ns: u64,
    /// When it is most likely to have begun: means count from there. That is not after `start_ns`, or it is the end, for what
    /// lasted no known time.
    pub likely_start_ns: u64,
    /// End, CLOCK_MONOTONIC nanoseconds.
    pub end_ns: u64,
    /// The most that it added to footprints since its last sample.
    pub memory: Contribution,
    /// The process ended at this time or earlier, and others may have had its memory by then: it counts in `at_most` only.
    pub is_end_rough: bool,
    /// How much more may be private, as it was never read, bytes. `None`: all, since no sample saw the image.
    pub unread_bytes: Option<u64>,
    /// The largest RSS in that time, as far as known, bytes.
    pub rss_bytes: u64,
    /// When its CPU time was last counted.
    pub counted_at_ns: u64,
    /// CPU time since then, nanoseconds. Negative: more had been counted than it used.
    pub cpu_ns: i64,
    /// Threads, as far as known.
    pub threads: u64,
}

impl Process {
    /// Gives what a process that started since the last sample adds to the time until `now_ns`, CLOCK_MONOTONIC nanoseconds:
    /// itself, and its memory. `memory` is what it added to footprints at most, of which `unread_bytes` more may be private.
    /// `rss_bytes` is the largest RSS.
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

    /// Gives the time of its image from the last sample to `end_ns`, CLOCK_MONOTONIC nanoseconds, without memory.
    pub(super) fn image_interval(&self, end_ns: u64) -> LiveInterval {
        let start_ns = self.program.image_start_ns.max(self.observed.at_ns).min(end_ns);
        let process = self.process_interval(end_ns);
        let is_first = self.program.image_start_ns <= self.lifetime.start_ns;
        LiveInterval {
            is_process: false,
            unread_bytes: self.is_image_sampled().then_some(self.observed.unread_bytes),
            rss_bytes: self.last_image_peak().0.unwrap_or(0).max(self.observed.rss_bytes),
            start_ns,
            likely_start_ns: if is_first { process.likely_start_ns.min(start_ns) } else { start_ns },
            ..process
        }
    }

    /// Gives the time until its end of the memory that it had since its last sample. A sample that found it dead had a time before
    /// its end, as processes are read one after another. From that time on what it shared counts with others, and its own memory
    /// counts on. Where neither EXIT nor the connector dated its end, others may have had that by then. If the others died, too, what
    /// they shared was there all the same: what it may have shared counts in the upper bound.
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
        // Not until the same moment: both would count then.
        let before = (whole.start_ns < missing_ns).then(|| LiveInterval { end_ns: missing_ns - 1, ..whole });
        let after = [own, shared].into_iter().filter(|part| !part.memory.is_zero());
        before.into_iter().chain(after).collect()
    }

    /// Gives the CPU time that was not counted up to its end, as the last thing that it did: the kernel frees its memory after
    /// the EXIT record. `own_cpu_ns`: all that it used itself, nanoseconds. The rest is negative if what it was counted for
    /// turned out to be a child's. `None`: nothing is to be added, or it has not ended.
    pub(super) fn uncounted_interval(&self, own_cpu_ns: u64) -> Option<LiveInterval> {
        let end_ns = self.lifetime.end_ns?;
        let counted_ns = self.cpu.counted_cpu_ns;
        let cpu_ns = i64::try_from(i128::from(own_cpu_ns) - i128::from(counted_ns)).ok()?;
        if cpu_ns == 0 {
            return None;
        }
        // It used one core until its end.
        let counted_at_ns = end_ns.saturating_sub(cpu_ns.unsigned_abs()).max(self.lifetime.start_ns);
        let image = self.image_interval(end_ns);
        Some(LiveInterval { cpu_ns, counted_at_ns, start_ns: end_ns, likely_start_ns: end_ns, ..image })
    }

    /// Gives its time from the last sample to `end_ns`, CLOCK_MONOTONIC nanoseconds, without CPU time.
    pub(super) fn process_interval(&self, end_ns: u64) -> LiveInterval {
        LiveInterval {
            is_process: true,
            is_main: self.ids.is_main,
            id: self.ids.id,
            pid: self.ids.pid(),
            command: self.name.command.clone(),
            // The record of a later event can carry an earlier time.
            start_ns: self.lifetime.start_ns.max(self.observed.at_ns).min(end_ns),
            likely_start_ns: self.lifetime.likely_start_ns().max(self.observed.at_ns).min(end_ns),
            end_ns,
            memory: Contribution::default(),
            is_end_rough: false,
            unread_bytes: None,
            rss_bytes: 0,
            counted_at_ns: end_ns,
            cpu_ns: 0,
            threads: self.observed.threads.max(1),
        }
    }
}
