//! Ranks of MPI jobs and Slurm steps: what each used in this tree, and how many have no process in it. START records name the
//! rank of a process. One without a START record has the rank of its parent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gpu_track_abi::rank::Rank;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::sampling::Sample;
use super::tree::{ProcessSummary, Tree};
use crate::model::mpi_daemons;
use crate::model::report::{Exit, JobRank, OwnRank, UnseenRanks};

/// Maximum number of ranks that are counted. If there are more, how many are missing stays unknown.
const MAX_RANKS: u64 = 1 << 17;
/// Maximum number of ranks whose usage is kept: more than a node has cores.
const MAX_RANKS_WITH_USAGE: usize = 4096;

/// The ranks of which a process was seen.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ranks {
    /// The numbers of the ranks, by job id and size of the job. MPICH's environment has no job id, so its jobs of equal size
    /// count as one.
    seen: BTreeMap<(u32, u32), BTreeSet<u32>>,
    /// How many ranks `seen` has.
    seen_count: u64,
    /// What each rank used.
    used: BTreeMap<Rank, RankTotals>,
}

/// What the processes of a rank used. A process is finalized when no record can change its figures any more.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
struct RankTotals {
    /// Largest sum of what its processes added to the footprint at a sample, bytes.
    sampled_bytes: u64,
    /// Largest RSS that one of them is known to have had, bytes.
    largest_rss_bytes: u64,
    /// Largest GPU memory of one of them, bytes. `None`: none was seen on a GPU whose driver reports memory.
    gpu_bytes: Option<u64>,
    /// CPU time of the finalized ones, microseconds.
    cpu_us: u64,
    /// `cpu_us` lacks the CPU time of at least one finalized process, since that is not known.
    is_any_cpu_unknown: bool,
    /// How many have been finalized.
    processes: u64,
    /// When the last of the finalized ones ended, CLOCK_MONOTONIC nanoseconds.
    end_ns: u64,
    /// The finalized one that started first.
    first: Option<FirstProcess>,
}

/// The process of a rank that started first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct FirstProcess {
    /// CLOCK_MONOTONIC, nanoseconds.
    start_ns: u64,
    pid: u32,
    command: Arc<str>,
    exit: Exit,
}

impl RankTotals {
    /// Adds a process that was finalized.
    fn add(&mut self, process: &ProcessSummary) {
        self.processes += 1;
        match process.known_cpu_us() {
            Some(us) => self.cpu_us = self.cpu_us.saturating_add(us),
            None => self.is_any_cpu_unknown = true,
        }
        self.largest_rss_bytes = self.largest_rss_bytes.max(process.memory.known_rss.own_bytes);
        self.end_ns = self.end_ns.max(process.end_ns());
        if self.first.as_ref().is_none_or(|first| process.start_ns < first.start_ns) {
            self.first = Some(FirstProcess {
                start_ns: process.start_ns,
                pid: process.ids.pid(),
                command: process.name.command.clone(),
                exit: process.exit,
            });
        }
    }

    /// The rank's entry in the report. `start_ns`: the run's start, CLOCK_MONOTONIC nanoseconds. `None`: none of its
    /// processes has been finalized, or the first one is an MPI daemon. A daemon has the environment of a rank of the step that
    /// started it.
    fn report(&self, rank: Rank, start_ns: u64) -> Option<JobRank> {
        let first = self.first.as_ref().filter(|first| !mpi_daemons::is_daemon(&first.command))?;
        let seconds = |ns: u64| ns as f64 / 1e9;
        let peak_ram_bytes = self.sampled_bytes.max(self.largest_rss_bytes);
        Some(JobRank {
            rank: OwnRank { job: rank.job, rank: rank.rank, of: rank.count, pid: Some(first.pid) },
            command: first.command.to_string(),
            processes: self.processes,
            start_s: seconds(first.start_ns.saturating_sub(start_ns)),
            wall_s: seconds(self.end_ns.saturating_sub(first.start_ns)),
            cpu_s: (!self.is_any_cpu_unknown).then_some(self.cpu_us as f64 / 1e6),
            peak_ram_bytes: Some(peak_ram_bytes).filter(|bytes| *bytes > 0),
            peak_gpu_ram_bytes: self.gpu_bytes,
            exit: first.exit,
        })
    }
}

