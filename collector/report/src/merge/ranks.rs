//! The ranks of MPI jobs and Slurm steps, as far as each has a report of its own (`srun gpu-track-run`): which are missing, how
//! they differ, and which to look at.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::spread::spread;
use super::totals::millionths;
use crate::model::report::{Exit, RankPlace, RankUsage, Ranks, Report, UnseenRanks};
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
    /// Adds a report of this node.
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
            Some(rank) => rank.join(of_report),
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
        let missing = jobs.iter().flat_map(|(job, of)| {
            let is_missing = |rank: &u32| !self.ranks.contains_key(&(*job, *of, *rank));
            (0..*of).filter(is_missing).take(MOST_MISSING)
        });
        let mut by_ram: Vec<&RankUsage> = self.ranks.values().collect();
        by_ram.sort_by_key(|rank| (Reverse(rank.peak_ram_bytes), Reverse(rank.cpu_s.map(millionths))));
        let (heaviest, others) = by_ram.split_at(by_ram.len().min(LISTED));
        let list = |ranks: &mut dyn Iterator<Item = &&RankUsage>| ranks.map(|rank| (*rank).clone()).collect();
        let of_all = |value: &dyn Fn(&RankUsage) -> Option<f64>| {
            spread(self.ranks.values().filter_map(|rank| Some((value(rank)?, &rank.place))))
        };
        let bytes = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64);
        let gpu_ram = of_all(&|rank| bytes(rank.peak_gpu_ram_bytes));
        Some(Ranks {
            seen: self.ranks.len() as u64,
            expected: expected(&jobs),
            jobs: jobs.len() as u64,
            missing: missing.take(MOST_MISSING).collect(),
            peak_ram_bytes: of_all(&|rank| bytes(rank.peak_ram_bytes)),
            cpu_s: of_all(&|rank| rank.cpu_s),
            peak_gpu_ram_bytes: gpu_ram.filter(|spread| spread.max > 0.0),
            heaviest: list(&mut heaviest.iter()),
            lightest: list(
                &mut others.iter().rev().filter(|rank| rank.peak_ram_bytes.is_some()).take(LISTED),
            ),
        })
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

/// Counts all ranks of these jobs.
fn expected(jobs: &BTreeSet<(u32, u32)>) -> u64 {
    jobs.iter().map(|(_, of)| u64::from(*of)).sum()
}

/// Another report of the same rank: it started gpu-track-run more than once.
trait Join {
    fn join(&mut self, other: Self);
}

impl Join for RankUsage {
    fn join(&mut self, other: Self) {
        self.wall_s += other.wall_s;
        self.peak_ram_bytes = self.peak_ram_bytes.max(other.peak_ram_bytes);
        self.cpu_s = self.cpu_s.into_iter().chain(other.cpu_s).reduce(|a, b| a + b);
        self.peak_gpu_ram_bytes = self.peak_gpu_ram_bytes.max(other.peak_gpu_ram_bytes);
        if self.exit == (Exit { code: Some(0), signal: None }) {
            self.exit = other.exit;
        }
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
