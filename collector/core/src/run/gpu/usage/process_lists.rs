//! The driver's lists of the processes on a device.

use std::collections::{HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::run::gpu::policy::POLICY;

/// When the lists were read, and for how long their entries have been as they are.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ProcessLists {
    /// How often they were read.
    pub count: u64,
    /// Longest time between two readings, nanoseconds.
    pub longest_ns: u64,
    /// Time between readings that were too far apart, nanoseconds.
    unread_ns: u64,
    first_ns: u64,
    last_ns: u64,
    /// The latest times, CLOCK_MONOTONIC nanoseconds; ascending.
    #[serde(skip)]
    times: VecDeque<u64>,
    /// The entries of the latest reading, by pid.
    #[serde(skip)]
    entries: HashMap<u32, Entry>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    bytes: Option<u64>,
    /// Since when it has had these bytes, and when it was read last, CLOCK_MONOTONIC nanoseconds.
    since_ns: u64,
    read_ns: u64,
}

impl ProcessLists {
    /// Notes that the lists were read. Readings that are further apart than `longest_ns` leave the time between them unread.
    pub(super) fn add(&mut self, at_ns: u64, longest_ns: u64) {
        if self.count == 0 {
            self.first_ns = at_ns;
        } else {
            let since_ns = at_ns.saturating_sub(self.last_ns);
            self.longest_ns = self.longest_ns.max(since_ns);
            self.unread_ns += if since_ns > longest_ns { since_ns } else { 0 };
        }
        (self.count, self.last_ns) = (self.count + 1, at_ns);
        self.times.push_back(at_ns);
        let is_old = |at: &u64| at.saturating_add(POLICY.times_kept_ns) < at_ns;
        while self.times.front().is_some_and(is_old) {
            self.times.pop_front();
        }
    }

    /// Takes in an entry of the reading at `at_ns`. Gives since when the driver has listed this pid with this memory,
    /// CLOCK_MONOTONIC nanoseconds: `at_ns` if it has not before.
    pub(super) fn add_entry(&mut self, at_ns: u64, pid: u32, bytes: Option<u64>) -> u64 {
        let entry = self.entries.entry(pid).or_insert(Entry { bytes, since_ns: at_ns, read_ns: at_ns });
        let since_ns = if entry.bytes == bytes { entry.since_ns } else { at_ns };
        *entry = Entry { bytes, since_ns, read_ns: at_ns };
        since_ns
    }

    /// Forgets all entries but those of this reading, which were all added.
    pub(super) fn forget_unlisted(&mut self, at_ns: u64) {
        self.entries.retain(|_, entry| entry.read_ns == at_ns);
    }

    /// Gives for how long they were left unread, from the start of the run to its end, nanoseconds: all times without a reading
    /// that are longer than `longest_ns`. 0 if they are never read. `end_ns`: `None` if the time after the last reading does not
    /// count.
    pub(super) fn unread_ns(&self, start_ns: u64, end_ns: Option<u64>, longest_ns: u64) -> u64 {
        let ends = self.ends_ns(start_ns, end_ns).into_iter();
        self.unread_ns + ends.filter(|ns| *ns > longest_ns).sum::<u64>()
    }

    /// Gives the longest time between two readings, or from the start of the run to the first, or from the last to its end,
    /// nanoseconds.
    pub(super) fn longest_unread_ns(&self, start_ns: u64, end_ns: Option<u64>) -> u64 {
        self.ends_ns(start_ns, end_ns).into_iter().fold(self.longest_ns, u64::max)
    }

    /// Gives the time before the first reading and after the last, nanoseconds.
    fn ends_ns(&self, start_ns: u64, end_ns: Option<u64>) -> [u64; 2] {
        if self.count == 0 {
            return [0; 2];
        }
        let after_ns = end_ns.map_or(0, |end_ns| end_ns.saturating_sub(self.last_ns));
        [self.first_ns.saturating_sub(start_ns), after_ns]
    }

    /// Gives the mean time between two readings, nanoseconds. `None`: there are fewer than two.
    pub(crate) fn mean_ns(&self) -> Option<f64> {
        let times = self.count.checked_sub(1).filter(|times| *times > 0)?;
        Some(self.last_ns.saturating_sub(self.first_ns) as f64 / times as f64)
    }

    /// Whether there was a reading from one time to another, CLOCK_MONOTONIC nanoseconds. The end must not be longer ago than
    /// times are kept.
    pub(super) fn is_any_within(&self, from_ns: u64, to_ns: u64) -> bool {
        let next = self.times.partition_point(|at| *at < from_ns);
        self.times.get(next).is_some_and(|at| *at <= to_ns)
    }
}
