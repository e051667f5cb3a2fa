//! Floors: what one process is known to have held is a lower bound of the tree's largest RAM.
//!
//! Records and samples can show a larger RSS of a process than any sum over time has. For example, a reaper learns the maximum
//! RSS of its child from the kernel, though no sample saw the child. Then the tree's RAM was at least as large at some time, and
//! no more is known.

use serde::{Deserialize, Serialize};

use super::MaxFootprint;
use crate::model::groups::Groups;
use crate::run::tree::ProcessSummary;

/// Lower bound of the largest RAM of some processes, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Floor {
    /// Largest RSS of one of them.
    pub rss_bytes: u64,
    /// Largest RSS of one of them, less what fork children may share with their parents.
    own_bytes: u64,
}

impl Floor {
    /// Raises the floor to what a process is known to have held, bytes.
    fn raise(&mut self, rss_bytes: u64, own_bytes: u64) {
        (self.rss_bytes, self.own_bytes) = (self.rss_bytes.max(rss_bytes), self.own_bytes.max(own_bytes));
    }

    /// Whether the maximum over time is so far below this lower bound that only the bound is known. A smaller difference can come
    /// from the sources of the figures: the kernel updates its counters in batches, and pages are shared.
    pub(crate) fn is_missed_by(&self, seen: &MaxFootprint) -> bool {
        /// The most by which figures of different sources differ in a small tree.
        const DIFFERENCE_BYTES: u64 = 3_000_000;
        /// The most by which they differ in a large tree: one part in this many.
        const DIFFERENCE_PART: u64 = 33;
        let allowed_bytes = DIFFERENCE_BYTES.max(seen.footprint_bytes / DIFFERENCE_PART);
        let is_nothing_seen = seen.footprint_bytes == 0 && self.rss_bytes > 0;
        is_nothing_seen || self.own_bytes > seen.footprint_bytes.saturating_add(allowed_bytes)
    }
}

impl Groups<Floor> {
    /// Raises the floors to what a finalized process or a descendant of it is known to have held.
    pub(super) fn raise(&mut self, process: &ProcessSummary) {
        let known = &process.memory.known_rss;
        let own_bytes = known.own_bytes.saturating_sub(known.copied_bytes);
        // `own_bytes` were held by this process, `below_bytes` by a descendant of it, and `either_bytes` by one of the two. So the last
        // are a floor of a group that has both.
        let any_rss_bytes = known.own_bytes.max(known.either_bytes);
        let any_own_bytes = own_bytes.max(known.either_bytes);
        self.combined.raise(any_rss_bytes, any_own_bytes);
        if process.ids.is_main {
            // `either_bytes` may be a descendant's, so they are no floor of the first process.
            self.main.raise(known.own_bytes, own_bytes);
        } else {
            self.descendants.raise(any_rss_bytes, any_own_bytes);
        }
        for floor in [&mut self.descendants, &mut self.combined] {
            floor.raise(known.below_bytes, known.below_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: RAM-20
    #[test]
    fn a_maximum_is_missed_by_more_than_sources_differ() {
        let mib = 1 << 20;
        let is_missed = |own_bytes: u64, footprint_bytes: u64| {
            Floor { rss_bytes: own_bytes, own_bytes }
                .is_missed_by(&MaxFootprint { footprint_bytes, ..MaxFootprint::default() })
        };
        assert!(!is_missed(3 * mib, mib) && is_missed(4 * mib, mib));
        assert!(!is_missed(206 * mib, 200 * mib) && is_missed(207 * mib, 200 * mib));
        assert!(!is_missed(u64::MAX, u64::MAX));
        assert!(is_missed(1, 0) && !is_missed(0, 0));
    }
}
