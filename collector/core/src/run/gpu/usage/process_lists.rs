//! When the driver's lists of the processes on a device were read, and since when each entry has its present memory.

use std::collections::{HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::reading_times::ReadingTimes;
use crate::run::gpu::policy::GpuPolicy;

/// The readings of the lists, and the entries of the latest one.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ProcessLists {
    /// The readings that gave the lists.
    pub read: ReadingTimes,
    /// The driver's answers: lists and refusals. The time after a refusal is no gap here, since it counts in the figure's own gap
    /// (`availability::Gap`).
    pub answers: ReadingTimes,
    /// The driver refused the lists at the latest answer.
    is_refused: bool,
    /// The times of the latest readings, CLOCK_MONOTONIC nanoseconds; ascending.
    #[serde(skip)]
    times: VecDeque<u64>,
    /// The entries of the latest reading, by pid.
    #[serde(skip)]
    entries: HashMap<u32, ListedEntry>,
}

/// An entry of a list: a process, and its GPU memory.
#[derive(Debug, Clone, Copy)]
struct ListedEntry {
    /// `None`: the driver does not report it.
    bytes: Option<u64>,
    /// Since when it has had these bytes, CLOCK_MONOTONIC nanoseconds.
    since_ns: u64,
    /// When it was read last, CLOCK_MONOTONIC nanoseconds.
    read_ns: u64,
}

impl ProcessLists {
    /// Notes that the driver refused the lists at `at_ns`, CLOCK_MONOTONIC nanoseconds. `most_unread_ns`: as in [`Self::add`].
    pub(super) fn add_refusal(&mut self, at_ns: u64, most_unread_ns: u64) {
        self.add_answer(at_ns, most_unread_ns);
        self.is_refused = true;
    }

    /// Notes that the lists were read at `at_ns`, CLOCK_MONOTONIC nanoseconds. If the last reading is longer ago than
    /// `most_unread_ns`, nanoseconds, all the time since then counts as unread.
    pub(super) fn add(&mut self, at_ns: u64, most_unread_ns: u64) {
        self.add_answer(at_ns, most_unread_ns);
        self.is_refused = false;
        self.read.add(at_ns, most_unread_ns);
        self.times.push_back(at_ns);
        let is_old = |at: &u64| at.saturating_add(GpuPolicy::TIMES_KEPT_NS) < at_ns;
        while self.times.front().is_some_and(is_old) {
            self.times.pop_front();
        }
    }

    /// Notes that the driver answered at `at_ns`, CLOCK_MONOTONIC nanoseconds. After a refusal, the time since is no gap: see
    /// [`Self::answers`]. `most_unread_ns`: as in [`Self::add`].
    fn add_answer(&mut self, at_ns: u64, most_unread_ns: u64) {
        if self.is_refused {
            self.answers.add_after_pause(at_ns);
        } else {
            self.answers.add(at_ns, most_unread_ns);
        }
    }

    /// Takes in a process that the reading at `at_ns` lists, with its GPU memory (`None`: unknown). Returns since when the
    /// driver has listed the pid with this memory, CLOCK_MONOTONIC nanoseconds: `at_ns` if the last reading did not.
    pub(super) fn add_entry(&mut self, at_ns: u64, pid: u32, bytes: Option<u64>) -> u64 {
        let entry = self.entries.entry(pid).or_insert(ListedEntry { bytes, since_ns: at_ns, read_ns: at_ns });
        let since_ns = if entry.bytes == bytes { entry.since_ns } else { at_ns };
        *entry = ListedEntry { bytes, since_ns, read_ns: at_ns };
        since_ns
    }

    /// Forgets the processes that the reading at `at_ns` did not list. All that it listed must have been added before.
    pub(super) fn forget_unlisted(&mut self, at_ns: u64) {
        self.entries.retain(|_, entry| entry.read_ns == at_ns);
    }

    /// Whether the lists were read between `from_ns` and `to_ns`, both included, CLOCK_MONOTONIC nanoseconds. Readings that
    /// are longer ago than `GpuPolicy::TIMES_KEPT_NS` are forgotten. Of those before the collector was replaced, the last one is known.
    pub(super) fn were_read_within(&self, from_ns: u64, to_ns: u64) -> bool {
        let next = self.times.partition_point(|at| *at < from_ns);
        let mut at_ns = self.times.get(next).into_iter().chain([&self.read.last_ns]);
        at_ns.any(|at| (from_ns..=to_ns).contains(at))
    }
}
