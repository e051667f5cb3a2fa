//! RAM over time: the largest and the mean footprint of the tree, processes and threads at once.
//!
//! Between two samples lies a window. A process that lived at both ends counts with the smaller of its two contributions during
//! all of it. A process that lived for a part of it counts for exactly that time, with its exact peak if it ended. So a process
//! that no sample saw is not lost, and nothing is counted while it did not exist. A record that comes late adds its process to
//! what is kept of the windows in which it lived: processes that are killed together are reaped one by one.
//!
//! Counted like that, RAM is a lower bound where a process ended between two samples between which others grew. With the larger
//! of their contributions it is an upper one (`at_most`), which also has late memory whose end is not dated.
//!
//! - /proc rounds starts down to a clock tick, and a sibling may have ended within it. A child that only a scan shows counts
//!   from its latest possible start on. Means, CPU windows and its wall time begin in the middle of what is possible.
//! - The private part counts only at times at which nearly all of it was read.
//! - Growth since the last sample is the process's own. If nearly all its memory was shared, as much as another process has in
//!   shared memory is left out.
//! - A total is at least what one process is known to have had ([`super::floors`]). A cgroup's figures are no such bound: its
//!   peak counts cache and kernel memory, and it holds the tree alone only with `--cgroup`.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::model::groups::Groups;
use crate::model::report::Holder;
use crate::run::sampling::sums::{Sums, TreeSums};
use crate::run::sampling::{Held, Sample};
use crate::run::series::Series;
use crate::run::tree::{Contribution, LiveInterval, Tree};

use super::largest_by_sample::LargestBySample;

/// A sum of proportional or private sizes is known if at most this many bytes of it were not read. Smaller processes are
/// never read.
const NEGLIGIBLE_BYTES: u64 = 1 << 18;
/// Of a larger sum of proportional sizes, one part in this many may be unread.
const PROPORTIONAL_PART: u64 = 100;
/// Of a larger sum of private sizes, which are good to 5%, one part in this many may be unread.
const PRIVATE_PART: u64 = 20;

/// Whether a sum is known of which `unread_bytes` were not read: one part in `part` or less.
fn is_known(unread_bytes: u64, of_bytes: u64, part: u64) -> bool {
    unread_bytes <= NEGLIGIBLE_BYTES.max(of_bytes / part)
}

/// Whether the private part of memory of this size is known, if `unread_bytes` more may be private.
fn is_private_known(unread_bytes: u64, of_bytes: u64) -> bool {
    is_known(unread_bytes, of_bytes, PRIVATE_PART)
}

/// Most holders of a peak that are kept.
const HOLDERS: usize = 10;

/// The tree's RAM at its largest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeakMoment {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub at_ns: u64,
    /// The tree's footprint, bytes.
    pub footprint_bytes: u64,
    /// The processes that held most of it.
    pub holders: Vec<Holder>,
}

impl PeakMoment {
    /// What is known of a process between two samples is its largest RSS, which can be of another moment. At this one it was
    /// no larger than the footprint.
    fn hold(&mut self, mut holders: Vec<Holder>) {
        holders.iter_mut().for_each(|holder| holder.rss_bytes = holder.rss_bytes.min(self.footprint_bytes));
        self.holders = holders;
    }
}

/// Largest total, private and shared part of some processes' RAM, each on its own, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaxFootprint {
    /// The footprint: private and shared.
    pub footprint_bytes: u64,
    /// Private. `None`: at no time was it known.
    pub private_bytes: Option<u64>,
    /// Shared. `None`: at no sample was it known.
    pub shared_bytes: Option<u64>,
}

impl MaxFootprint {
    /// With a sample.
    fn with(self, now: Sums) -> Self {
        let max = self.with_moment(now);
        let shared = now.known_private().map(|private| now.footprint_bytes.saturating_sub(private));
        Self { shared_bytes: max.shared_bytes.max(shared), ..max }
    }

    /// With a moment between samples. What a process grew by since its last sample is its own.
    fn with_moment(self, now: Sums) -> Self {
        let private = now.known_private().map(|private| private.min(now.footprint_bytes));
        let footprint_bytes = self.footprint_bytes.max(now.footprint_bytes);
        Self { footprint_bytes, private_bytes: self.private_bytes.max(private), ..self }
    }
}

impl Sums {
    /// The private part, if it is known.
    fn known_private(&self) -> Option<u64> {
        let is_known = is_private_known(self.unread_private_bytes, self.footprint_bytes);
        (self.footprint_bytes > 0 && is_known).then_some(self.private_bytes)
    }

