//! RAM over time: the largest and the mean footprint of the tree (its distinct resident pages), processes and threads at once.
//!
//! Between two samples lies a window. A process that lived at both ends counts with the smaller of its two contributions (what it
//! adds to the footprint) during all of it. A process that lived for a part of it counts for exactly that time, with its exact
//! peak if it ended. So a process that no sample saw is not lost, and none counts while it did not exist. Records can come late:
//! processes that are killed together are reaped one by one. A late record adds its process to what is kept of the windows in
//! which the process lived.
//!
//! If a process ended between two samples while others grew, RAM that is counted like this is a lower bound. The upper bound
//! (`at_most`) counts the larger of the others' contributions, and memory from late records whose end is known only roughly.
//!
//! - /proc rounds starts down to a clock tick, and a sibling may have ended within it. A child that only a scan of /proc shows
//!   counts from its latest possible start on. Means, CPU windows and its wall time begin in the middle of what is possible.
//! - The private part counts only at times at which nearly all of it was read.
//! - Growth since the last sample counts as the process's own. If most of its memory was shared, the growth may be another process's
//!   pages. So as much as that one has in shared memory is left out.
//! - A total is at least what one process is known to have had ([`super::floors`]). A cgroup's figures are no such bound: its
//!   peak counts cache and kernel memory, and it holds the tree alone only with `--cgroup`.

use std::collections::VecDeque;
use std::ops::Range;

use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

use crate::model::groups::Groups;
use crate::model::ids::ProcessId;
use crate::model::sorting::Sorting;
use crate::run::sampling::Sample;
use crate::run::sampling::sums::{Sums, TreeSums};
use crate::run::tree::{LiveInterval, Tree};

use super::largest_by_sample::{self, LargestBySample};
use super::peak_moment::{PeakHolders, PeakMoment, SteadyHolders};
use super::tolerance::{is_private_known, is_proportional_known};

/// The largest footprint of some processes, and the largest private and shared part of it. Each can be of another time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaxFootprint {
    /// The footprint: private and shared memory.
    pub footprint_bytes: u64,
    /// Private: pages that only one process maps. `None`: at no time was it known.
    pub private_bytes: Option<u64>,
    /// The rest, which several processes map. `None`: at no sample was it known.
    pub shared_bytes: Option<u64>,
}

impl MaxFootprint {
    /// The maximum that includes a sample's sums.
    fn with_sample(self, now: Sums) -> Self {
        let max = self.with_moment(now);
        let shared = now.known_private().map(|private| now.footprint_bytes.saturating_sub(private));
        Self { shared_bytes: max.shared_bytes.max(shared), ..max }
    }

    /// The maximum that includes the sums at a moment between samples. The shared part is only known at samples.
    fn with_moment(self, now: Sums) -> Self {
        // Readings of different times can add up to more private memory than the footprint has.
        let private = now.known_private().map(|private| private.min(now.footprint_bytes));
        let footprint_bytes = self.footprint_bytes.max(now.footprint_bytes);
        Self { footprint_bytes, private_bytes: self.private_bytes.max(private), ..self }
    }
}

impl Sums {
    /// The private part, bytes. `None`: too much was not read, or there is no memory.
    fn known_private(&self) -> Option<u64> {
        let is_known = is_private_known(self.unread_private_bytes, self.footprint_bytes);
        (self.footprint_bytes > 0 && is_known).then_some(self.private_bytes)
    }

    /// The capped proportional size, bytes. `None`: too much was not read, or there is no memory.
    fn known_proportional(&self) -> Option<u64> {
        let is_known = is_proportional_known(self.unread_proportional_bytes, self.footprint_bytes);
        (self.footprint_bytes > 0 && is_known).then_some(self.capped_proportional())
    }

    /// The proportional size, but at most the footprint, bytes: readings of different times can add up to more than there is.
    fn capped_proportional(&self) -> u64 {
        self.proportional_bytes.min(self.footprint_bytes)
    }
}

