//! The ranks of MPI jobs and Slurm steps. Some have a report of their own (`srun gpu-track-run`), others were started by a
//! command on the node of its report. Tells which ranks are missing, how they differ, and which to look at.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::ending::{Failure, FirstFailure, LauncherEnd, is_explained, is_failure, is_success};
use super::grid::Grid;
use super::quantity::Span;
use super::rank_series::{self, OpenSeries, Sampling};
use super::spread::spread;
use super::sums::Quantities;
use super::totals::{both, millionths};
use crate::figures::float;
use crate::model::report::{
    Crash, Exit, FailedRank, JobRank, RankPlace, RankSeries, RankUsage, Ranks, Report, Spread, UnseenRanks,
};
use crate::model::sorting::{InOrder, Sorting};
use crate::quote::{CsvColumn, csv_cell, csv_plain, csv_table};

/// How many ranks are listed of each kind.
const LISTED: usize = 10;
/// Maximum number of ranks without figures that are named.
const MOST_MISSING: usize = 100;
/// Maximum number of ranks that are kept. With more, which are missing is not known.
const MOST_RANKS: usize = 1 << 18;

/// The number of the job, how many ranks it has, and the rank.
type RankKey = (u32, u32, u32);

/// The ranks so far.
#[derive(Debug, Default)]
pub(super) struct RankTable {
    grid: Grid,
    /// Which ranks have a series.
    sampling: Sampling,
    /// The ranks of the reports. Several ranks of one key are of different jobs: the environment of their processes does not tell
    /// these jobs apart.
    open: BTreeMap<RankKey, Vec<OpenRank>>,
    /// All ranks; empty before [`RankTable::close`].
    ranks: BTreeMap<RankKey, RankUsage>,
    /// The rank that failed first; none before [`RankTable::close`].
    first_failed: FirstFailure,
    /// The end of the command that started the ranks, if its report is known.
    pub(super) launcher: Option<LauncherEnd>,
    /// Jobs that only the nodes and times of reports tell apart from another job, each with its number of ranks. Which of their
    /// ranks are missing is unknown. Empty before [`RankTable::close`].
    split: BTreeSet<(u32, u32)>,
    /// Ranks over time; empty before [`RankTable::close`].
    series: BTreeMap<RankKey, RankSeries>,
}

/// A rank whose reports are being read.
#[derive(Debug)]
struct OpenRank {
    usage: RankUsage,
    /// When the report ended that the exit in `usage` is from, microseconds since the epoch.
    exit_us: i64,
    /// It is known why it ended so, and that is not only a signal.
    is_explained: bool,
    /// When the commands of its reports ran: each end by its start, microseconds since the epoch.
    spans: BTreeMap<i64, i64>,
    /// The rank over time. `None`: it has no series.
    series: Option<OpenSeries>,
}

/// Gives jobs numbers of their own that have the same one in their reports.
struct JobNumbers {
    used: BTreeSet<u32>,
    next: u32,
    /// The new numbers, by the number in the reports, how many ranks the job has, and which of those with that number it is.
    given: BTreeMap<(u32, u32, usize), u32>,
}

impl JobNumbers {
    /// `used`: the numbers in the reports.
    fn new(used: impl Iterator<Item = u32>) -> Self {
        Self { used: used.ordered_set(), next: 0, given: BTreeMap::new() }
    }

    /// The number of the job that is the one at this place among those with the number `job` and `of` ranks. The first keeps `job`.
    fn number(&mut self, job: u32, of: u32, place: usize) -> u32 {
        if place == 0 {
            return job;
        }
        *self.given.entry((job, of, place)).or_insert_with(|| {
            while !self.used.insert(self.next) && self.next < u32::MAX {
                self.next += 1;
            }
            self.next
        })
    }
}

/// Sums up the ranks of a report of one node. `None`: its command started none.
pub(crate) fn ranks_of_report(report: &Report) -> Option<Ranks> {
    // Ranks that a command started have no series, so any grid will do. It begins at 0, from which their times count.
    let (grid, start_us) = (Grid::over(0, 1), 0);
    let mut table = RankTable::new(grid);
    table.add_started(report.host.hostname.as_deref().unwrap_or_default(), report, start_us);
    table.launcher = Some(LauncherEnd::new((report.wall_s * 1e6) as i64, report));
    table.close();
    table.summary()
}