    /// The proportional size, if it is known. Readings of different times can add up to more than there is.
    fn known_proportional(&self) -> Option<u64> {
        let is_known = is_known(self.unread_proportional_bytes, self.footprint_bytes, PROPORTIONAL_PART);
        (self.footprint_bytes > 0 && is_known).then_some(self.capped_proportional())
    }

    fn capped_proportional(&self) -> u64 {
        self.proportional_bytes.min(self.footprint_bytes)
    }
}

/// RAM, processes and threads over time.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RamUsage {
    /// The largest RAM.
    pub max: Groups<MaxFootprint>,
    /// The largest footprints if each process held the larger of its contributions between two samples, bytes.
    pub at_most_bytes: Groups<u64>,
    /// Largest sums of proportional sizes at a sample, each on its own, bytes. `None`: at no sample were they known.
    pub proportional_bytes: Groups<Option<u64>>,
    /// Footprints over time, byte-seconds.
    byte_s: Groups<f64>,
    /// The moment of the largest RAM.
    pub peak: Option<PeakMoment>,
    /// The RAM of all over time.
    pub series: Series,
    /// The largest within the time of each of the last samples.
    pub largest_by_sample: LargestBySample,
    /// Most processes at once.
    pub max_processes: u64,
    /// Most threads at once.
    pub threads: Groups<u64>,
    /// Largest memory in use on the machine, bytes.
    pub system_bytes: Option<u64>,
    /// The last windows, oldest first.
    recent: VecDeque<Window>,
}

/// Windows that are kept: with 25 ms between samples, a reaper on a busy machine is no later than they are long.
const WINDOWS: usize = 8;
/// Intervals kept of each, the largest.
const KEPT_INTERVALS: usize = 32;
/// Smaller ones are not kept, bytes.
const KEPT_BYTES: u64 = 1 << 20;

/// The time between two samples, the memory that was held during all of it, and the largest that was for a part of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Window {
    from_ns: u64,
    until_ns: u64,
    steady: TreeSums,
    steady_at_most: TreeSums,
    intervals: Vec<LiveInterval>,
}

impl Window {
    fn overlaps(&self, life: &LiveInterval) -> bool {
        life.end_ns >= self.from_ns && life.start_ns.min(life.end_ns) < self.until_ns
    }

    /// Keeps what later records may overlap.
    fn keep_largest(&mut self) {
        self.intervals.retain(|life| life.memory.added_bytes >= KEPT_BYTES);
        self.intervals.sort_by_key(|life| std::cmp::Reverse(life.memory.added_bytes));
        self.intervals.truncate(KEPT_INTERVALS);
    }
}

/// What a process or memory adds while it is there.
fn sums_of(life: &LiveInterval) -> TreeSums {
    let unread_bytes = life.unread_bytes.unwrap_or(life.memory.added_bytes);
    let threads = if life.is_process { life.threads } else { 0 };
    let sums = TreeSums::of_one(life.is_main, &life.memory, unread_bytes, threads);
    TreeSums { processes: life.is_process.into(), ..sums }
}

fn positive(n: i128) -> u64 {
    n.clamp(0, u64::MAX.into()) as u64
}

impl RamUsage {
    /// The largest footprints so far, bytes, which a new peak must exceed.
    pub fn high_water_mark(&self) -> Groups<u64> {
        self.max.map(|max| max.footprint_bytes)
    }

    /// Mean footprints over a run of that length, bytes.
    pub(crate) fn means(&self, wall_s: f64) -> Option<Groups<f64>> {
        (wall_s > 0.0).then(|| self.byte_s.map(|byte_s| byte_s / wall_s))
    }

    /// Take in a window with the sample at its end, and keep that sample's intervals.
    pub(crate) fn add(&mut self, tree: &Tree, sample: &mut Sample) {
        let intervals = std::mem::take(&mut sample.intervals);
        self.add_moment(tree, sample);
        let Sample { from_ns, at_ns: until_ns, steady, steady_at_most, .. } = *sample;
        let mut window = Window { from_ns, until_ns, steady, steady_at_most, intervals };
        self.sweep(tree, sample, &window);
        self.add_late(tree, sample, &window.intervals);
        self.add_means(sample, &window.intervals);
        window.keep_largest();
        self.recent.push_back(window);
        if self.recent.len() > WINDOWS {
            self.recent.pop_front();
        }
    }

