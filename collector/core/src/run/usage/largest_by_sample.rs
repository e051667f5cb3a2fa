//! The largest RAM within the time of each of the last samples. A sample that is still open takes what records tell of its
//! time; of one that has closed, more RAM is news.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::model::groups::Groups;
use crate::run::over_time::Revision;
use crate::run::sampling::sums::TreeSums;

/// Samples that are remembered: one more than the windows that late records are swept into.
const REMEMBERED: usize = 10;

/// The largest within the time of a sample.
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
        self.footprint_bytes =
            self.footprint_bytes.with(all, |largest, sums| largest.max(sums.footprint_bytes));
        self.threads = self.threads.with(all, |largest, sums| largest.max(sums.threads));
        self.processes = self.processes.max(now.processes);
    }
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct SampleLargest {
    /// The key of the sample.
    at_ns: u64,
    largest: Largest,
    is_closed: bool,
}

/// The largest within the time of each of the last samples.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LargestBySample {
    /// Oldest first.
    last: VecDeque<SampleLargest>,
    /// What was learnt of closed samples, one item for each.
    revised: Vec<Revision>,
}

impl LargestBySample {
    /// Opens the sample of this time, CLOCK_MONOTONIC nanoseconds, which is its key. Forgets the oldest if there are too many.
    pub(super) fn begin(&mut self, at_ns: u64) {
        self.last.push_back(SampleLargest { at_ns, largest: Largest::default(), is_closed: false });
        if self.last.len() > REMEMBERED {
            self.last.pop_front();
        }
    }

    /// Notes that the tree was this large at `moment_ns`, in the time of the sample `at_ns`. `is_record`: it never
    /// had as much RAM, or as many processes.
    pub(super) fn raise(&mut self, at_ns: u64, moment_ns: u64, now: &TreeSums, is_record: bool) {
        // Of a sample that is forgotten, only a new maximum of the run is news.
        let Some(moment) = self.last.iter_mut().rev().find(|moment| moment.at_ns == at_ns) else {
            if is_record {
                let mut largest = Largest::default();
                largest.raise(now);
                self.revise(moment_ns, largest);
            }
            return;
        };
        let before = moment.largest;
        moment.largest.raise(now);
        let after = moment.largest;
        let has_more = (after.footprint_bytes, after.processes) != (before.footprint_bytes, before.processes);
        if moment.is_closed && has_more {
            self.revise(at_ns, after);
        }
    }

    /// Keeps, for the sinks, that there was more in the time of a closed sample. `key_ns`: the sample's key, or a moment in its
    /// time.
    fn revise(&mut self, key_ns: u64, Largest { footprint_bytes, processes, .. }: Largest) {
        match self.revised.iter_mut().find(|revision| revision.at_ns == key_ns) {
            Some(known) => {
                known.footprint_bytes = known.footprint_bytes.with(footprint_bytes, u64::max);
                known.processes = known.processes.max(processes);
            }
            None => self.revised.push(Revision { at_ns: key_ns, footprint_bytes, processes }),
        }
    }

    /// Gives the largest within the time of a sample so far; zeros, if the sample is not known any more.
    pub(crate) fn within(&self, at_ns: u64) -> Largest {
        let moment = self.last.iter().rev().find(|moment| moment.at_ns == at_ns);
        moment.map(|moment| moment.largest).unwrap_or_default()
    }

    /// Gives the largest RAM of the samples that are open: these will tell it, bytes.
    pub(crate) fn open_bytes(&self) -> Groups<u64> {
        let open = self.last.iter().filter(|moment| !moment.is_closed);
        open.fold(Groups::default(), |most, moment| most.with(moment.largest.footprint_bytes, u64::max))
    }

    /// Closes a sample: what is learnt of it from now on is news.
    pub(crate) fn close(&mut self, at_ns: u64) {
        for moment in self.last.iter_mut().filter(|moment| moment.at_ns == at_ns) {
            moment.is_closed = true;
        }
    }

    /// Takes what was learnt of closed samples since the last call.
    pub(crate) fn take_revised(&mut self) -> Vec<Revision> {
        std::mem::take(&mut self.revised)
    }
}
