//! Ranks of MPI jobs and Slurm steps, as the START records name them. A job of more ranks than were seen has some elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use gpu_track_abi::rank::Rank;
use serde::{Deserialize, Serialize};

use crate::model::report::UnseenRanks;

/// Most ranks that are kept. Beyond that nothing is concluded.
const MOST_RANKS: u64 = 1 << 17;

/// The ranks of which a process was seen.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ranks {
    /// By job and number of ranks: MPICH's environment has no id of the job, so jobs of equal size count as one there.
    seen: BTreeMap<(u32, u32), BTreeSet<u32>>,
    kept: u64,
}

impl Ranks {
    /// Takes in what a process's environment has.
    pub(crate) fn add(&mut self, rank: Rank) {
        if rank.rank < rank.count && self.kept < MOST_RANKS {
            let is_new = self.seen.entry((rank.job, rank.count)).or_default().insert(rank.rank);
            self.kept += u64::from(is_new);
        }
    }

    /// Counts the ranks without a process in the tree. `None`: none is missing, or there are too many to know. `own`: the
    /// launcher's ranks. It is itself a part of those jobs, and the whole tree has its environment, so they do not count.
    pub(crate) fn unseen(&self, own: &[Rank]) -> Option<UnseenRanks> {
        if self.kept >= MOST_RANKS {
            return None;
        }
        let is_own = |job: (u32, u32)| own.iter().any(|rank| (rank.job, rank.count) == job);
        let mut all = UnseenRanks::default();
        for (&(job, count), seen) in &self.seen {
            let unseen = u64::from(count).saturating_sub(seen.len() as u64);
            if unseen > 0 && !is_own((job, count)) {
                all.unseen += unseen;
                all.expected += u64::from(count);
            }
        }
        (all.unseen > 0).then_some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unseen(ranks: &[(u32, u32, u32)], own: &[(u32, u32, u32)]) -> Option<(u64, u64)> {
        let rank = |&(job, rank, count): &(u32, u32, u32)| Rank { job, rank, count };
        let mut seen = Ranks::default();
        ranks.iter().for_each(|one| seen.add(rank(one)));
        let own: Vec<Rank> = own.iter().map(rank).collect();
        seen.unseen(&own).map(|ranks| (ranks.unseen, ranks.expected))
    }

    // Requirement: SEE-21
    #[test]
    fn ranks_without_a_process_are_counted_once_per_job() {
        assert_eq!(unseen(&[(1, 0, 4), (1, 2, 4), (1, 2, 4)], &[]), Some((2, 4)));
        assert_eq!(unseen(&[(1, 0, 2), (1, 1, 2)], &[]), None);
        // Two jobs, one of which is complete; then two incomplete ones.
        assert_eq!(unseen(&[(1, 0, 2), (1, 1, 2), (2, 1, 2)], &[]), Some((1, 2)));
        assert_eq!(unseen(&[(1, 0, 4), (2, 5, 8)], &[]), Some((3 + 7, 12)));
    }

    // Requirement: SEE-21
    #[test]
    fn other_ranks_of_the_launchers_own_job_are_not_missing() {
        assert_eq!(unseen(&[(1, 3, 4)], &[(1, 3, 4)]), None);
        assert_eq!(unseen(&[(1, 3, 4), (2, 0, 4)], &[(1, 3, 4)]), Some((3, 4)));
    }

    #[test]
    fn forged_ranks_take_bounded_memory() {
        let mut seen = Ranks::default();
        (0..1 << 18).for_each(|rank| seen.add(Rank { job: 1, rank, count: u32::MAX }));
        seen.add(Rank { job: 9, rank: 7, count: 7 });
        assert_eq!((seen.kept, seen.unseen(&[])), (MOST_RANKS, None));
    }
}
