//! RAM and threads of the tree at one time, added up over its processes.

use serde::{Deserialize, Serialize};

use super::footprint::Estimate;
use super::reading::LastReading;
use crate::model::groups::Groups;
use crate::run::tree::Contribution;

/// Sums over some processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums<N = u64> {
    /// Footprint (distinct resident pages), bytes.
    pub footprint_bytes: N,
    /// Pages that only one process maps, bytes.
    pub private_bytes: N,
    /// How much more may be private, bytes: how these processes share their memory was never read.
    pub unread_private_bytes: N,
    /// Sum of their proportional sizes (PSS), bytes.
    pub proportional_bytes: N,
    /// Pages of which the proportional size was never read, bytes.
    pub unread_proportional_bytes: N,
    /// Threads.
    pub threads: N,
}

impl<N: Copy> Sums<N> {
    /// Combines two sets of sums, figure by figure.
    fn with<M>(self, other: Self, combine: impl Fn(N, N) -> M) -> Sums<M> {
        Sums {
            footprint_bytes: combine(self.footprint_bytes, other.footprint_bytes),
            private_bytes: combine(self.private_bytes, other.private_bytes),
            unread_private_bytes: combine(self.unread_private_bytes, other.unread_private_bytes),
            proportional_bytes: combine(self.proportional_bytes, other.proportional_bytes),
            unread_proportional_bytes: combine(
                self.unread_proportional_bytes,
                other.unread_proportional_bytes,
            ),
            threads: combine(self.threads, other.threads),
        }
    }
}

/// Sums over the tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeSums<N = u64> {
    /// The command's first process.
    pub main: Sums<N>,
    /// The others.
    pub descendants: Sums<N>,
    /// Footprint of all, bytes.
    pub footprint_bytes: N,
    /// Processes.
    pub processes: N,
}

impl<N: Copy> TreeSums<N> {
    /// Combines two sets of sums, figure by figure.
    pub(crate) fn with<M>(self, other: Self, combine: impl Fn(N, N) -> M) -> TreeSums<M> {
        TreeSums {
            main: self.main.with(other.main, &combine),
            descendants: self.descendants.with(other.descendants, &combine),
            footprint_bytes: combine(self.footprint_bytes, other.footprint_bytes),
            processes: combine(self.processes, other.processes),
        }
    }

    /// Converts each figure.
    pub(crate) fn map<M>(self, convert: impl Fn(N) -> M) -> TreeSums<M> {
        self.with(self, |sum, _| convert(sum))
    }
}

impl TreeSums {
    /// The sums of one process. `unread_bytes`: how many more bytes of its `memory` may be private. Its proportional
    /// size is left out.
    pub(crate) fn of_one(is_main: bool, memory: Contribution, unread_bytes: u64, threads: u64) -> Self {
        let mut sums = Self { processes: 1, footprint_bytes: memory.added_bytes, ..Self::default() };
        *sums.part_mut(is_main) = Sums {
            footprint_bytes: memory.added_to_part_bytes(is_main),
            private_bytes: memory.private_bytes,
            unread_private_bytes: unread_bytes,
            threads,
            ..Sums::default()
        };
        sums
    }

    /// The sums of one process as a sample has it, with its proportional size.
    pub(crate) fn of_estimate(is_main: bool, estimate: &Estimate, reading: &LastReading) -> Self {
        let (unread_bytes, threads) = (estimate.unread_private_bytes, reading.vitals.threads);
        let mut sums = Self::of_one(is_main, estimate.contribution, unread_bytes, threads);
        let part = sums.part_mut(is_main);
        part.proportional_bytes = estimate.proportional_bytes;
        part.unread_proportional_bytes = estimate.unread_proportional_bytes;
        sums
    }

    /// The sums of the first process, or those of all others.
    fn part_mut(&mut self, is_main: bool) -> &mut Sums {
        if is_main { &mut self.main } else { &mut self.descendants }
    }

    /// Adds other sums. They saturate, since a record may claim any size.
    pub(crate) fn add(&mut self, other: &Self) {
        *self = self.with(*other, u64::saturating_add);
    }

    /// The sums of the first process, of the descendants and of both. The footprint of both is no less than that of either,
    /// as no set of processes has a smaller footprint than a part of it.
    pub(crate) fn groups(&self) -> Groups<Sums> {
        let (main, descendants) = (self.main, self.descendants);
        let of_parts = main.footprint_bytes.max(descendants.footprint_bytes);
        let footprint_bytes = self.footprint_bytes.max(of_parts);
        let combined = Sums { footprint_bytes, ..main.with(descendants, u64::saturating_add) };
        Groups { main, descendants, combined }
    }
}
