//! A figure of GPUs as samples have it: the largest value that became known since the sample before. If none did, it is the last
//! value, unless that is too old.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::amount::Amount;
use crate::model::gpu::Figure;
use crate::model::groups::Groups;
use crate::model::sorting::InOrder;

/// The values of a figure that became known lately.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Recent<T> {
    /// The largest since the sample began.
    largest: Option<T>,
    /// The newest value, and until when nothing newer could be known, CLOCK_MONOTONIC nanoseconds. Readings before the open sample
    /// count, too.
    last: Option<(u64, T)>,
}

impl<T: Amount> Recent<T> {
    /// Takes in a value that a reading made known. `newest_ns`: until when it is the newest that can be known, CLOCK_MONOTONIC
    /// nanoseconds. That is the reading's time, or later if the source makes values more rarely than it is read.
    pub(super) fn add(&mut self, newest_ns: u64, value: T) {
        self.largest = Some(self.largest.map_or(value, |largest| largest.larger(value)));
        let newest_ns = self.last.map_or(newest_ns, |(last_ns, _)| last_ns.max(newest_ns));
        self.last = Some((newest_ns, value));
    }

    /// The largest value since the sample began, or else the last one before. `None`: there is none, or the
    /// last one has been out of date since before `oldest_ns`, CLOCK_MONOTONIC nanoseconds.
    pub(super) fn get(&self, oldest_ns: u64) -> Option<T> {
        let last = self.last.filter(|(newest_ns, _)| *newest_ns >= oldest_ns);
        last.map(|(_, value)| self.largest.unwrap_or(value))
    }

    /// Whether a value became known since the sample began.
    fn is_new(&self) -> bool {
        self.largest.is_some()
    }

    /// Begins a sample, which gets the largest of the values that become known from now on.
    pub(super) fn begin(&mut self) {
        self.largest = None;
    }
}

/// The figures of one device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RecentFigures {
    /// Memory of the run's processes, bytes.
    pub(super) run_bytes: Recent<Groups<u64>>,
    /// Utilisation, percent.
    pub(super) busy_percent: Recent<f64>,
    /// Utilisation by the run's processes, percent.
    pub(super) run_busy_percent: Recent<f64>,
    /// Figures that go up and down, the memory in use among them.
    gauges: BTreeMap<Figure, Recent<f64>>,
}

impl RecentFigures {
    /// Takes in the reading of a gauge.
    pub(super) fn add_gauge(&mut self, figure: Figure, read_ns: u64, value: f64) {
        self.gauges.entry(figure).or_default().add(read_ns, value);
    }

    /// The largest of each gauge. What was read before `oldest_ns` is left out.
    pub(super) fn gauges(&self, oldest_ns: u64) -> BTreeMap<Figure, f64> {
        let known = |(figure, recent): (&Figure, &Recent<f64>)| Some((*figure, recent.get(oldest_ns)?));
        self.gauges.iter().filter_map(known).ordered_map()
    }

    /// Whether a value of any figure became known since the sample began.
    pub(super) fn is_any_new(&self) -> bool {
        self.run_bytes.is_new() || self.busy_percent.is_new() || self.gauges.values().any(Recent::is_new)
    }

    /// Begins a sample, which gets the largest of what becomes known from now on.
    pub(super) fn begin(&mut self) {
        self.run_bytes.begin();
        self.busy_percent.begin();
        self.run_busy_percent.begin();
        self.gauges.values_mut().for_each(Recent::begin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_since_the_last_sample_and_the_last_until_it_is_old() {
        let mut sum = Recent::default();
        assert_eq!(sum.get(0), None);
        sum.add(10, 7);
        sum.add(11, 5);
        assert_eq!(sum.get(9), Some(7));
        sum.begin();
        assert_eq!((sum.get(11), sum.get(12)), (Some(5), None));
        sum.add(20, 0);
        assert_eq!(sum.get(12), Some(0), "what was freed is gone");
    }
}
