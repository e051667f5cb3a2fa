//! RAM and threads of the tree at one time, added up over its processes.

use serde::{Deserialize, Serialize};

use super::footprint::Estimate;
use super::reading::LastReading;
use crate::run::tree::Contribution;

/// Sums over processes, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sums {
    /// Footprint of the first process.
    pub main: u64,
    /// Pages that it alone maps.
    pub main_private: u64,
    /// Its proportional size.
    pub main_proportional: u64,
    /// The part of it of which the proportional size was never read.
    pub main_unread: u64,
    /// How much more of it may be private, as it was never read.
    pub main_unread_private: u64,
    /// Footprint of the others.
    pub descendants: u64,
    /// Pages that one of them alone maps.
    pub descendants_private: u64,
    /// Sum of their proportional sizes.
    pub descendants_proportional: u64,
    /// Pages of theirs of which the proportional size was never read.
    pub descendants_unread: u64,
    /// How much more of theirs may be private, as it was never read.
    pub descendants_unread_private: u64,
    /// Footprint of all.
    pub combined: u64,
    /// Threads of the first process.
    pub main_threads: u64,
    /// Threads of the others.
    pub descendants_threads: u64,
    /// Processes.
    pub processes: u64,
}

impl Sums {
    /// One process with a contribution.
    pub(crate) fn of(is_main: bool, contribution: &Contribution, threads: u64) -> Self {
        let mut sums = Self { processes: 1, combined: contribution.combined_bytes, ..Self::default() };
        if is_main {
            sums.main = contribution.combined_bytes;
            sums.main_private = contribution.private_bytes;
            sums.main_threads = threads;
        } else {
            sums.descendants = contribution.descendants_bytes;
            sums.descendants_private = contribution.private_bytes;
            sums.descendants_threads = threads;
        }
        sums
    }

    /// One process as a sample has it.
    pub(crate) fn of_estimate(is_main: bool, estimate: &Estimate, reading: &LastReading) -> Self {
        let mut sums = Self::of(is_main, &estimate.contribution, reading.vitals.threads);
        if is_main {
            (sums.main_proportional, sums.main_unread) = (estimate.proportional_bytes, estimate.unread_bytes);
        } else {
            sums.descendants_proportional = estimate.proportional_bytes;
            sums.descendants_unread = estimate.unread_bytes;
        }
        sums.with_unread_private(is_main, estimate.unread_private_bytes)
    }

    /// The same if so many more bytes may be private.
    pub(crate) fn with_unread_private(mut self, is_main: bool, bytes: u64) -> Self {
        let unread =
            if is_main { &mut self.main_unread_private } else { &mut self.descendants_unread_private };
        *unread = bytes;
        self
    }

    /// Add another's.
    pub(crate) fn add(&mut self, other: &Self) {
        self.main += other.main;
        self.main_private += other.main_private;
        self.main_proportional += other.main_proportional;
        self.main_unread += other.main_unread;
        self.main_unread_private += other.main_unread_private;
        self.descendants += other.descendants;
        self.descendants_private += other.descendants_private;
        self.descendants_proportional += other.descendants_proportional;
        self.descendants_unread += other.descendants_unread;
        self.descendants_unread_private += other.descendants_unread_private;
        self.combined += other.combined;
        self.main_threads += other.main_threads;
        self.descendants_threads += other.descendants_threads;
        self.processes += other.processes;
    }

    /// The private part of all.
    pub(crate) fn combined_private(&self) -> u64 {
        self.main_private + self.descendants_private
    }
}