/// The peak of the tree's memory in swap, and that of its footprint and swap together. They can be of different samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwapPeaks {
    /// In swap, bytes.
    pub peak_bytes: u64,
    /// The footprint and what is in swap together, bytes.
    pub with_ram_peak_bytes: u64,
}

/// RAM, processes and threads over time.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RamUsage {
    /// The largest RAM.
    pub max: Groups<MaxFootprint>,
    /// Upper bounds of the largest footprints: between two samples each process counts with the larger of its contributions, bytes.
    pub at_most_bytes: Groups<u64>,
    /// How much of them may be in pages that fork relatives have at one address, bytes: the largest amount at a sample. No reading
    /// tells these pages apart.
    pub unseen_bytes: u64,
    /// Largest sums of proportional sizes at a sample, each on its own, bytes. `None`: at no sample were they known.
    pub proportional_bytes: Groups<Option<u64>>,
    /// Memory in swap. `None`: no sample knew it.
    pub swap: Option<SwapPeaks>,
    /// Footprints over time, byte-seconds.
    pub(in crate::run) byte_s: Groups<f64>,
    /// The moment of the largest RAM.
    pub peak: Option<PeakMoment>,
    /// The largest figures within the time of each of the last samples, which late records can still raise.
    pub largest_by_sample: LargestBySample,
    /// Maximum number of processes at once.
    pub max_processes: u64,
    /// Maximum number of threads at once.
    pub threads: Groups<u64>,
    /// Largest memory in use on the machine, bytes.
    pub system_bytes: Option<u64>,
    /// The last windows, oldest first.
    recent: VecDeque<Window>,
}

/// How many windows are kept for late records, beside that of the last sample. With 25 ms between samples, together they are
/// longer than a reaper on a busy machine is late. A collector that was stopped for a while takes in late records over many
/// samples. With 8 windows, 2 of 150 runs with such a collector had a tenth less RAM than there was.
const WINDOWS: usize = largest_by_sample::REMEMBERED - 1;
/// How many intervals of memory are kept of each window: the largest ones. With 32, 1 of 200 runs with such a collector had less
/// RAM than there was.
const KEPT_INTERVALS: usize = 128;
/// Maximum number of intervals in all kept windows together: they take memory, and go into the state file.
const MAX_INTERVALS: usize = 2048;
/// Intervals with less memory than this are not kept, bytes.
const KEPT_BYTES: u64 = 1 << 20;

/// The time between two samples, what was there during all of it, and what was there for a part of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Window {
    /// Time of the sample before, CLOCK_MONOTONIC nanoseconds.
    from_ns: u64,
    /// Time of the sample that ends it, CLOCK_MONOTONIC nanoseconds.
    until_ns: u64,
    /// Sums of the processes that both samples saw, each with the smaller of its two contributions.
    steady: TreeSums,
    /// The same sums with the larger of the two.
    steady_at_most: TreeSums,
    /// What held `steady`.
    steady_holders: SteadyHolders,
    /// Processes and memory that were there for a part of it. A kept window has only the largest: see
    /// [`Self::drop_small_intervals`].
    intervals: Vec<LiveInterval>,
}

impl Window {
    /// Whether the interval has a part in this window.
    fn overlaps(&self, interval: &LiveInterval) -> bool {
        interval.end_ns >= self.from_ns && interval.start_ns.min(interval.end_ns) < self.until_ns
    }

