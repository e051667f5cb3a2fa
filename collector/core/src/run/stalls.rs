//! Pressure and CPU quota over the run: the growth of the kernel's counts between the first reading and the last.

use serde::{Deserialize, Serialize};

use crate::model::stalls::StallReading;

/// The readings of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunStalls {
    /// The first one, with its time, CLOCK_MONOTONIC nanoseconds.
    first: Option<(u64, StallReading)>,
    /// The last one. `None`: there was only one.
    last: Option<(u64, StallReading)>,
}

impl RunStalls {
    /// Takes in a reading at `at_ns`, CLOCK_MONOTONIC nanoseconds.
    pub(super) fn note(&mut self, at_ns: u64, reading: &StallReading) {
        let slot = if self.first.is_none() { &mut self.first } else { &mut self.last };
        *slot = Some((at_ns, reading.clone()));
    }

    /// The first reading and the last, with their times. `None`: there were no two.
    pub(crate) fn first_and_last(&self) -> Option<[(u64, &StallReading); 2]> {
        let (first, last) = (self.first.as_ref()?, self.last.as_ref()?);
        Some([(first.0, &first.1), (last.0, &last.1)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_reading_stays_when_a_later_collector_reads_again() {
        let mut stalls = RunStalls::default();
        let named = |name: &str| StallReading { cgroup_name: Some(name.into()), ..StallReading::default() };
        stalls.note(5, &named("a"));
        assert_eq!(stalls.first_and_last(), None);
        stalls.note(6, &named("b"));
        stalls.note(7, &named("c"));
        assert_eq!(stalls.first_and_last(), Some([(5, &named("a")), (7, &named("c"))]));
    }
}