    /// Records of processes that lived before this window.
    fn add_late(&mut self, tree: &Tree, sample: &Sample, intervals: &[LiveInterval]) {
        let late: Vec<&LiveInterval> =
            intervals.iter().filter(|life| life.start_ns < sample.from_ns).collect();
        if late.is_empty() {
            return;
        }
        let mut recent = std::mem::take(&mut self.recent);
        // The steady part of the time before is no longer known.
        let until_ns = recent.front().map_or(sample.from_ns, |window| window.from_ns);
        let mut earlier = Window { until_ns, ..Window::default() };
        for window in recent.iter_mut().chain([&mut earlier]) {
            let kept = window.intervals.len();
            let of_it: Vec<_> =
                late.iter().filter(|life| window.overlaps(life)).map(|life| (*life).clone()).collect();
            window.intervals.extend(of_it);
            if window.intervals.len() > kept {
                self.sweep(tree, sample, window);
                window.keep_largest();
            }
        }
        self.recent = recent;
    }

    /// The sample itself.
    fn add_moment(&mut self, tree: &Tree, sample: &Sample) {
        let all = sample.now.groups();
        self.series.push(sample.from_ns, sample.at_ns, all.combined.footprint_bytes);
        let parts = all.main.capped_proportional() + all.descendants.capped_proportional();
        let combined = Sums { proportional_bytes: parts, ..all.combined };
        let proportional = Groups { combined, ..all }.map(|sums| sums.known_proportional());
        self.proportional_bytes = self.proportional_bytes.with(proportional, Ord::max);
        let holders = || largest(live_holders(tree, sample, sample.at_ns));
        self.largest_by_sample.begin(sample.at_ns);
        self.raise(&sample.now, [sample.at_ns; 2], MaxFootprint::with, holders);
    }

    /// The tree was this large at a moment in the time of the sample `key_ns`.
    fn raise(
        &mut self,
        now: &TreeSums,
        [key_ns, at_ns]: [u64; 2],
        raised: fn(MaxFootprint, Sums) -> MaxFootprint,
        holders: impl FnOnce() -> Vec<Holder>,
    ) {
        let all = now.groups();
        self.max = self.max.with(all, raised);
        self.threads = self.threads.with(all, |most, sums| most.max(sums.threads));
        self.max_processes = self.max_processes.max(now.processes);
        let footprint_bytes = all.combined.footprint_bytes;
        let is_record = footprint_bytes > self.peak.as_ref().map_or(0, |peak| peak.footprint_bytes);
        self.largest_by_sample.raise(key_ns, at_ns, now, is_record);
        if is_record {
            let peak = self.peak.insert(PeakMoment { at_ns, footprint_bytes, holders: Vec::new() });
            peak.hold(holders());
        }
    }

    fn raise_at_most(&mut self, sums: &TreeSums) {
        self.at_most_bytes =
            self.at_most_bytes.with(sums.groups(), |most, sums| most.max(sums.footprint_bytes));
    }

    /// The time between the samples: steps up and down in order of time, ends before starts. A late interval counts in
    /// each window that it overlaps.
    fn sweep(&mut self, tree: &Tree, sample: &Sample, window: &Window) {
        let mut steps: Vec<(u64, i8, &LiveInterval)> = Vec::with_capacity(window.intervals.len() * 2);
        for life in window.intervals.iter().filter(|life| window.overlaps(life)) {
            let start = life.start_ns.clamp(window.from_ns, window.until_ns);
            let end = life.end_ns.clamp(start, window.until_ns);
            steps.push((start, 1, life));
            // A process lived for a moment even if its start and end have the same time.
            steps.push((end.max(start + 1), -1, life));
        }
        steps.sort_unstable_by_key(|(at, sign, _)| (*at, *sign));
        // A late interval can end before its start was counted.
        let mut level = window.steady.map(i128::from);
        let mut at_most = window.steady_at_most.map(i128::from);
        self.raise_at_most(&window.steady_at_most);
        for (at, sign, life) in steps {
            let of_life = sums_of(life).map(|of_life| i128::from(of_life) * i128::from(sign));
            if !life.is_end_rough {
                level = level.with(of_life, |sum, of_life| sum + of_life);
            }
            at_most = at_most.with(of_life, |sum, of_life| sum + of_life);
            if sign > 0 {
                let now = level.map(positive);
                self.raise_at_most(&at_most.map(positive));
                self.series.raise(at, now.groups().combined.footprint_bytes);
                self.raise(&now, [window.until_ns, at], MaxFootprint::with_moment, Vec::new);
            }
        }
        // The holders are found once: with many starting processes, each may set a new peak.
        if let Some(peak) = self.peak.as_mut().filter(|peak| peak.holders.is_empty()) {
            peak.hold(holders_at(tree, sample, &window.intervals, peak.at_ns));
        }
    }

