//! How the time of samples is divided, in groups of states.
//!
//! The time between two readings of the threads is divided ([`time_spent`](super::time_spent)). It can be longer than a sample: then the
//! samples in it that are not closed yet have its shares. A reading that finds no thread ready tells in which state
//! blocked threads were. It is that of the sample, or the next one, which comes before the sample closes. If neither tells it, a thread that was just woken
//! may hide it, so the last one that told a state counts. If that is too old, the time is one of the other waits.

use serde::{Deserialize, Serialize};

use super::time_spent::Division;
use crate::model::time_groups::{ByTimeGroup, TimeGroup};

/// The time of the open sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SampleTime {
    /// Its length, nanoseconds.
    length_ns: u64,
    /// Time in each group, nanoseconds. `None`: the threads were not read in it.
    groups: Option<ByTimeGroup<u64>>,
    /// Time in which threads were blocked, and of which no reading told the state yet, nanoseconds.
    pending_ns: u64,
}

impl SampleTime {
    /// Makes the time of a sample of this length. `division`: that of the time up to its end; `None`: threads were not read then.
    pub(super) fn new(length_ns: u64, division: Option<&Division>) -> Self {
        let mut time = Self { length_ns, ..Self::default() };
        if let Some(division) = division {
            time.divide(division);
        }
        time
    }

    /// Divides it as the time up to a reading.
    fn divide(&mut self, division: &Division) {
        let part_ns = |ns: u64| match division.length_ns {
            0 => 0,
            length_ns => (u128::from(self.length_ns) * u128::from(ns) / u128::from(length_ns)) as u64,
        };
        let computing = part_ns(division.computing_ns).min(self.length_ns);
        let waiting_for_core = part_ns(division.waiting_ns).min(self.length_ns - computing);
        let other = part_ns(division.gpu_ns).min(self.length_ns - computing - waiting_for_core);
        self.groups = Some(ByTimeGroup { computing, waiting_for_core, other, ..ByTimeGroup::default() });
        self.pending_ns = self.length_ns - computing - waiting_for_core - other;
        self.name_pending(division);
    }

    /// Adds the pending time to its group, if the reading at the end of a division tells which one it is.
    fn name_pending(&mut self, division: &Division) {
        if let (Some(groups), Some(state)) = (&mut self.groups, division.blocked_in) {
            *groups.of_mut(state.into()) += std::mem::take(&mut self.pending_ns);
        }
    }

    /// Takes in the division that ends with the next sample. `None`: threads were not read then.
    pub(super) fn note_next(&mut self, division: Option<&Division>) {
        let Some(division) = division else { return };
        match self.groups {
            Some(_) => self.name_pending(division),
            // No reading was in it, so the division began before it.
            None => self.divide(division),
        }
    }

    /// Time in each group, nanoseconds, as far as it is known by now: pending time is in the group that was told last. `None`: the
    /// threads were not read.
    pub(super) fn groups(&self, told: &LastTold) -> Option<ByTimeGroup<u64>> {
        let mut groups = self.groups?;
        *groups.of_mut(told.group()) += self.pending_ns;
        Some(groups)
    }
}

/// The state of blocked threads that a reading told last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LastTold {
    /// Its group. `None`: none told one yet.
    group: Option<TimeGroup>,
    /// How many readings have told none since then.
    readings: u64,
}

impl LastTold {
    /// Takes in the reading at the end of a division.
    pub(super) fn note(&mut self, division: &Division) {
        match division.blocked_in {
            Some(state) => *self = Self { group: Some(state.into()), readings: 0 },
            None => self.readings += 1,
        }
    }

    /// The group of blocked threads, unless it was told too long ago.
    fn group(&self) -> TimeGroup {
        /// A reading stands for so many later ones that tell nothing.
        const MOST_READINGS: u64 = 4;
        self.group.filter(|_| self.readings <= MOST_READINGS).unwrap_or(TimeGroup::Other)
    }
}