impl RankTable {
    /// Makes a table without ranks, whose series are on this grid.
    pub(super) fn new(grid: Grid) -> Self {
        Self { grid, ..Self::default() }
    }

    /// Adds the ranks of a report of this node, whose command ran at `span`. They are its own rank, with what the report has over
    /// time, and those that its command started.
    pub(super) fn add(&mut self, node: &str, report: &Report, span: Span, quantities: &Quantities) {
        if let Some(own) = report.rank {
            let usage = RankUsage {
                place: RankPlace { job: own.job, rank: own.rank, node: node.to_owned() },
                pid: own.pid,
                wall_s: report.wall_s,
                peak_ram_bytes: report.max_ram.combined.footprint_bytes,
                cpu_s: report.cpu_time.total_s,
                peak_gpu_ram_bytes: report.max_gpu_ram.combined_bytes,
                exit: report.ending.exit,
            };
            let has_series = true;
            let is_explained = is_explained(report.ending.cause.as_ref());
            let rank = self.add_usage(usage, own.of, (span, is_explained), has_series);
            if let Some(OpenRank { series: Some(series), .. }) = rank {
                series.add(quantities);
            }
            // The new series can be one too many.
            let all = self.open.iter_mut();
            self.sampling.limit(
                all.flat_map(|((.., rank), open)| open.iter_mut().map(|open| (*rank, &mut open.series))),
            );
        }
        self.add_started(node, report, span.start_us);
    }

    /// Adds the ranks that the command of a report started. The report has no series of them. `start_us`: when the command started,
    /// microseconds since the epoch.
    fn add_started(&mut self, node: &str, report: &Report, start_us: i64) {
        for started in &report.job_ranks {
            let JobRank { rank, ref command, start_s, wall_s, cpu_s, exit, .. } = *started;
            let usage = RankUsage {
                place: RankPlace { job: rank.job, rank: rank.rank, node: node.to_owned() },
                pid: rank.pid,
                wall_s,
                peak_ram_bytes: started.peak_ram_bytes,
                cpu_s,
                peak_gpu_ram_bytes: started.peak_gpu_ram_bytes,
                exit,
            };
            let at = |s: f64| start_us.saturating_add((s * 1e6) as i64);
            let span = Span { start_us: at(start_s), end_us: at(start_s + wall_s) };
            let has_series = false;
            // A SIGKILL is a crash only if the kernel sent it for lack of memory (see `Crash`).
            let is_of =
                |crash: &Crash| exit.signal == Some(crash.signal) && crash.command.as_ref() == Some(command);
            let is_explained = report.crashes.iter().flatten().any(is_of);
            self.add_usage(usage, rank.of, (span, is_explained), has_series);
        }
    }

    /// Adds what a rank used at `span`, and returns the rank. `of`: how many ranks its job has. `is_explained`: why it ended so is
    /// known. `has_series`: a report has what the rank used over time. `None`: the job can't have a rank of this number, or there are
    /// too many ranks.
    fn add_usage(
        &mut self,
        usage: RankUsage,
        of: u32,
        (span, is_explained): (Span, bool),
        has_series: bool,
    ) -> Option<&mut OpenRank> {
        let RankPlace { job, rank, ref node } = usage.place;
        let key = (job, of, rank);
        let is_full = self.open.len() >= MOST_RANKS && !self.open.contains_key(&key);
        if rank >= of || is_full {
            return None;
        }
        let open = self.open.entry(key).or_default();
        if let Some(at) = open.iter().position(|rank| rank.fits(node, span)) {
            open[at].join(usage, (span, is_explained));
            return open.get_mut(at);
        }
        let series = if has_series { self.sampling.open(rank, self.grid) } else { None };
        let spans = [(span.start_us, span.end_us)].into_iter().ordered_map();
        open.push(OpenRank { usage, exit_us: span.end_us, is_explained, spans, series });
        open.last_mut()
    }