    fn add_means(&mut self, sample: &Sample, intervals: &[LiveInterval]) {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let before = self.byte_s.combined;
        let whole = seconds(sample.at_ns.saturating_sub(sample.from_ns));
        let steady = &sample.steady_mean;
        self.byte_s.main += steady.main.footprint_bytes as f64 * whole;
        self.byte_s.descendants += steady.descendants.footprint_bytes as f64 * whole;
        self.byte_s.combined += steady.footprint_bytes as f64 * whole;
        for life in intervals.iter().filter(|life| !life.is_end_rough) {
            // Late intervals, too: no earlier sample has counted that time.
            let span_s = seconds(life.end_ns.min(sample.at_ns).saturating_sub(life.likely_start_ns));
            self.byte_s.combined += life.memory.added_bytes as f64 * span_s;
            *self.byte_s.part_mut(life.is_main) +=
                life.memory.added_to_part_bytes(life.is_main) as f64 * span_s;
        }
        self.series.add_integral(self.byte_s.combined - before);
    }
}

fn largest(mut holders: Vec<Holder>) -> Vec<Holder> {
    holders.retain(|holder| holder.rss_bytes > 0);
    holders.sort_unstable_by_key(|holder| (std::cmp::Reverse(holder.rss_bytes), holder.pid));
    holders.truncate(HOLDERS);
    holders
}

/// The largest live processes of a sample that were there at this time.
fn live_holders(tree: &Tree, sample: &Sample, at_ns: u64) -> Vec<Holder> {
    let was_there =
        |held: &&Held| tree.get(held.id).is_some_and(|process| process.lifetime.start_ns <= at_ns);
    let mut there: Vec<&Held> = sample.holders.iter().filter(was_there).collect();
    if there.len() > HOLDERS {
        there.select_nth_unstable_by_key(HOLDERS, |held| std::cmp::Reverse(held.rss_bytes));
        there.truncate(HOLDERS);
    }
    let named = there.into_iter().filter_map(|held| {
        let process = tree.get(held.id)?;
        let pid = process.ids.pid();
        let command = process.name.command.to_string();
        let Contribution { added_bytes, private_bytes, .. } = held.contribution;
        let rss_bytes = held.rss_bytes;
        let private_bytes = Some(private_bytes).filter(|_| is_private_known(held.unread_bytes, rss_bytes));
        Some(Holder { pid, command, rss_bytes, private_bytes, added_bytes })
    });
    named.collect()
}

/// The holders at a time: live processes, and those that lived for a part of the window.
fn holders_at(tree: &Tree, sample: &Sample, intervals: &[LiveInterval], at_ns: u64) -> Vec<Holder> {
    let mut holders = live_holders(tree, sample, at_ns);
    let there = intervals.iter().filter(|life| life.start_ns <= at_ns && at_ns <= life.end_ns);
    let mut there: Vec<&LiveInterval> = there.filter(|life| !life.is_process && !life.is_end_rough).collect();
    there.sort_unstable_by_key(|life| std::cmp::Reverse(life.rss_bytes));
    for life in there.into_iter().take(HOLDERS) {
        let Contribution { added_bytes, private_bytes, .. } = life.memory;
        let is_read = life.unread_bytes.is_some_and(|unread| is_private_known(unread, life.rss_bytes));
        let private_bytes = Some(private_bytes).filter(|_| is_read);
        match holders.iter_mut().find(|holder| holder.pid == life.pid) {
            Some(holder) => {
                holder.rss_bytes = holder.rss_bytes.max(life.rss_bytes);
                holder.private_bytes = holder.private_bytes.zip(private_bytes).map(|(a, b)| a.max(b));
                holder.added_bytes = holder.added_bytes.max(added_bytes);
            }
            None => holders.push(Holder {
                pid: life.pid,
                command: life.command.to_string(),
                rss_bytes: life.rss_bytes,
                private_bytes,
                added_bytes,
            }),
        }
    }
    largest(holders)
}