    /// The begin and the end of each interval within this window, in order of time. Of several at one time, the ends come
    /// first: an interval that ends when another begins was not there together with that one.
    fn steps(&self) -> Vec<Step<'_>> {
        let mut steps = Vec::with_capacity(self.intervals.len() * 2);
        for interval in self.intervals.iter().filter(|interval| self.overlaps(interval)) {
            let Range { start, end } = self.time_of(interval);
            steps.push(Step { at_ns: start, sign: 1, interval });
            steps.push(Step { at_ns: end, sign: -1, interval });
        }
        steps.order_by_key(|step| (step.at_ns, step.sign));
        steps
    }

    /// The part of this window in which an interval was there, CLOCK_MONOTONIC nanoseconds.
    fn time_of(&self, interval: &LiveInterval) -> Range<u64> {
        let start = interval.start_ns.clamp(self.from_ns, self.until_ns);
        let end = interval.end_ns.clamp(start, self.until_ns);
        // A process lived for a moment even if its start and end have the same time.
        start..end.max(start + 1)
    }

    /// Whether the interval counts in the footprint at this time. An interval whose end is known only roughly counts in `at_most`
    /// only.
    fn counts(&self, interval: &LiveInterval, at_ns: u64) -> bool {
        self.overlaps(interval) && !interval.is_end_rough && self.time_of(interval).contains(&at_ns)
    }

    /// Drops the intervals that are too small to matter for late records, once the maxima have the window's own figures. Late
    /// memory is added to what was there at its time, so only the largest memory is kept: [`KEPT_INTERVALS`] intervals of at
    /// least [`KEPT_BYTES`]. Of the intervals of processes, those are kept whose memory is kept.
    fn drop_small_intervals(&mut self) {
        let (processes, mut memory): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.intervals).into_iter().partition(|interval| interval.is_process);
        memory.retain(|interval| interval.memory.added_bytes >= KEPT_BYTES);
        memory.order_by_key(|interval| std::cmp::Reverse(interval.memory.added_bytes));
        memory.truncate(KEPT_INTERVALS);
        let with_memory: FxHashSet<ProcessId> = memory.iter().map(|interval| interval.id).collect();
        let processes = processes.into_iter().filter(|interval| with_memory.contains(&interval.id));
        self.intervals = processes.chain(memory).collect();
        self.steady_holders.commands.keep_largest();
    }
}

/// An interval begins or ends.
struct Step<'a> {
    /// CLOCK_MONOTONIC, nanoseconds.
    at_ns: u64,
    /// 1: it begins, and its sums are added. -1: it ends, and they are subtracted.
    sign: i8,
    interval: &'a LiveInterval,
}

/// What an interval adds to the tree while it is there: a process and its threads, or memory. Memory that no sample saw
/// counts as unread.
fn sums_of(interval: &LiveInterval) -> TreeSums {
    let unread_bytes = interval.unread_bytes.unwrap_or(interval.memory.added_bytes);
    let threads = if interval.is_process { interval.threads } else { 0 };
    let sums = TreeSums::of_one(interval.is_main, interval.memory, unread_bytes, threads);
    TreeSums { processes: interval.is_process.into(), ..sums }
}

/// Converts a sum to `u64`. One below 0 becomes 0.
fn positive(n: i128) -> u64 {
    n.clamp(0, u64::MAX.into()) as u64
}

impl RamUsage {
    /// The largest footprints so far, bytes, which a new peak must exceed.
    pub fn high_water_mark(&self) -> Groups<u64> {
        self.max.map(|max| max.footprint_bytes)
    }

    /// The mean footprints over a run of `wall_s` seconds, bytes. `None`: the run has no length.
    pub(crate) fn means(&self, wall_s: f64) -> Option<Groups<f64>> {
        (wall_s > 0.0).then(|| self.byte_s.map(|byte_s| byte_s / wall_s))
    }

    /// Takes in a sample, and the window that it ends. Moves the sample's intervals into the window, and keeps it with the largest
    /// of them, since records that come late may add to it.
    pub(crate) fn add(&mut self, tree: &Tree, sample: &mut Sample) {
        let intervals = std::mem::take(&mut sample.intervals);
        self.unseen_bytes = self.unseen_bytes.max(sample.unseen_bytes);
        // This comes first: it opens the sample whose figures `sweep` then raises.
        self.add_moment(tree, sample);
        let Sample { from_ns, at_ns: until_ns, steady, steady_at_most, .. } = *sample;
        let steady_holders = SteadyHolders::new(tree, sample);
        let mut window = Window { from_ns, until_ns, steady, steady_at_most, steady_holders, intervals };
        self.sweep(&window);
        self.add_late(sample, &window.intervals);
        self.add_means(sample, &window.intervals);
        window.drop_small_intervals();
        self.recent.push_back(window);
        self.forget_oldest();
    }

