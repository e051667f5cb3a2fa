//! RAM and threads of the tree at one time, added up over its processes.

use serde::{Deserialize, Serialize};

use super::footprint::Estimate;
use super::reading::LastReading;
use crate::run::tree::Contribution;

/// Sums over some processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sums {
    /// Footprint, bytes.
    pub footprint_bytes: u64,
    /// Pages that one of them alone maps, bytes.
    pub private_bytes: u64,
    /// How much more may be private, as it was never read, bytes.
    pub unread_private_bytes: u64,
    /// Sum of their proportional sizes, bytes.
    pub proportional_bytes: u64,
    /// Pages of which the proportional size was never read, bytes.
    pub unread_proportional_bytes: u64,
    /// Threads.
    pub threads: u64,
}

impl Sums {
    fn add(&mut self, other: &Self) {
        // A record may claim any size.
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.footprint_bytes, other.footprint_bytes);
        add(&mut self.private_bytes, other.private_bytes);
        add(&mut self.unread_private_bytes, other.unread_private_bytes);
        add(&mut self.proportional_bytes, other.proportional_bytes);
        add(&mut self.unread_proportional_bytes, other.unread_proportional_bytes);
        add(&mut self.threads, other.threads);
    }
}

/// Sums over the tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TreeSums {
    /// The first process.
    pub main: Sums,
    /// The others.
    pub descendants: Sums,
    /// Footprint of all, bytes.
    pub combined_bytes: u64,
    /// Processes.
    pub processes: u64,
}

impl TreeSums {
    /// One process with a contribution. So many more bytes of it may be private.
    pub(crate) fn of(is_main: bool, contribution: &Contribution, unread_bytes: u64, threads: u64) -> Self {
        let mut sums = Self { processes: 1, combined_bytes: contribution.combined_bytes, ..Self::default() };
        *sums.part_mut(is_main) = Sums {
            footprint_bytes: contribution.footprint_bytes(is_main),
            private_bytes: contribution.private_bytes,
            unread_private_bytes: unread_bytes,
            threads,
            ..Sums::default()
        };
        sums
    }

    /// One process as a sample has it.
    pub(crate) fn of_estimate(is_main: bool, estimate: &Estimate, reading: &LastReading) -> Self {
        let (unread_bytes, threads) = (estimate.unread_private_bytes, reading.vitals.threads);
        let mut sums = Self::of(is_main, &estimate.contribution, unread_bytes, threads);
        let part = sums.part_mut(is_main);
        part.proportional_bytes = estimate.proportional_bytes;
        part.unread_proportional_bytes = estimate.unread_bytes;
        sums
    }

    fn part_mut(&mut self, is_main: bool) -> &mut Sums {
        if is_main { &mut self.main } else { &mut self.descendants }
    }

    /// Add another's.
    pub(crate) fn add(&mut self, other: &Self) {
        self.main.add(&other.main);
        self.descendants.add(&other.descendants);
        self.combined_bytes = self.combined_bytes.saturating_add(other.combined_bytes);
        self.processes += other.processes;
    }

    /// All processes. No set of processes has a smaller footprint than a part of it.
    pub(crate) fn combined(&self) -> Sums {
        let (main, descendants) = (&self.main, &self.descendants);
        let mut sums = *main;
        sums.add(descendants);
        let of_parts = main.footprint_bytes.max(descendants.footprint_bytes);
        Sums { footprint_bytes: self.combined_bytes.max(of_parts), ..sums }
    }
}
