//! When the driver's lists of the processes on a device were read, and since when each entry is as it is.

use std::collections::{HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::run::gpu::policy::POLICY;

/// The readings of the lists, and the entries of the latest one.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ProcessLists {
    /// How often they were read.
    pub count: u64,
    /// Longest time between two readings, nanoseconds.
    pub longest_ns: u64,
    /// Sum of the times between readings that were too far apart, nanoseconds.
    unread_ns: u64,
    /// When they were read first, CLOCK_MONOTONIC nanoseconds; 0: never.
    first_ns: u64,
    /// When they were read last, CLOCK_MONOTONIC nanoseconds; 0: never.
    last_ns: u64,
    /// The times of the latest readings, CLOCK_MONOTONIC nanoseconds; ascending.
    #[serde(skip)]
    times: VecDeque<u64>,
    /// The entries of the latest reading, by pid.
    #[serde(skip)]
    entries: HashMap<u32, Entry>,
}

/// An entry of a list: a process, and its GPU memory.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// `None`: the driver does not report it.
    bytes: Option<u64>,
    /// Since when it has had these bytes, CLOCK_MONOTONIC nanoseconds.
    since_ns: u64,
    /// When it was read last, CLOCK_MONOTONIC nanoseconds.
    read_ns: u64,
}

impl ProcessLists {
    /// Notes that the lists were read at `at_ns`, CLOCK_MONOTONIC nanoseconds. If the last reading is longer ago than
    /// `most_unread_ns`, nanoseconds, all the time since then counts as unread.
    pub(super) fn add(&mut self, at_ns: u64, most_unread_ns: u64) {
        if self.count == 0 {
            self.first_ns = at_ns;
        } else {
            let gap_ns = at_ns.saturating_sub(self.last_ns);
            self.longest_ns = self.longest_ns.max(gap_ns);
            if gap_ns > most_unread_ns {
                self.unread_ns += gap_ns;
            }
        }
        self.count += 1;
        self.last_ns = at_ns;
        self.times.push_back(at_ns);
        let is_old = |at: &u64| at.saturating_add(POLICY.times_kept_ns) < at_ns;
        while self.times.front().is_some_and(is_old) {
            self.times.pop_front();
        }
    }

    /// Takes in a process that the reading at `at_ns` lists, with its GPU memory (`None`: unknown). Gives since when the
    /// driver has listed the pid with this memory, CLOCK_MONOTONIC nanoseconds: `at_ns` if the last reading did not.
    pub(super) fn add_entry(&mut self, at_ns: u64, pid: u32, bytes: Option<u64>) -> u64 {
        let entry = self.entries.entry(pid).or_insert(Entry { bytes, since_ns: at_ns, read_ns: at_ns });
        let since_ns = if entry.bytes == bytes { entry.since_ns } else { at_ns };
        *entry = Entry { bytes, since_ns, read_ns: at_ns };
        since_ns
    }

    /// Forgets the processes that the reading at `at_ns` did not list. Those that it listed must have been added.
    pub(super) fn forget_unlisted(&mut self, at_ns: u64) {
        self.entries.retain(|_, entry| entry.read_ns == at_ns);
    }

    /// Gives for how long the lists were left unread between the start of the run and its end, nanoseconds. It is the sum of all
    /// gaps that are longer than `most_unread_ns`. The times before the first reading and after the last one are gaps, too. If
    /// `end_ns` is `None`, the latter does not count. Without any reading, the sum is 0.
    pub(super) fn unread_ns(&self, start_ns: u64, end_ns: Option<u64>, most_unread_ns: u64) -> u64 {
        let outer_gaps_ns = self.outer_gaps_ns(start_ns, end_ns).into_iter();
        self.unread_ns + outer_gaps_ns.filter(|gap_ns| *gap_ns > most_unread_ns).sum::<u64>()
    }

    /// Gives the longest gap, as [`Self::unread_ns`] has them, nanoseconds.
    pub(super) fn longest_unread_ns(&self, start_ns: u64, end_ns: Option<u64>) -> u64 {
        self.outer_gaps_ns(start_ns, end_ns).into_iter().fold(self.longest_ns, u64::max)
    }

    /// Gives the time from the start of the run to the first reading, and from the last one to `end_ns`, nanoseconds. Both
    /// are 0 if there is no reading; the second one is 0 if `end_ns` is `None`.
    fn outer_gaps_ns(&self, start_ns: u64, end_ns: Option<u64>) -> [u64; 2] {
        if self.count == 0 {
            return [0; 2];
        }
        let after_ns = end_ns.map_or(0, |end_ns| end_ns.saturating_sub(self.last_ns));
        [self.first_ns.saturating_sub(start_ns), after_ns]
    }

    /// Gives the mean time between two readings, nanoseconds. `None`: there are fewer than two.
    pub(crate) fn mean_ns(&self) -> Option<f64> {
        let gaps = self.count.checked_sub(1).filter(|gaps| *gaps > 0)?;
        Some(self.last_ns.saturating_sub(self.first_ns) as f64 / gaps as f64)
    }

    /// Whether the lists were read between `from_ns` and `to_ns`, both included, CLOCK_MONOTONIC nanoseconds. Readings that
    /// are longer ago than `POLICY.times_kept_ns` are forgotten.
    pub(super) fn were_read_within(&self, from_ns: u64, to_ns: u64) -> bool {
        let next = self.times.partition_point(|at| *at < from_ns);
        self.times.get(next).is_some_and(|at| *at <= to_ns)
    }
}
