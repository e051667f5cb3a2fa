//! The ranks of MPI jobs and Slurm steps, as far as each has a report of its own (`srun gpu-track-run`): which are missing, how
//! they differ, and which to look at.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::ending::{is_failure, is_success};
use super::grid::Grid;
use super::quantity::{Quantity, Span};
use super::rank_series::{self, OpenSeries, Sampling};
use super::spread::spread;
use super::totals::millionths;
use crate::model::report::{Exit, RankPlace, RankSeries, RankUsage, Ranks, Report, Spread, UnseenRanks};
use crate::quote;

/// How many ranks are listed of each kind.
const LISTED: usize = 10;
/// Most ranks without a report that are named.
const MOST_MISSING: usize = 100;

/// The job, its number of ranks, and the rank.
type Key = (u32, u32, u32);

/// The ranks so far.
#[derive(Debug)]
pub(super) struct RankTable {
    grid: Grid,
    /// Which ranks have a series.
    sampling: Sampling,
    /// The ranks that reports have. Of several, each is of another job, whose number the environment does not tell.
    open: BTreeMap<Key, Vec<OpenRank>>,
    /// All ranks, as soon as the last report was added.
    ranks: BTreeMap<Key, RankUsage>,
    /// Jobs that were told apart by their reports, with their numbers of ranks: of these it is not known which ranks are missing.
    split: BTreeSet<(u32, u32)>,
    /// Ranks over time, as soon as the last report was added.
    series: BTreeMap<Key, RankSeries>,
}

/// A rank whose reports are being read.
#[derive(Debug)]
struct OpenRank {
    usage: RankUsage,
    /// The end of the report whose exit it has, microseconds since the epoch.
    exit_us: i64,
    /// When its reports ran: each end, by its start, microseconds since the epoch.
    spans: BTreeMap<i64, i64>,
    /// `None`: it is not one of those that have a series.
    series: Option<OpenSeries>,
}

impl RankTable {
    /// Makes a table without ranks, whose series are on this grid.
    pub(super) fn new(grid: Grid) -> Self {
        Self {
            grid,
            sampling: Sampling::default(),
            open: BTreeMap::new(),
            ranks: BTreeMap::new(),
            split: BTreeSet::new(),
            series: BTreeMap::new(),
        }
    }

    /// Adds a report of this node, whose command ran at `span`, with its RAM and CPU utilisation over time. Nothing is added if it
    /// is of no rank, or of one that can't be.
    pub(super) fn add(
        &mut self,
        node: &str,
        report: &Report,
        span: Span,
        ram: Option<&Quantity>,
        cpu: Option<&Quantity>,
    ) {
        let Some(own) = report.rank.filter(|own| own.rank < own.of) else { return };
        let usage = RankUsage {
            place: RankPlace { job: own.job, rank: own.rank, node: node.to_owned() },
            pid: own.pid,
            wall_s: report.wall_s,
            peak_ram_bytes: report.max_ram.combined.footprint_bytes,
            cpu_s: report.cpu_time.total_s,
            peak_gpu_ram_bytes: report.max_gpu_ram.combined_bytes,
            exit: report.ending.exit,
        };
        let open = self.open.entry((own.job, own.of, own.rank)).or_default();
        let at = match open.iter().position(|rank| rank.can_have(node, span)) {
            Some(at) => {
                open[at].join(usage, span);
                at
            }
            None => {
                open.push(OpenRank {
                    usage,
                    exit_us: span.end_us,
                    spans: BTreeMap::from([(span.start_us, span.end_us)]),
                    series: self.sampling.open(own.rank, self.grid),
                });
                open.len() - 1
            }
        };
        if let Some(series) = &mut open[at].series {
            series.add(ram, cpu);
        }
        let all = self.open.iter_mut();
        self.sampling
            .limit(all.flat_map(|((.., rank), open)| open.iter_mut().map(|open| (*rank, &mut open.series))));
    }

