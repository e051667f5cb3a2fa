//! What the sinks (the run's outputs) have not taken yet: closed samples, processes whose figures are final, ended tasks, and events,
//! in their order. The outbox is part of the run state, so a restarted collector hands its items on. It is bounded, and keeps nothing
//! that no sink wants.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::task_summary::TaskSummary;
use super::tree::ProcessSummary;
use crate::model::alert::RunEvent;
use crate::model::tree_sample::{Event, ItemKind, TreeSample, Wants};

/// Maximum number of items that are kept; beyond it the oldest ones are dropped, and the sinks that have not taken them count that.
const MAX_ITEMS: usize = 1024;

/// Something for the sinks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Outgoing {
    /// A sample has closed.
    Sample(Box<TreeSample>),
    /// The figures of a process are final.
    Ended(Box<ProcessSummary>),
    /// Something was learnt of a closed sample.
    Event(Event),
    /// Something happened in the run: it started, an alert went on or off, or a limit was exceeded.
    Happened(Box<RunEvent>),
    /// Tasks that have no process any more.
    Tasks(Vec<TaskSummary>),
}

impl Outgoing {
    /// How many lines a file lacks if the item is dropped.
    pub fn lines(&self) -> u64 {
        match self {
            Self::Tasks(tasks) => tasks.len() as u64,
            _ => 1,
        }
    }

    /// Its kind.
    pub fn kind(&self) -> ItemKind {
        match self {
            Self::Sample(_) => ItemKind::Sample,
            Self::Ended(_) => ItemKind::Ended,
            Self::Event(_) => ItemKind::Event,
            Self::Happened(_) => ItemKind::Happened,
            Self::Tasks(_) => ItemKind::Tasks,
        }
    }
}

/// The items that wait for the sinks. Each has a number, one more than that of the item before.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Outbox {
    /// What the sinks take.
    pub wants: Wants,
    items: VecDeque<Outgoing>,
    /// Number of the first item.
    first: u64,
    /// The sinks were given the items before this number.
    given: u64,
    /// How many lines of each kind were dropped, before any sink was given them, since the sinks were last given items.
    missed: [u64; ItemKind::ALL.len()],
    /// Key of the last sample that was added, CLOCK_MONOTONIC nanoseconds.
    closed_ns: u64,
    /// The place in the state file at which the items that come next are kept, bytes.
    pub kept_at: u64,
}

impl Outbox {
    /// Adds a closed sample, if a sink wants samples, unless a killed collector has added it before: see [`Self::restore`].
    pub(super) fn add_sample(&mut self, sample: TreeSample) {
        if self.wants.contains(&ItemKind::Sample) && sample.at_ns > self.closed_ns {
            self.closed_ns = sample.at_ns;
            self.push(Outgoing::Sample(Box::new(sample)));
        }
    }

    /// Adds an item of this kind, if a sink wants such items.
    pub(super) fn add(&mut self, kind: ItemKind, item: impl FnOnce() -> Outgoing) {
        if self.wants.contains(&kind) {
            self.push(item());
        }
    }

    /// Adds an item. If there are too many, drops the oldest one, which counts as missed unless the sinks were given it.
    fn push(&mut self, item: Outgoing) {
        self.items.push_back(item);
        if self.items.len() > MAX_ITEMS
            && let Some(dropped) = self.items.pop_front()
        {
            // Sinks keep what they were given in queues of their own.
            if self.first >= self.given {
                self.missed[dropped.kind() as usize] += dropped.lines();
            }
            self.first += 1;
        }
    }

    /// The number of the first item.
    pub fn begin(&self) -> u64 {
        self.first
    }

    /// The number that the next item will have.
    pub fn end(&self) -> u64 {
        self.first + self.items.len() as u64
    }

    /// The items from this number on, with their numbers.
    pub fn since(&self, number: u64) -> impl Iterator<Item = (u64, &Outgoing)> {
        (self.first..).zip(&self.items).filter(move |(item, _)| *item >= number)
    }