impl Ranks {
    /// Notes the rank that a process's environment names, if it is one of several.
    pub(crate) fn add_if_of_several(&mut self, rank: Rank) {
        if rank.is_of_several() && self.seen_count < MAX_RANKS {
            let is_new = self.seen.entry((rank.job, rank.count)).or_default().insert(rank.rank);
            self.seen_count += u64::from(is_new);
        }
    }

    /// Adds a process that was finalized to its rank, if it has one. `gpu_bytes`: its GPU memory peak, if that is known.
    pub(crate) fn add_finalized(&mut self, process: &ProcessSummary, gpu_bytes: Option<u64>) {
        let Some(totals) = process.ids.rank.and_then(|rank| self.totals_of(rank)) else { return };
        totals.add(process);
        totals.gpu_bytes = totals.gpu_bytes.max(gpu_bytes);
    }

    /// Takes in what the processes of each rank held at a sample. The largest sum of a rank is kept.
    pub(crate) fn add_sample(&mut self, tree: &Tree, sample: &Sample) {
        // A START record adds its rank to `seen` and to the process. So while `seen` is empty, no process has a rank.
        if self.seen.is_empty() {
            return;
        }
        let mut sums: FxHashMap<Rank, u64> = FxHashMap::default();
        for held in &sample.holders {
            if let Some(rank) = tree.get(held.id).and_then(|process| process.ids.rank) {
                let sum = sums.entry(rank).or_default();
                *sum = sum.saturating_add(held.contribution.added_bytes);
            }
        }
        for (rank, sum) in sums {
            if let Some(totals) = self.totals_of(rank) {
                totals.sampled_bytes = totals.sampled_bytes.max(sum);
            }
        }
    }

    /// The totals of a rank; those of a new one are empty. `None`: the rank is new, and there are too many.
    fn totals_of(&mut self, rank: Rank) -> Option<&mut RankTotals> {
        let has_room = self.used.len() < MAX_RANKS_WITH_USAGE;
        (has_room || self.used.contains_key(&rank)).then(|| self.used.entry(rank).or_default())
    }

    /// What each rank used. The launcher's `own` ranks are left out, since the whole tree belongs to them. `start_ns`: the
    /// run's start, CLOCK_MONOTONIC nanoseconds.
    pub(crate) fn used(&self, own: &[Rank], start_ns: u64) -> Vec<JobRank> {
        let others = self.used.iter().filter(|(rank, _)| !own.contains(rank));
        others.filter_map(|(rank, totals)| totals.report(*rank, start_ns)).collect()
    }

    /// How many ranks' usage is not kept, since there are too many.
    pub(crate) fn left_out(&self) -> u64 {
        self.seen_count.saturating_sub(MAX_RANKS_WITH_USAGE as u64)
    }

