//! The rows of the tracking files: the samples of an interval as one. All forms have the same rows.

use crate::model::groups::Groups;
use crate::model::tree_sample::TreeSample;

/// Samples come a little early or late. So a row may be shorter than an interval by one part in this many of it.
const EARLY_PART: u64 = 20;

/// A row before it is written: the samples since the row before as one.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub sample: TreeSample,
    /// How many samples it is made of.
    pub count: u64,
}

/// Makes rows of samples.
#[derive(Debug)]
pub(super) struct Intervals {
    interval_ns: u64,
    /// Key of the last row that is in the file; 0: there is none.
    pub last_ns: u64,
    /// The samples since then, while they are shorter than an interval.
    waiting: Option<Row>,
}

impl Intervals {
    /// Begins before the first row.
    pub(super) fn new(interval_ns: u64) -> Self {
        Self { interval_ns, last_ns: 0, waiting: None }
    }

    /// Joins a sample with those that wait. Gives them as a row, if they are now as long as an interval. `None`: they wait on,
    /// or the file has the sample already.
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
        // A row reaches from the row before it, the first one from the begin of its first sample.
        let begin_ns = if self.last_ns == 0 { row.sample.from_ns } else { self.last_ns };
        let interval_ns = self.interval_ns;
        if row.sample.at_ns.saturating_sub(begin_ns) + interval_ns / EARLY_PART < interval_ns {
            self.waiting = Some(row);
            return None;
        }
        Some(row)
    }

    /// Raises the largest footprints of the samples that wait to these, bytes, if `at_ns` is within their time. Gives
    /// whether it is.
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

    /// Gives the samples that wait, at the end of the run, though they are shorter than an interval.
    pub(super) fn take_rest(&mut self) -> Option<Row> {
        self.waiting.take()
    }

    /// Whether no sample waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_none()
    }
}