    /// Ends the table after all reports. Jobs that only the nodes and times of reports tell apart get the next free numbers.
    ///
    /// Ranks of a job begin together. So the n-th rank of a key, by its start, is one of the n-th job.
    pub(super) fn close(&mut self) {
        let mut numbers = JobNumbers::new(self.open.keys().map(|(job, ..)| *job));
        for ((job, of, rank), mut open) in std::mem::take(&mut self.open) {
            open.order_by_key(|rank| rank.spans.keys().next().copied());
            for (at, OpenRank { mut usage, exit_us, is_explained, series, .. }) in
                open.into_iter().enumerate()
            {
                let number = numbers.number(job, of, at);
                if number != job {
                    self.split.insert((number, of));
                }
                usage.place.job = number;
                if let Some(series) = series {
                    self.series.insert((number, of, rank), series.close(usage.place.clone()));
                }
                // Of ranks that failed at one time, the first one by number counts.
                let failure = is_failure(usage.exit).then(|| Failure {
                    end_us: exit_us,
                    file: String::new(),
                    exit: usage.exit,
                    is_explained,
                    place: usage.place.clone(),
                    cause: None,
                });
                let is_by_launcher =
                    |failure: &Failure| self.launcher.as_ref().is_some_and(|end| failure.is_by_launcher(end));
                let own = failure.filter(|failure| !is_by_launcher(failure));
                own.into_iter().for_each(|failure| self.first_failed.add(failure));
                self.ranks.insert((number, of, rank), usage);
            }
        }
    }

    /// All ranks, by job and rank.
    pub(super) fn all(&self) -> impl Iterator<Item = &RankUsage> {
        self.ranks.values()
    }

    /// Makes the report's part on ranks. It counts them, names those that are missing, and says how the ranks of the heaviest job
    /// differ. It has the ranks with the most and the least RAM, and their series. `None`: there are no ranks.
    pub(super) fn summary(&self) -> Option<Ranks> {
        if self.ranks.is_empty() {
            return None;
        }
        let jobs = self.jobs();
        let mut by_ram: Vec<&RankUsage> = self.ranks.values().collect();
        by_ram.order_by_key(|rank| (Reverse(rank.peak_ram_bytes), Reverse(rank.cpu_s.map(millionths))));
        let (heaviest, others) = by_ram.split_at(by_ram.len().min(LISTED));
        // No rank is in both lists.
        let lightest = others.iter().rev().filter(|rank| rank.peak_ram_bytes.is_some()).take(LISTED);
        let compared = self.compared_ranks();
        let gpu_ram = spread_of(&compared, |rank| float(rank.peak_gpu_ram_bytes));
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
            first_failed: self.first_failed.get().map(|failed| FailedRank {
                place: failed.place.clone(),
                at_s: self.grid.at_s(failed.end_us),
                exit: failed.exit,
            }),
            peak_ram_bytes: spread_of(&compared, |rank| float(rank.peak_ram_bytes)),
            cpu_s: spread_of(&compared, |rank| rank.cpu_s),
            // Ranks that all used no GPU do not differ in its memory.
            peak_gpu_ram_bytes: gpu_ram.filter(|spread| spread.max > 0.0),
            heaviest: heaviest.iter().map(|rank| (*rank).clone()).collect(),
            lightest: lightest.map(|rank| (*rank).clone()).collect(),
            series_start_s,
            series_end_s,
            series,
        })
    }

    /// The ranks that are compared: those of the heaviest job, because ranks of different jobs do different work.
    fn compared_ranks(&self) -> Vec<&RankUsage> {
        let heaviest = self.heaviest_job();
        let is_of_heaviest = |(job, of, _): &RankKey| Some((*job, *of)) == heaviest;
        self.ranks.iter().filter(|(key, _)| is_of_heaviest(key)).map(|(_, rank)| rank).collect()
    }

    /// The job that used most CPU time, and how many ranks it has. Of jobs with equal time, it is the one with most known ranks.
    fn heaviest_job(&self) -> Option<(u32, u32)> {
        let mut used: BTreeMap<(u32, u32), (u128, u64)> = BTreeMap::new();
        for ((job, of, _), rank) in &self.ranks {
            let (cpu, ranks) = used.entry((*job, *of)).or_default();
            *cpu += rank.cpu_s.map_or(0, millionths);
            *ranks += 1;
        }
        used.into_iter().max_by_key(|(_, weight)| *weight).map(|(job, _)| job)
    }

    /// The ranks without figures, by job, at most [`MOST_MISSING`]. Those of jobs in [`Self::split`] are unknown.
    fn missing(&self, jobs: &BTreeSet<(u32, u32)>) -> Vec<u32> {
        let of_job = |(job, of): &(u32, u32)| {
            let (job, of) = (*job, *of);
            (0..of).filter(move |rank| !self.ranks.contains_key(&(job, of, *rank)))
        };
        jobs.difference(&self.split).flat_map(of_job).take(MOST_MISSING).collect()
    }

    /// Counts the ranks without figures. `None`: there are none, or there are too many ranks to know.
    pub(super) fn unseen(&self) -> Option<UnseenRanks> {
        if self.ranks.len() >= MOST_RANKS {
            return None;
        }
        let expected = self.expected(&self.jobs());
        let unseen = expected.saturating_sub(self.ranks.len() as u64);
        (unseen > 0).then_some(UnseenRanks { unseen, expected })
    }

    /// Counts all ranks of these jobs, each of which comes with its number of ranks. Of a job in [`Self::split`], only ranks with
    /// figures count.
    fn expected(&self, jobs: &BTreeSet<(u32, u32)>) -> u64 {
        let of_known: u64 = jobs.difference(&self.split).map(|(_, of)| u64::from(*of)).sum();
        let of_split = self.ranks.keys().filter(|(job, of, _)| self.split.contains(&(*job, *of)));
        of_known.saturating_add(of_split.count() as u64)
    }

    /// The jobs, each with its number of ranks.
    fn jobs(&self) -> BTreeSet<(u32, u32)> {
        self.ranks.keys().map(|(job, of, _)| (*job, *of)).ordered_set()
    }
}