    /// How many ranks have no process in the tree. `None`: none is missing, or there are too many to know. `own`: the
    /// launcher's ranks. Their jobs do not count: the launcher is a part of those, and the tree inherits its environment.
    pub(crate) fn unseen(&self, own: &[Rank]) -> Option<UnseenRanks> {
        if self.seen_count >= MAX_RANKS {
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
    use crate::model::ids::{Key, ProcessId};
    use crate::model::quality::Quality;
    use crate::run::cause::tests::process;
    use crate::run::sampling::Held;
    use crate::run::tree::{ChildSeen, Contribution, RunContext};

    fn unseen(ranks: &[(u32, u32, u32)], own: &[(u32, u32, u32)]) -> Option<(u64, u64)> {
        let rank = |&(job, rank, count): &(u32, u32, u32)| Rank { job, rank, count };
        let mut seen = Ranks::default();
        ranks.iter().for_each(|one| seen.add_if_of_several(rank(one)));
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

    /// A process of a rank, which used 2 s of CPU time.
    fn process_of(rank: Rank, pid: u32, start_ns: u64, rss_bytes: u64, command: &str) -> ProcessSummary {
        let mut process = process(pid, command, Exit { code: Some(0), signal: None });
        process.ids.rank = Some(rank);
        (process.start_ns, process.wall_ns) = (start_ns, 1_000_000_000);
        process.memory.known_rss.own_bytes = rss_bytes;
        // A peak that is only an upper bound tells nothing of what the rank had.
        (process.memory.peak_rss_bytes, process.memory.peak_quality) = (Some(1 << 40), Quality::Bound);
        process
    }

    // Requirement: NODE-15
    #[test]
    fn processes_of_a_rank_are_added_up_under_the_name_of_the_first() {
        let rank = |rank| Rank { job: 1, rank, count: 3 };
        let mut ranks = Ranks::default();
        // Children are finalized before their parents.
        ranks.add_finalized(&process_of(rank(0), 21, 2_500_000_000, 7000, "helper"), Some(30));
        ranks.add_finalized(&process_of(rank(0), 20, 2_000_000_000, 5000, "app"), None);
        ranks.add_finalized(&process_of(rank(1), 30, 2_000_000_000, 5000, "app"), None);
        ranks.add_finalized(&process_of(rank(2), 40, 2_000_000_000, 5000, "/usr/bin/orted"), None);
        let used = ranks.used(&[rank(1)], 500_000_000);
        let [first] = &used[..] else { panic!("the launcher's own, and a daemon: {used:?}") };
        assert_eq!((first.rank.pid, &*first.command, first.processes), (Some(20), "app", 2));
        assert_eq!((first.start_s, first.wall_s, first.cpu_s), (1.5, 1.5, Some(4.0)));
        assert_eq!((first.peak_ram_bytes, first.peak_gpu_ram_bytes), (Some(7000), Some(30)));
    }

    // Requirement: NODE-15
    #[test]
    fn ram_of_a_rank_is_its_largest_sum_at_a_sample() {
        let rank = Rank { job: 1, rank: 0, count: 2 };
        let mut tree = Tree::new(RunContext::of_test(1, 1, 0));
        tree.set_main(10, 0, "mpirun");
        let main = tree.alive()[0];
        for pid in [20, 21] {
            let id = tree.found_in_proc(&ChildSeen::of_test(Key { pid_ns: 1, pid }, main, 1));
            tree.get_mut(id).unwrap().ids.rank = Some(rank);
        }
        let held = |id: &ProcessId| Held {
            id: *id,
            rss_bytes: 4500,
            contribution: Contribution::private(4000),
            steady_bytes: None,
            unread_bytes: 0,
            cpu_ns: 0,
        };
        let holders = tree.alive().iter().map(held).collect();
        let mut ranks = Ranks::default();
        ranks.add_if_of_several(rank);
        ranks.add_sample(&tree, &Sample { holders, ..Sample::default() });
        ranks.add_finalized(&process_of(rank, 20, 1, 5000, "app"), None);
        assert_eq!(ranks.used(&[], 0)[0].peak_ram_bytes, Some(8000), "two processes, and not the third one");
    }

    #[test]
    fn usage_of_forged_ranks_takes_bounded_memory() {
        let mut ranks = Ranks::default();
        for number in 0..2 * MAX_RANKS_WITH_USAGE as u32 {
            let rank = Rank { job: 1, rank: number, count: u32::MAX };
            ranks.add_if_of_several(rank);
            ranks.add_finalized(&process_of(rank, 9, 0, 1, "x"), None);
        }
        assert_eq!(
            (ranks.used(&[], 0).len(), ranks.left_out()),
            (MAX_RANKS_WITH_USAGE, MAX_RANKS_WITH_USAGE as u64)
        );
    }

    #[test]
    fn forged_ranks_take_bounded_memory() {
        let mut seen = Ranks::default();
        (0..1 << 18).for_each(|rank| seen.add_if_of_several(Rank { job: 1, rank, count: u32::MAX }));
        seen.add_if_of_several(Rank { job: 9, rank: 7, count: 7 });
        assert_eq!((seen.seen_count, seen.unseen(&[])), (MAX_RANKS, None));
    }
}
