//! How far apart the readings of something were.

use serde::{Deserialize, Serialize};

/// The number of readings, and the times between them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ReadingTimes {
    /// How many there were.
    pub count: u64,
    /// Longest time between two readings, nanoseconds.
    pub longest_ns: u64,
    /// Sum of the times between readings that were too far apart, nanoseconds.
    unread_ns: u64,
    /// When the first one was, CLOCK_MONOTONIC nanoseconds; 0: never.
    first_ns: u64,
    /// When the last one was, CLOCK_MONOTONIC nanoseconds; 0: never.
    pub(super) last_ns: u64,
}

impl ReadingTimes {
    /// Notes a reading at `at_ns`, CLOCK_MONOTONIC nanoseconds. If the last one is longer ago than `most_unread_ns`, nanoseconds,
    /// all the time since then counts as unread.
    pub(super) fn add(&mut self, at_ns: u64, most_unread_ns: u64) {
        if self.count > 0 {
            let gap_ns = at_ns.saturating_sub(self.last_ns);
            self.longest_ns = self.longest_ns.max(gap_ns);
            if gap_ns > most_unread_ns {
                self.unread_ns += gap_ns;
            }
        }
        self.add_after_pause(at_ns);
    }

    /// Notes a reading at `at_ns`, CLOCK_MONOTONIC nanoseconds. The time since the last one is no gap: the caller accounts for it.
    pub(super) fn add_after_pause(&mut self, at_ns: u64) {
        if self.count == 0 {
            self.first_ns = at_ns;
        }
        self.count += 1;
        self.last_ns = at_ns;
    }

    /// For how long nothing was read between the start of the run and its end, nanoseconds. It is the sum of all gaps that
    /// are longer than `most_unread_ns`. The times before the first reading and after the last one are gaps, too. If `end_ns` is
    /// `None`, the latter does not count. Without any reading, the sum is 0.
    pub(super) fn unread_ns(&self, start_ns: u64, end_ns: Option<u64>, most_unread_ns: u64) -> u64 {
        let outer_gaps_ns = self.outer_gaps_ns(start_ns, end_ns).into_iter();
        self.unread_ns + outer_gaps_ns.filter(|gap_ns| *gap_ns > most_unread_ns).sum::<u64>()
    }

    /// The longest gap, as [`Self::unread_ns`] has them, nanoseconds.
    pub(super) fn longest_unread_ns(&self, start_ns: u64, end_ns: Option<u64>) -> u64 {
        self.outer_gaps_ns(start_ns, end_ns).into_iter().fold(self.longest_ns, u64::max)
    }

    /// The time from the start of the run to the first reading, and from the last one to `end_ns`, nanoseconds. Both
    /// are 0 if there is no reading; the second one is 0 if `end_ns` is `None`.
    fn outer_gaps_ns(&self, start_ns: u64, end_ns: Option<u64>) -> [u64; 2] {
        if self.count == 0 {
            return [0; 2];
        }
        let after_ns = end_ns.map_or(0, |end_ns| end_ns.saturating_sub(self.last_ns));
        [self.first_ns.saturating_sub(start_ns), after_ns]
    }

    /// The mean time between two readings, nanoseconds. `None`: there are fewer than two.
    pub(crate) fn mean_ns(&self) -> Option<f64> {
        let gaps = self.count.checked_sub(1).filter(|gaps| *gaps > 0)?;
        Some(self.last_ns.saturating_sub(self.first_ns) as f64 / gaps as f64)
    }
}
