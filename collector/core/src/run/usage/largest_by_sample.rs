//! The largest figures within the time of each of the last samples. Records that come late can raise them. If the sample is still
//! open, it takes the new figures. If it is closed, the sinks have it already, and get a [`Revision`].

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::model::groups::Groups;
use crate::run::over_time::Revision;
use crate::run::push_last;
use crate::run::sampling::sums::TreeSums;

/// Number of samples that are remembered. [`RamUsage`](super::RamUsage) keeps the window before each of them, except the
/// oldest.
pub(super) const REMEMBERED: usize = 65;

/// The largest figures within the time of a sample, each on its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Largest {
    /// Footprints, bytes.
    pub footprint_bytes: Groups<u64>,
    /// Live processes.
    pub processes: u64,
    /// Their threads.
    pub threads: Groups<u64>,
}

impl Largest {
    /// Raises the figures to what the tree had at a moment.
    fn raise(&mut self, now: &TreeSums) {
        let all = now.groups();
        self.footprint_bytes = self.footprint_bytes.with(all.map(|sums| sums.footprint_bytes), u64::max);
        self.threads = self.threads.with(all.map(|sums| sums.threads), u64::max);
        self.processes = self.processes.max(now.processes);
    }
}

/// A sample, and the largest figures within its time.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct RememberedSample {
    /// The time of the sample, CLOCK_MONOTONIC nanoseconds, which identifies it.
    at_ns: u64,
    largest: Largest,
    is_closed: bool,
}

/// The largest figures within the time of each of the last samples.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LargestBySample {
    /// The last samples, oldest first.
    samples: VecDeque<RememberedSample>,
    /// What the sinks are to be told of closed samples, one item for each.
    revised: Vec<Revision>,
}

impl LargestBySample {
    /// Opens the sample of this time, CLOCK_MONOTONIC nanoseconds, which is its key. Forgets the oldest if there are too many.
    pub(super) fn begin(&mut self, at_ns: u64) {
        let sample = RememberedSample { at_ns, largest: Largest::default(), is_closed: false };
        push_last(&mut self.samples, sample, REMEMBERED);
    }

    /// Notes that the tree was this large at `moment_ns`, in the time of the sample `at_ns`, both CLOCK_MONOTONIC nanoseconds.
    /// `is_new_maximum`: the run had less RAM, or fewer processes, until then.
    pub(super) fn raise(&mut self, at_ns: u64, moment_ns: u64, now: &TreeSums, is_new_maximum: bool) {
        // The figures of a forgotten sample are not known, so only a new maximum of the run surely exceeds them.
        let Some(sample) = self.samples.iter_mut().rev().find(|sample| sample.at_ns == at_ns) else {
            if is_new_maximum {
                let mut largest = Largest::default();
                largest.raise(now);
                self.revise(moment_ns, largest);
            }
            return;
        };
        let before = sample.largest;
        sample.largest.raise(now);
        let after = sample.largest;
        // A revision tells no threads, so more of those alone make none.
        let has_more = (after.footprint_bytes, after.processes) != (before.footprint_bytes, before.processes);
        if sample.is_closed && has_more {
            self.revise(at_ns, after);
        }
    }

    /// Keeps, for the sinks, that there was more in the time of a closed sample. `key_ns`: the sample's key, or a moment in its
    /// time, CLOCK_MONOTONIC nanoseconds.
    fn revise(&mut self, key_ns: u64, Largest { footprint_bytes, processes, .. }: Largest) {
        match self.revised.iter_mut().find(|revision| revision.at_ns == key_ns) {
            Some(known) => {
                known.footprint_bytes = known.footprint_bytes.with(footprint_bytes, u64::max);
                known.processes = known.processes.max(processes);
            }
            None => self.revised.push(Revision { at_ns: key_ns, footprint_bytes, processes }),
        }
    }

    /// The largest figures so far within the time of the sample `at_ns`; zeros, if the sample is forgotten.
    pub(crate) fn within(&self, at_ns: u64) -> Largest {
        let sample = self.samples.iter().rev().find(|sample| sample.at_ns == at_ns);
        sample.map(|sample| sample.largest).unwrap_or_default()
    }

    /// The largest footprints of the open samples, bytes. The sinks get them when those samples close.
    pub(crate) fn open_bytes(&self) -> Groups<u64> {
        let open = self.samples.iter().filter(|sample| !sample.is_closed);
        open.fold(Groups::default(), |most, sample| most.with(sample.largest.footprint_bytes, u64::max))
    }

    /// Closes the sample `at_ns`: what raises its figures from now on is a revision.
    pub(crate) fn close(&mut self, at_ns: u64) {
        for sample in self.samples.iter_mut().filter(|sample| sample.at_ns == at_ns) {
            sample.is_closed = true;
        }
    }

    /// Takes the revisions of closed samples since the last call.
    pub(crate) fn take_revised(&mut self) -> Vec<Revision> {
        std::mem::take(&mut self.revised)
    }
}