    /// Forgets the oldest windows while there are more than [`WINDOWS`], or while all together have more than
    /// [`MAX_INTERVALS`] intervals. The last window stays.
    fn forget_oldest(&mut self) {
        let mut intervals: usize = self.recent.iter().map(|window| window.intervals.len()).sum();
        while self.recent.len() > WINDOWS || (intervals > MAX_INTERVALS && self.recent.len() > 1) {
            intervals -= self.recent.pop_front().map_or(0, |window| window.intervals.len());
        }
    }

    /// Adds intervals from late records, which began before the sample's window, to the earlier windows that they overlap. Raises
    /// the maxima where those windows have more now.
    fn add_late(&mut self, sample: &Sample, intervals: &[LiveInterval]) {
        let late: Vec<&LiveInterval> =
            intervals.iter().filter(|interval| interval.start_ns < sample.from_ns).collect();
        if late.is_empty() {
            return;
        }
        let mut recent = std::mem::take(&mut self.recent);
        // One window stands for all time before the kept ones. What was steady then is no longer known.
        let until_ns = recent.front().map_or(sample.from_ns, |window| window.from_ns);
        let mut earlier = Window { until_ns, ..Window::default() };
        for window in recent.iter_mut().chain([&mut earlier]) {
            let overlapping = late.iter().copied().filter(|interval| window.overlaps(interval));
            let overlapping: Vec<_> = overlapping.cloned().collect();
            if !overlapping.is_empty() {
                window.intervals.extend(overlapping);
                self.sweep(window);
                window.drop_small_intervals();
            }
        }
        self.recent = recent;
    }

    /// Opens the sample in `largest_by_sample`, and raises the maxima by the moment of the sample itself.
    fn add_moment(&mut self, tree: &Tree, sample: &Sample) {
        let all = sample.now.groups();
        // Each part is capped by its own footprint, so the combined figure is the sum of the capped parts.
        let both_parts = all.main.capped_proportional() + all.descendants.capped_proportional();
        let combined = Sums { proportional_bytes: both_parts, ..all.combined };
        let proportional = Groups { combined, ..all }.map(|sums| sums.known_proportional());
        self.proportional_bytes = self.proportional_bytes.with(proportional, Ord::max);
        if let Some(swap_bytes) = sample.swap_bytes {
            let peaks = self.swap.get_or_insert_default();
            let with_ram_bytes = all.combined.footprint_bytes.saturating_add(swap_bytes);
            peaks.peak_bytes = peaks.peak_bytes.max(swap_bytes);
            peaks.with_ram_peak_bytes = peaks.with_ram_peak_bytes.max(with_ram_bytes);
        }
        let holders = || PeakHolders::at_sample(tree, sample);
        self.largest_by_sample.begin(sample.at_ns);
        self.raise(&sample.now, [sample.at_ns; 2], MaxFootprint::with_sample, holders);
    }