impl OpenRank {
    /// Whether a report of this node, whose command ran at `span`, can be of this rank, too. A rank can start gpu-track-run
    /// several times, one after another. A report of the same time, or of another node, is of another job.
    fn fits(&self, node: &str, span: Span) -> bool {
        // The last of the rank's reports that began before this one ended. They do not overlap, so no other one ends later.
        // This report counts as at least 1 us long, so that one that began at the same time is found.
        let before = self.spans.range(..span.end_us.max(span.start_us.saturating_add(1))).next_back();
        self.usage.place.node == node && before.is_none_or(|(_, end_us)| *end_us <= span.start_us)
    }

    /// Adds another report of the rank: times add up, of peaks the largest counts. What is unknown in one is unknown.
    fn join(&mut self, other: RankUsage, (span, is_explained): (Span, bool)) {
        self.spans.insert(span.start_us, span.end_us);
        let usage = &mut self.usage;
        usage.wall_s += other.wall_s;
        usage.peak_ram_bytes = both(usage.peak_ram_bytes, other.peak_ram_bytes, u64::max);
        usage.cpu_s = both(usage.cpu_s, other.cpu_s, |a, b| a + b);
        usage.peak_gpu_ram_bytes = both(usage.peak_gpu_ram_bytes, other.peak_gpu_ram_bytes, u64::max);
        // The first failure counts. If there is none, an unknown exit does, since it can be a failure.
        let weight = |exit: Exit| (is_failure(exit), !is_success(exit));
        let (own, of_other) = (weight(usage.exit), weight(other.exit));
        if of_other > own || (of_other == own && span.end_us < self.exit_us) {
            (usage.exit, self.exit_us, self.is_explained) = (other.exit, span.end_us, is_explained);
        }
    }
}

/// How a value differs between the ranks of which it is known. `None`: it is known of none.
fn spread_of(ranks: &[&RankUsage], value: impl Fn(&RankUsage) -> Option<f64>) -> Option<Spread<RankPlace>> {
    spread(ranks.iter().filter_map(|rank| Some((value(rank)?, &rank.place))))
}

/// The columns of ranks in CSV.
const COLUMNS: [CsvColumn<RankUsage>; 10] = [
    ("job", |rank| rank.place.job.to_string()),
    ("rank", |rank| rank.place.rank.to_string()),
    ("node", |rank| csv_cell(&rank.place.node)),
    ("pid", |rank| csv_plain(rank.pid)),
    ("wall_s", |rank| rank.wall_s.to_string()),
    ("cpu_s", |rank| csv_plain(rank.cpu_s)),
    ("peak_ram_bytes", |rank| csv_plain(rank.peak_ram_bytes)),
    ("peak_gpu_ram_bytes", |rank| csv_plain(rank.peak_gpu_ram_bytes)),
    ("exit_code", |rank| csv_plain(rank.exit.code)),
    ("exit_signal", |rank| csv_plain(rank.exit.signal)),
];

/// Writes ranks as CSV, with the names in the first line. What is not known is empty.
pub fn csv(ranks: &[RankUsage]) -> String {
    csv_table(&COLUMNS, ranks)
}
