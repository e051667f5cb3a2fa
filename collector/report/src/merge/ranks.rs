//! The ranks of MPI jobs and Slurm steps, as far as each has a report of its own (`srun gpu-track-run`): which are missing, how
//! they differ, and which to look at.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::spread::spread;
use super::totals::millionths;
use crate::model::report::{Exit, RankPlace, RankUsage, Ranks, Report, Spread, UnseenRanks};
use crate::quote;

/// How many ranks are listed of each kind.
const LISTED: usize = 10;
/// Most ranks without a report that are named.
const MOST_MISSING: usize = 100;

/// The ranks so far, by job, number of ranks, and rank.
#[derive(Debug, Default)]
pub(super) struct RankTable {
    ranks: BTreeMap<(u32, u32, u32), RankUsage>,
}

impl RankTable {
    /// Adds a report of this node. Nothing is added if it is of no rank, or of one that can't be.
    pub(super) fn add(&mut self, node: &str, report: &Report) {
        let Some(own) = report.rank.filter(|own| own.rank < own.of) else { return };
        let of_report = RankUsage {
            place: RankPlace { job: own.job, rank: own.rank, node: node.to_owned() },
            pid: own.pid,
            wall_s: report.wall_s,
            peak_ram_bytes: report.max_ram.combined.footprint_bytes,
            cpu_s: report.cpu_time.total_s,
            peak_gpu_ram_bytes: report.max_gpu_ram.combined_bytes,
            exit: report.ending.exit,
        };
        let key = (own.job, own.of, own.rank);
        match self.ranks.get_mut(&key) {
            Some(rank) => join(rank, of_report),
            None => drop(self.ranks.insert(key, of_report)),
        }
    }

    /// Gives all ranks, by job and rank.
    pub(super) fn all(&self) -> impl Iterator<Item = &RankUsage> {
        self.ranks.values()
    }

    /// Sums up the ranks. `None`: no report is of one.
    pub(super) fn summary(&self) -> Option<Ranks> {
        if self.ranks.is_empty() {
            return None;
        }
        let jobs = self.jobs();
        let mut by_ram: Vec<&RankUsage> = self.ranks.values().collect();
        by_ram.sort_by_key(|rank| (Reverse(rank.peak_ram_bytes), Reverse(rank.cpu_s.map(millionths))));
        let (heaviest, others) = by_ram.split_at(by_ram.len().min(LISTED));
        // No rank is in both lists.
        let lightest = others.iter().rev().filter(|rank| rank.peak_ram_bytes.is_some()).take(LISTED);
        let as_f64 = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64);
        let gpu_ram = self.spread(|rank| as_f64(rank.peak_gpu_ram_bytes));
        Some(Ranks {
            seen: self.ranks.len() as u64,
            expected: expected(&jobs),
            jobs: jobs.len() as u64,
            missing: self.missing(&jobs),
            peak_ram_bytes: self.spread(|rank| as_f64(rank.peak_ram_bytes)),
            cpu_s: self.spread(|rank| rank.cpu_s),
            // Ranks that used no GPU do not differ in it.
            peak_gpu_ram_bytes: gpu_ram.filter(|spread| spread.max > 0.0),
            heaviest: heaviest.iter().map(|rank| (*rank).clone()).collect(),
            lightest: lightest.map(|rank| (*rank).clone()).collect(),
        })
    }

    /// Gives how a value differs between the ranks of which it is known. `None`: it is known of none.
    fn spread(&self, value: impl Fn(&RankUsage) -> Option<f64>) -> Option<Spread<RankPlace>> {
        spread(self.ranks.values().filter_map(|rank| Some((value(rank)?, &rank.place))))
    }

    /// Gives the ranks without a report, by job, at most [`MOST_MISSING`].
    fn missing(&self, jobs: &BTreeSet<(u32, u32)>) -> Vec<u32> {
        let of_job = |(job, of): &(u32, u32)| {
            let (job, of) = (*job, *of);
            (0..of).filter(move |rank| !self.ranks.contains_key(&(job, of, *rank)))
        };
        jobs.iter().flat_map(of_job).take(MOST_MISSING).collect()
    }

    /// Counts the ranks without a report. `None`: there are none.
    pub(super) fn unseen(&self) -> Option<UnseenRanks> {
        let expected = expected(&self.jobs());
        let unseen = expected.saturating_sub(self.ranks.len() as u64);
        (unseen > 0).then_some(UnseenRanks { unseen, expected })
    }

    /// Gives the jobs, each with its number of ranks.
    fn jobs(&self) -> BTreeSet<(u32, u32)> {
        self.ranks.keys().map(|(job, of, _)| (*job, *of)).collect()
    }
}

/// Counts all ranks of these jobs, each of which comes with its number of ranks.
fn expected(jobs: &BTreeSet<(u32, u32)>) -> u64 {
    jobs.iter().map(|(_, of)| u64::from(*of)).sum()
}

/// Adds another report of the same rank, which started gpu-track-run more than once: times add up, of peaks the largest counts.
fn join(rank: &mut RankUsage, other: RankUsage) {
    rank.wall_s += other.wall_s;
    rank.peak_ram_bytes = rank.peak_ram_bytes.max(other.peak_ram_bytes);
    rank.cpu_s = rank.cpu_s.into_iter().chain(other.cpu_s).reduce(|a, b| a + b);
    rank.peak_gpu_ram_bytes = rank.peak_gpu_ram_bytes.max(other.peak_gpu_ram_bytes);
    // The first failure stays.
    if rank.exit == (Exit { code: Some(0), signal: None }) {
        rank.exit = other.exit;
    }
}

/// Writes ranks as CSV, with the names in the first line. What is not known is empty.
#[must_use]
pub fn csv(ranks: &[RankUsage]) -> String {
    let head = "job,rank,node,pid,wall_s,cpu_s,peak_ram_bytes,peak_gpu_ram_bytes,exit_code,exit_signal\n";
    fn cell<T: ToString>(value: Option<T>) -> String {
        value.map(|value| value.to_string()).unwrap_or_default()
    }
    let row = |rank: &RankUsage| {
        let RankUsage { place, pid, wall_s, peak_ram_bytes, cpu_s, peak_gpu_ram_bytes, exit } = rank;
        format!(
            "{},{},{},{},{wall_s},{},{},{},{},{}\n",
            place.job,
            place.rank,
            quote::csv_cell(&place.node),
            cell(*pid),
            cell(*cpu_s),
            cell(*peak_ram_bytes),
            cell(*peak_gpu_ram_bytes),
            cell(exit.code),
            cell(exit.signal)
        )
    };
    [head.to_owned()].into_iter().chain(ranks.iter().map(row)).collect()
}