    /// Raises the maxima of the run by the tree's sums at `at_ns`. Also raises those of the sample at `key_ns`, in whose window
    /// `at_ns` is. Both times are CLOCK_MONOTONIC nanoseconds. If the RAM is the largest so far, this is the peak. `raised` raises a
    /// maximum by sums. `holders` returns what held the RAM, and is called only for a peak. If it returns none,
    /// [`Self::find_holders`] finds them later.
    fn raise(
        &mut self,
        now: &TreeSums,
        [key_ns, at_ns]: [u64; 2],
        raised: fn(MaxFootprint, Sums) -> MaxFootprint,
        holders: impl FnOnce() -> PeakHolders,
    ) {
        let all = now.groups();
        let before = (self.high_water_mark(), self.max_processes);
        self.max = self.max.with(all, raised);
        self.threads = self.threads.with(all, |most, sums| most.max(sums.threads));
        self.max_processes = self.max_processes.max(now.processes);
        let footprint_bytes = all.combined.footprint_bytes;
        let is_new_maximum = before != (self.high_water_mark(), self.max_processes);
        self.largest_by_sample.raise(key_ns, at_ns, now, is_new_maximum);
        if footprint_bytes > self.peak.as_ref().map_or(0, |peak| peak.footprint_bytes) {
            self.peak = Some(PeakMoment::new(at_ns, footprint_bytes, holders()));
        }
    }

    /// Raises the upper bounds of the largest footprints to these sums.
    fn raise_at_most(&mut self, sums: &TreeSums) {
        self.at_most_bytes =
            self.at_most_bytes.with(sums.groups(), |most, sums| most.max(sums.footprint_bytes));
    }

    /// Goes through the time of a window, and raises the maxima by what was there at each moment. If the window has a new peak,
    /// finds what held it. The sums begin with what was there all the time. They go up where an interval begins, and down where
    /// one ends.
    fn sweep(&mut self, window: &Window) {
        // The sums are signed and wide: intervals are subtracted, too, and before that the sums must not saturate, whatever
        // size a record claims.
        let mut at_least = window.steady.map(i128::from);
        let mut at_most = window.steady_at_most.map(i128::from);
        self.raise_at_most(&window.steady_at_most);
        for Step { at_ns, sign, interval } in window.steps() {
            let change = sums_of(interval).map(|change| i128::from(change) * i128::from(sign));
            if !interval.is_end_rough {
                at_least = at_least.with(change, |sum, change| sum + change);
            }
            at_most = at_most.with(change, |sum, change| sum + change);
            // Only after an interval begins can the sums be the largest so far.
            if sign > 0 {
                let now = at_least.map(positive);
                self.raise_at_most(&at_most.map(positive));
                // What held it is found once, at the end.
                self.raise(&now, [window.until_ns, at_ns], MaxFootprint::with_moment, PeakHolders::default);
            }
        }
        self.find_holders(window);
    }

    /// Finds what held the RAM at the peak, if a moment of this window has set the peak: then its holders are not known yet.
    /// This is done once a window, since each of many processes that start may set a new peak.
    fn find_holders(&mut self, window: &Window) {
        let Some(peak) = self.peak.as_mut().filter(|peak| peak.holders.is_empty()) else { return };
        let at_peak: Vec<&LiveInterval> =
            window.intervals.iter().filter(|interval| window.counts(interval, peak.at_ns)).collect();
        peak.set_holders(PeakHolders::between_samples(&window.steady_holders, &at_peak));
    }

    /// Adds a window to the byte-seconds, from which means are computed. What was there all the time counts for the window's
    /// length, and each interval for its own.
    fn add_means(&mut self, sample: &Sample, intervals: &[LiveInterval]) {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let window_s = seconds(sample.at_ns.saturating_sub(sample.from_ns));
        let steady = &sample.steady_mean;
        self.byte_s.main += steady.main.footprint_bytes as f64 * window_s;
        self.byte_s.descendants += steady.descendants.footprint_bytes as f64 * window_s;
        self.byte_s.combined += steady.footprint_bytes as f64 * window_s;
        for interval in intervals.iter().filter(|interval| !interval.is_end_rough) {
            // It counts from when it most likely began. If its record came late, that is before the window: no earlier sample has counted
            // that time.
            let span_s = seconds(interval.end_ns.min(sample.at_ns).saturating_sub(interval.likely_start_ns));
            self.byte_s.combined += interval.memory.added_bytes as f64 * span_s;
            *self.byte_s.part_mut(interval.is_main) +=
                interval.memory.added_to_part_bytes(interval.is_main) as f64 * span_s;
        }
    }
}
