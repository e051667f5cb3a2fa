//! The largest RAM within the time of each of the last samples. A sample that is still open takes what records tell of its
//! time; of one that has closed, more RAM is news.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::model::groups::Groups;
use crate::model::tree_sample::Event;
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
    /// What was learnt of closed samples, one event for each.
    revised: Vec<Event>,
}

impl LargestBySample {
    /// Opens the sample of this time.
    pub(super) fn begin(&mut self, at_ns: u64) {
        self.last.push_back(SampleLargest { at_ns, largest: Largest::default(), is_closed: false });
        if self.last.len() > REMEMBERED {
            self.last.pop_front();
        }
    }

    /// Notes that the tree was this large at `moment_ns`, in the time of the sample `at_ns`. `is_record`: it was never
    /// larger.
    pub(super) fn raise(&mut self, at_ns: u64, moment_ns: u64, now: &TreeSums, is_record: bool) {
        let Some(moment) = self.last.iter_mut().rev().find(|moment| moment.at_ns == at_ns) else {
            if is_record {
                self.revise(moment_ns, now.groups().map(|sums| sums.footprint_bytes));
            }
            return;
        };
        let before = moment.largest.footprint_bytes;
        moment.largest.raise(now);
        let after = moment.largest.footprint_bytes;
        if moment.is_closed && after != before {
            self.revise(at_ns, after);
        }
    }

    /// Keeps that the sample of this key had more RAM, for the sinks.
    fn revise(&mut self, key_ns: u64, to: Groups<u64>) {
        for Event::Revised { at_ns, max_footprint_bytes } in &mut self.revised {
            if *at_ns == key_ns {
                *max_footprint_bytes = max_footprint_bytes.with(to, u64::max);
                return;
            }
        }
        self.revised.push(Event::Revised { at_ns: key_ns, max_footprint_bytes: to });
    }

    /// Gives the largest within the time of a sample so far.
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
    pub(crate) fn take_revised(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.revised)
    }
}
