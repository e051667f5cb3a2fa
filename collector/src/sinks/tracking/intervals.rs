//! The rows of the tracking files. A row joins the samples of an interval. The files of all forms have the same rows.

use crate::model::groups::Groups;
use crate::model::tree_sample::TreeSample;

/// A row may be shorter than an interval by a twentieth of it, because samples come a little early or late.
const EARLY_DIVISOR: u64 = 20;

/// The samples since the row before, joined.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub sample: TreeSample,
    /// How many samples were joined.
    pub count: u64,
}

/// Joins samples to rows.
#[derive(Debug, Default)]
pub(super) struct Intervals {
    interval_ns: u64,
    /// The key of the last row that was returned, whether it was written or lost: the time of its end, CLOCK_MONOTONIC
    /// nanoseconds. 0: there is no row. A writer that goes on in a file sets it to the key of the file's last row.
    pub last_ns: u64,
    /// The samples since then, joined. They are shorter than an interval.
    waiting: Option<Row>,
}

impl Intervals {
    /// Begins a file without rows.
    pub(super) fn new(interval_ns: u64) -> Self {
        Self { interval_ns, ..Self::default() }
    }

    /// Joins a sample to those that wait. Returns them as a row if they are now as long as an interval. `None`: they still wait, or
    /// the file has the sample already.
    pub(super) fn add(&mut self, sample: &TreeSample) -> Option<Row> {
        if sample.at_ns <= self.last_ns {
            return None;
        }
        let row = match self.waiting.take() {
            Some(Row { sample: before, count }) => {
                Row { sample: before.then(sample.clone()), count: count + 1 }
            }
            None => Row { sample: sample.clone(), count: 1 },
        };
        // A row begins where the row before it ends; the first one, where its first sample begins.
        let begin_ns = if self.last_ns == 0 { row.sample.from_ns } else { self.last_ns };
        let interval_ns = self.interval_ns;
        if row.sample.at_ns.saturating_sub(begin_ns) + interval_ns / EARLY_DIVISOR < interval_ns {
            self.waiting = Some(row);
            return None;
        }
        self.last_ns = row.sample.at_ns;
        Some(row)
    }

    /// The tree turned out to have held `footprint_bytes` (RAM in which a shared page counts once) in a past sample, taken at `at_ns`
    /// (CLOCK_MONOTONIC). If that sample still waits, the row's largest footprints are raised to at least that. Returns whether it
    /// does; if not, its row may be written already.
    pub(super) fn raise(&mut self, at_ns: u64, footprint_bytes: Groups<u64>) -> bool {
        let Some(Row { sample, .. }) = &mut self.waiting else { return false };
        let is_within = sample.from_ns < at_ns && at_ns <= sample.at_ns;
        if is_within {
            sample.footprint_bytes = sample.footprint_bytes.with(footprint_bytes, |mut span, bytes| {
                span.raise(bytes);
                span
            });
        }
        is_within
    }

    /// Takes the samples that wait as a row, though it is shorter than an interval: the run is over.
    pub(super) fn take_rest(&mut self) -> Option<Row> {
        let row = self.waiting.take()?;
        self.last_ns = row.sample.at_ns;
        Some(row)
    }

    /// Whether no sample waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: TIME-1
    #[test]
    fn every_row_is_as_long_as_an_interval_whatever_becomes_of_the_rows_before() {
        let mut intervals = Intervals::new(100);
        let samples =
            (0..35).map(|n| TreeSample { from_ns: n * 10, at_ns: n * 10 + 10, ..TreeSample::default() });
        let rows: Vec<_> = samples.filter_map(|sample| intervals.add(&sample)).collect();
        let ends: Vec<_> = rows.iter().map(|row| (row.sample.from_ns, row.sample.at_ns, row.count)).collect();
        assert_eq!(ends, [(0, 100, 10), (100, 200, 10), (200, 300, 10)]);
        assert_eq!(intervals.take_rest().map(|row| (row.sample.at_ns, row.count)), Some((350, 5)));
        assert_eq!(intervals.last_ns, 350);
    }
}