    /// Ends the table: all reports were added. Jobs that were told apart by their reports get the next free numbers.
    pub(super) fn close(&mut self) {
        let mut used: BTreeSet<u32> = self.open.keys().map(|(job, ..)| *job).collect();
        let mut numbers: BTreeMap<(u32, u32, usize), u32> = BTreeMap::new();
        let mut next = 0;
        for ((job, of, rank), open) in std::mem::take(&mut self.open) {
            for (at, OpenRank { mut usage, series, .. }) in open.into_iter().enumerate() {
                let number = *numbers.entry((job, of, at)).or_insert_with(|| {
                    if at == 0 {
                        return job;
                    }
                    while !used.insert(next) && next < u32::MAX {
                        next += 1;
                    }
                    self.split.insert((next, of));
                    next
                });
                usage.place.job = number;
                if let Some(series) = series {
                    self.series.insert((number, of, rank), series.close(usage.place.clone()));
                }
                self.ranks.insert((number, of, rank), usage);
            }
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
        let series: Vec<RankSeries> = self.series.values().cloned().collect();
        let (series_start_s, series_end_s) = match series.is_empty() {
            true => Default::default(),
            false => rank_series::axis(self.grid),
        };
        Some(Ranks {
            seen: self.ranks.len() as u64,
            expected: self.expected(&jobs),
            jobs: jobs.len() as u64,
            missing: self.missing(&jobs),
            peak_ram_bytes: self.spread(|rank| as_f64(rank.peak_ram_bytes)),
            cpu_s: self.spread(|rank| rank.cpu_s),
            // Ranks that used no GPU do not differ in it.
            peak_gpu_ram_bytes: gpu_ram.filter(|spread| spread.max > 0.0),
            heaviest: heaviest.iter().map(|rank| (*rank).clone()).collect(),
            lightest: lightest.map(|rank| (*rank).clone()).collect(),
            series_start_s,
            series_end_s,
            series,
        })
    }

    /// Gives how a value differs between the ranks of which it is known. `None`: it is known of none.
    fn spread(&self, value: impl Fn(&RankUsage) -> Option<f64>) -> Option<Spread<RankPlace>> {
        spread(self.ranks.values().filter_map(|rank| Some((value(rank)?, &rank.place))))
    }

    /// Gives the ranks without a report, by job, at most [`MOST_MISSING`]. Those of jobs that were told apart by their reports are
    /// unknown.
    fn missing(&self, jobs: &BTreeSet<(u32, u32)>) -> Vec<u32> {
        let of_job = |(job, of): &(u32, u32)| {
            let (job, of) = (*job, *of);
            (0..of).filter(move |rank| !self.ranks.contains_key(&(job, of, *rank)))
        };
        jobs.difference(&self.split).flat_map(of_job).take(MOST_MISSING).collect()
    }

    /// Counts the ranks without a report. `None`: there are none.
    pub(super) fn unseen(&self) -> Option<UnseenRanks> {
        let expected = self.expected(&self.jobs());
        let unseen = expected.saturating_sub(self.ranks.len() as u64);
        (unseen > 0).then_some(UnseenRanks { unseen, expected })
    }

    /// Counts all ranks of these jobs, each of which comes with its number of ranks. Of jobs that were told apart by their
    /// reports, these ranks count.
    fn expected(&self, jobs: &BTreeSet<(u32, u32)>) -> u64 {
        let of_known: u64 = jobs.difference(&self.split).map(|(_, of)| u64::from(*of)).sum();
        let of_split = self.ranks.keys().filter(|(job, of, _)| self.split.contains(&(*job, *of)));
        of_known.saturating_add(of_split.count() as u64)
    }

    /// Gives the jobs, each with its number of ranks.
    fn jobs(&self) -> BTreeSet<(u32, u32)> {
        self.ranks.keys().map(|(job, of, _)| (*job, *of)).collect()
    }
}

impl OpenRank {
    /// Whether a report of this node, whose command ran at `span`, can be of the same rank: one that started gpu-track-run more
    /// than once. One of the same time, or of another node, is of another job.
    fn can_have(&self, node: &str, span: Span) -> bool {
        let before = self.spans.range(..span.end_us.max(span.start_us.saturating_add(1))).next_back();
        self.usage.place.node == node && before.is_none_or(|(_, end_us)| *end_us <= span.start_us)
    }

    /// Adds another report of the rank: times add up, of peaks the largest counts. What is unknown in one is unknown.
    fn join(&mut self, other: RankUsage, span: Span) {
        self.spans.insert(span.start_us, span.end_us);
        let usage = &mut self.usage;
        usage.wall_s += other.wall_s;
        let largest = |a: Option<u64>, b: Option<u64>| Option::zip(a, b).map(|(a, b)| a.max(b));
        usage.peak_ram_bytes = largest(usage.peak_ram_bytes, other.peak_ram_bytes);
        usage.cpu_s = Option::zip(usage.cpu_s, other.cpu_s).map(|(a, b)| a + b);
        usage.peak_gpu_ram_bytes = largest(usage.peak_gpu_ram_bytes, other.peak_gpu_ram_bytes);
        // The first failure counts. If there is none, an unknown exit can be one.
        let weight = |exit: Exit| (is_failure(exit), !is_success(exit));
        let (own, of_other) = (weight(usage.exit), weight(other.exit));
        if of_other > own || (of_other == own && span.end_us < self.exit_us) {
            (usage.exit, self.exit_us) = (other.exit, span.end_us);
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