    /// How many lines of a sink with these wants were dropped since [`Self::given`] was last called, and never given to it.
    pub fn missed(&self, wants: &[ItemKind]) -> u64 {
        let wanted = ItemKind::ALL.iter().zip(self.missed).filter(|(kind, _)| wants.contains(kind));
        wanted.map(|(_, lines)| lines).sum()
    }

    /// Notes that the sinks were given all items, and were told how many they missed.
    pub fn given(&mut self) {
        (self.given, self.missed) = (self.end(), [0; ItemKind::ALL.len()]);
    }

    /// Removes the items before this number: the sinks have taken them.
    pub fn taken(&mut self, before: u64) {
        while self.first < before && self.items.pop_front().is_some() {
            self.first += 1;
        }
    }

    /// Adds the items that a killed collector added after this state was saved. The sinks are given all items again.
    pub fn restore(&mut self, items: impl IntoIterator<Item = Outgoing>) {
        for item in items {
            if let Outgoing::Sample(sample) = &item {
                self.closed_ns = self.closed_ns.max(sample.at_ns);
            }
            self.push(item);
        }
        // The killed collector's sinks may have had the items that were dropped, so none counts as missed.
        (self.given, self.missed) = (self.first, [0; ItemKind::ALL.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_samples() -> Outbox {
        Outbox { wants: Wants::from([ItemKind::Sample]), ..Outbox::default() }
    }

    fn sample(at_ns: u64) -> TreeSample {
        TreeSample { at_ns, ..TreeSample::default() }
    }

    fn keys(outbox: &Outbox, since: u64) -> Vec<(u64, u64)> {
        let key = |item: &Outgoing| match item {
            Outgoing::Sample(sample) => sample.at_ns,
            other => panic!("{other:?}"),
        };
        outbox.since(since).map(|(number, item)| (number, key(item))).collect()
    }

    #[test]
    fn what_no_sink_wants_is_not_kept_and_what_is_kept_is_bounded() {
        let mut outbox = Outbox::default();
        outbox.add_sample(sample(1));
        assert_eq!(outbox.end(), 0);
        outbox.wants.push(ItemKind::Sample);
        for at_ns in 1..=2000 {
            outbox.add_sample(sample(at_ns));
        }
        let kept = keys(&outbox, 0);
        assert_eq!((kept.len(), kept[0], outbox.end()), (1024, (976, 977), 2000));
        outbox.taken(1998);
        assert_eq!(keys(&outbox, 0), [(1998, 1999), (1999, 2000)]);
        assert_eq!(keys(&outbox, 1999), [(1999, 2000)]);
        outbox.taken(5000);
        assert_eq!((keys(&outbox, 0), outbox.end()), (Vec::new(), 2000));
    }

    #[test]
    fn what_was_dropped_before_a_sink_was_given_it_is_counted() {
        let mut outbox = with_samples();
        let samples = |outbox: &mut Outbox, keys: std::ops::Range<u64>| {
            keys.for_each(|at_ns| outbox.add_sample(sample(at_ns)));
        };
        samples(&mut outbox, 1..1001);
        outbox.given();
        samples(&mut outbox, 1001..2001);
        // The sinks have those in their queues.
        assert_eq!(outbox.missed(&outbox.wants), 0);
        samples(&mut outbox, 2001..2101);
        assert_eq!(outbox.missed(&outbox.wants), 76);
        assert_eq!(outbox.missed(&Wants::from([ItemKind::Ended])), 0);
        outbox.given();
        assert_eq!(outbox.missed(&outbox.wants), 0);
    }

    // Requirement: TIME-2
    #[test]
    fn sample_that_a_killed_collector_had_closed_is_not_closed_again() {
        let mut outbox = with_samples();
        outbox.add_sample(sample(10));
        let saved = outbox.clone();
        outbox.add_sample(sample(20));
        outbox.add_sample(sample(30));
        let closed_since: Vec<_> = outbox.since(saved.end()).map(|(_, item)| item.clone()).collect();
        let mut resumed = saved;
        resumed.restore(closed_since);
        // The state that was saved has the first of them as the open one.
        resumed.add_sample(sample(20));
        resumed.add_sample(sample(40));
        assert_eq!(keys(&resumed, 0), [(0, 10), (1, 20), (2, 30), (3, 40)]);
    }
}