/// The last second of closed samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LastSecond {
    /// What closed since the last one began, nanoseconds.
    open: ByTimeGroup<u64>,
    /// The last one. `None`: less than a second was divided so far.
    whole: Option<ByTimeGroup<u64>>,
}

impl LastSecond {
    /// Adds the time of a closed sample.
    pub(super) fn add(&mut self, groups: Option<ByTimeGroup<u64>>) {
        /// What is shown is of this time at least, nanoseconds.
        const LENGTH_NS: u64 = 1_000_000_000;
        let Some(groups) = groups else { return };
        self.open = self.open.plus(&groups);
        if self.open.total() >= LENGTH_NS {
            self.whole = Some(std::mem::take(&mut self.open));
        }
    }

    /// Time in each group, nanoseconds. `None`: no sample read the threads yet.
    pub(super) fn groups(&self) -> Option<ByTimeGroup<u64>> {
        self.whole.or(Some(self.open).filter(|open| open.total() > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::report::TimeState;

    fn division(blocked_in: Option<TimeState>) -> Division {
        Division { length_ns: 100, computing_ns: 60, waiting_ns: 10, gpu_ns: 0, blocked_in }
    }

    fn groups(storage: u64, other: u64) -> Option<ByTimeGroup<u64>> {
        Some(ByTimeGroup { computing: 60, waiting_for_core: 10, storage, other, ..ByTimeGroup::default() })
    }

    // Requirement: SLOW-10
    #[test]
    fn blocked_time_is_named_by_this_reading_or_the_next() {
        let told = LastTold::default();
        assert_eq!(SampleTime::new(100, Some(&division(Some(TimeState::Swap)))).groups(&told), groups(30, 0));
        let mut time = SampleTime::new(100, Some(&division(None)));
        assert_eq!(time.groups(&told), groups(0, 30));
        time.note_next(None);
        assert_eq!(time.groups(&told), groups(0, 30));
        time.note_next(Some(&division(Some(TimeState::Storage))));
        assert_eq!(time.groups(&told), groups(30, 0));
    }

    // Requirement: SLOW-10
    #[test]
    fn reading_before_names_what_neither_does_unless_it_is_old() {
        let time = SampleTime::new(100, Some(&division(None)));
        let mut told = LastTold::default();
        told.note(&division(Some(TimeState::Storage)));
        let named: Vec<_> = (0..6)
            .map(|_| {
                told.note(&division(None));
                time.groups(&told)
            })
            .collect();
        assert_eq!(named, [[groups(30, 0); 4].as_slice(), &[groups(0, 30); 2]].concat());
    }

    // Requirement: SLOW-10
    #[test]
    fn sample_without_a_reading_is_unknown_unless_the_next_one_has_it() {
        let mut time = SampleTime::new(10, None);
        assert_eq!(time.groups(&LastTold::default()), None);
        time.note_next(None);
        assert_eq!(time.groups(&LastTold::default()), None);
        time.note_next(Some(&division(Some(TimeState::Lock))));
        let known = ByTimeGroup { computing: 6, waiting_for_core: 1, locks: 3, ..ByTimeGroup::default() };
        assert_eq!(time.groups(&LastTold::default()), Some(known));
    }

    #[test]
    fn last_second_is_that_of_known_samples() {
        const MS: u64 = 1_000_000;
        let mut last = LastSecond::default();
        assert_eq!(last.groups(), None);
        let computing = |ms: u64| Some(ByTimeGroup { computing: ms * MS, ..ByTimeGroup::default() });
        let network = |ms: u64| Some(ByTimeGroup { network: ms * MS, ..ByTimeGroup::default() });
        last.add(computing(400));
        last.add(None);
        assert_eq!(last.groups(), computing(400));
        last.add(computing(700));
        last.add(network(100));
        assert_eq!(last.groups(), computing(1100));
        last.add(network(900));
        assert_eq!(last.groups(), network(1000));
    }
}
