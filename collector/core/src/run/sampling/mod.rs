//! From readings to a sample: what each live process uses now, and what the tree's RAM is.
//!
//! A sample has passes, each an observation. The first reads clock, size and state of every live process. Peaks (the second) and how
//! memory is shared (the third) are expensive. The core says which readings it wants most, and the session reads as many as the budget
//! allows. At last come the ends of the processes that the sample found dead. Their records may come after the sample.

mod files;
mod footprint;
mod reading;
pub(crate) mod sums;
#[cfg(test)]
mod tests;

use rustc_hash::{FxHashMap, FxHashSet};

use super::tree::process::Observed;
use super::tree::{Contribution, Image, LiveInterval, Process, ProcessId, Tree};
use crate::model::exit_account::StatCounts;
use crate::model::groups::Groups;
use crate::model::ids::ImageGroup;
use crate::model::observation::{
    PeakReading, Reading, ReadingState, SampleTarget, SharingReading, SharingReadings, Size, ThreadTarget,
    Vitals,
};
use files::KnownPrograms;
use footprint::{Estimate, Estimates, Readings, Tried};
pub use footprint::{SharingCredit, Unit};
use reading::{LastReading, Sharing, Touched};
use sums::TreeSums;

/// What is known of the tree at one time, and what happened since the time before.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sample {
    /// CLOCK_MONOTONIC of the sample before, or else of the run's start, nanoseconds.
    pub from_ns: u64,
    /// CLOCK_MONOTONIC of this sample, nanoseconds.
    pub at_ns: u64,
    /// Memory now.
    pub now: TreeSums,
    /// Memory of the processes that lived at both times, each with the smaller of its two contributions (what it added to the
    /// footprint at each).
    pub steady: TreeSums,
    /// Memory of the processes in `steady`, each with the larger of its two contributions, less what `intervals` has of it.
    pub steady_at_most: TreeSums,
    /// Memory of the processes in `steady` that have not exec'd, each with the mean of its two contributions: for time-weighted
    /// means.
    pub steady_mean: TreeSums,
    /// Processes and memory that were there for a part of the time since the sample before.
    pub intervals: Vec<LiveInterval>,
    /// CPU time since the sample before, nanoseconds (live processes only).
    pub cpu_ns: Groups<u64>,
    /// What each process holds now.
    pub holders: Vec<Held>,
    /// How much more memory there can be in pages that no reading tells apart, bytes.
    pub unseen_bytes: u64,
    /// Swapped-out memory of the processes when each was last asked, bytes. `None`: none was asked.
    pub swap_bytes: Option<u64>,
}

/// What a process holds at a sample.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    /// The process.
    pub id: ProcessId,
    /// RSS, and huge pages of hugetlbfs, bytes.
    pub rss_bytes: u64,
    /// What it adds to the footprints of the tree and of the descendants.
    pub contribution: Contribution,
    /// What it added to the tree's footprint at all times since the sample before, bytes. `None`: that sample did not see it.
    pub steady_bytes: Option<u64>,
    /// How much more may be private, bytes: how the process shares its memory was never read.
    pub unread_bytes: u64,
    /// CPU time since the sample before, nanoseconds.
    pub cpu_ns: u64,
}

/// A process that runs another program than at its reading before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangedProgram {
    /// The process.
    pub id: ProcessId,
    /// When that reading was, CLOCK_MONOTONIC nanoseconds.
    pub since_ns: u64,
}

/// The peak (VmHWM) of a process that touched new memory is read again this long after the last time, nanoseconds. Only VmHWM shows
/// what it held for a moment between two samples. Only a reading soon after that moment tells what others held then.
pub const PEAK_INTERVAL_NS: u64 = 20_000_000;
/// This long after the last time, nanoseconds, such a peak is read even if that takes budget from other readings.
pub const LATEST_PEAK_NS: u64 = 1_000_000_000;

/// If the sharing of relatives was not read for this time, nanoseconds, it may never be. So what is uncertain then counts in the
/// upper bound.
const LATE_NS: u64 = 300_000_000;

/// A process whose RSS changed by more than one part in this many while its relatives were read may have exec'd.
const MOVED_PART: u64 = 100;

/// What the passes of the sample that is being taken have found so far.
#[derive(Debug, Clone, Default)]
pub struct CurrentSample {
    at_ns: u64,
    /// Processes that were read for the first time, and the bottom of their stacks then (0: not known).
    pub first: Vec<(ProcessId, u64)>,
    /// Processes that run another program than at their reading before.
    pub changed: Vec<ChangedProgram>,
    /// Arguments that were read, until [`Sampling::conclude`] gives them to the processes.
    args: FxHashMap<ProcessId, Vec<String>>,
    /// When the sample saw the last dead process, CLOCK_MONOTONIC nanoseconds. `None`: it saw none.
    pub dead_ns: Option<u64>,
    /// The largest RSS that one of the dead processes had at its last sample, bytes.
    pub dead_bytes: u64,
    tried: Tried,
    /// How memory is shared was read for at least one process.
    is_any_sharing_read: bool,
    /// A unit that was read had a process that may share anonymous pages with others.
    is_any_relative_read: bool,
    /// All its passes are over. Without this, it was put off.
    is_concluded: bool,
    /// The sample before was put off, or this is the first one.
    was_last_put_off: bool,
}

/// The sample that is being taken, and the last readings of live processes. A restarted collector begins without them.
#[derive(Debug, Clone, Default)]
pub struct Sampling {
    readings: FxHashMap<ProcessId, LastReading>,
    programs: KnownPrograms,
    /// The live processes of this sample, oldest first.
    pub alive: Vec<ProcessId>,
    /// [`Tree::group_changes`] at the last sample.
    group_changes: u64,
    /// Shared memory of the live processes, each in full, bytes.
    shared_of_all_bytes: u64,
    /// How much the processes of each image group (fork relatives) have copied between two forks, bytes: see [`Self::note_forks`].
    copied_bytes: FxHashMap<ImageGroup, u64>,
    estimates: Estimates,
    /// Processes have come, gone or touched memory since the estimates were made.
    is_estimate_due: bool,
    /// No reading of how memory is shared would tell anything more.
    has_read_enough: bool,
    /// The sample that is being taken.
    pub current: CurrentSample,
    /// The sample that the passes led to, until it is taken.
    sample: Option<Sample>,
}

impl Sampling {
    /// The live processes to be read, and what to read of each. Those whose pid in the collector's namespace is unknown are
    /// left out.
    pub fn targets(tree: &Tree) -> Vec<SampleTarget> {
        let alive = tree.alive().iter().filter_map(|id| tree.get(*id));
        let target = |process: &Process| {
            // Alone: without fork relatives, whose writes change how its memory is shared while it rests.
            let is_alone = tree.group(process.program.group).is_some_and(|group| group.members.len() <= 1);
            Some(SampleTarget {
                target: process.target()?,
                is_alone,
                wants_args: process.name.args.is_none(),
            })
        };
        alive.filter_map(target).collect()
    }

    /// Begins the sample at `at_ns`, CLOCK_MONOTONIC nanoseconds, and takes in its first pass: clock, size and state of all live
    /// processes. Notes in the tree which of them are dead. Decides whether the estimates must be made anew.
    pub(crate) fn read(&mut self, tree: &mut Tree, at_ns: u64, readings: &[Reading]) {
        self.readings.retain(|id, _| tree.get(*id).is_some_and(Process::is_alive));
        let alive_before = std::mem::take(&mut self.alive);
        let mut has_changed = false;
        self.sample = None;
        let was_last_put_off = !self.current.is_concluded;
        self.current = CurrentSample { at_ns, was_last_put_off, ..CurrentSample::default() };
        for Reading { id, args, state } in readings {
            if let Some(args) = args {
                self.current.args.insert(*id, args.clone());
            }
            // What a process used before the run attached to it is not the run's. From the remains of zombies, the tree subtracts it.
            let used_before = tree.get(*id).and_then(|process| process.before);
            let of_run = |vitals| used_before.map_or(vitals, |used| Vitals::since(vitals, &used));
            let is_gone = matches!(state, ReadingState::Gone(_));
            match *state {
                // It used no CPU time, so its last reading still holds.
                ReadingState::Rested => self.alive.push(*id),
                ReadingState::Alive(vitals, size) => {
                    has_changed |= self.read_alive(*id, of_run(vitals), size);
                }
                ReadingState::Zombie(dead_ns, remains) => {
                    tree.note_remains(*id, &remains);
                    self.found_dead(tree, *id, dead_ns, is_gone);
                }
                ReadingState::Ending(dead_ns, vitals) => {
                    note_clock(tree, *id, &of_run(vitals));
                    self.found_dead(tree, *id, dead_ns, is_gone);
                }
                ReadingState::Gone(gone_ns) => self.found_dead(tree, *id, gone_ns, is_gone),
            }
        }
        let groups_before = std::mem::replace(&mut self.group_changes, tree.group_changes());
        self.is_estimate_due |=
            has_changed || self.alive != alive_before || self.group_changes != groups_before;
    }

    /// Takes in what the first pass read of a live process. Without a `size`, the last one stays. Notes in `current` how much CPU
    /// time the process used, and whether it is new or has exec'd. Returns whether it is new or its memory has changed: then the
    /// estimates must be made anew.
    fn read_alive(&mut self, id: ProcessId, vitals: Vitals, size: Option<Size>) -> bool {
        let is_new = !self.readings.contains_key(&id);
        let reading = self.readings.entry(id).or_default();
        let (last_size, last_touched, last_ns) = (reading.size, reading.touched(), reading.at_ns);
        let has_execd = reading.set_vitals(vitals);
        if has_execd {
            self.current.changed.push(ChangedProgram { id, since_ns: last_ns });
        }
        reading.at_ns = self.current.at_ns;
        reading.size = size.unwrap_or(reading.size);
        // Faults beyond `touched_before` bound how many of the pages that it shared with fork relatives it has copied.
        if is_new {
            // After a fork, all that it has by now may be its parent's.
            reading.touched_before = Touched { minor_faults: 0, anonymous_bytes: reading.anonymous_bytes() };
            self.current.first.push((id, reading.vitals.start_stack));
        } else if !self.current.was_last_put_off {
            // After a sample that was put off, which does not count, `touched_before` stays as it is.
            reading.touched_before = last_touched;
        }
        self.alive.push(id);
        is_new || reading.size != last_size || reading.touched() != last_touched
    }

    /// Notes that the sample saw a process dead at `at_ns`, CLOCK_MONOTONIC nanoseconds. `is_gone`: it was no longer in /proc.
    /// Keeps what the session decides by: it waits for records up to then, and puts the sample off if a large process died.
    fn found_dead(&mut self, tree: &mut Tree, id: ProcessId, at_ns: u64, is_gone: bool) {
        // Processes are read one after another, so the last time is the latest.
        self.current.dead_ns = Some(at_ns);
        self.current.dead_bytes =
            self.current.dead_bytes.max(tree.get(id).map_or(0, |process| process.observed.rss_bytes));
        tree.observe_end(id, at_ns, is_gone.then_some(at_ns));
        // From the sample's time on, pages that it shared count for the other processes that have them.
        tree.observe_missing(id, self.current.at_ns);
    }

    /// The live processes, for a reading of their threads.
    pub fn thread_targets(&self, tree: &Tree) -> Vec<ThreadTarget> {
        let parents: FxHashSet<ProcessId> =
            self.alive.iter().filter_map(|id| tree.get(*id)?.ancestry.parent.known()).collect();
        let target = |id: &ProcessId| {
            let reading = self.readings.get(id)?;
            let Vitals { threads, letter, counts: StatCounts { major_faults, .. }, .. } = reading.vitals;
            // A process that rested has no reading in this sample.
            let has_rested = reading.at_ns != self.current.at_ns;
            let target = tree.get(*id)?.target()?;
            let has_child = parents.contains(id);
            Some(ThreadTarget { target, threads, letter, has_rested, major_faults, has_child })
        };
        self.alive.iter().filter_map(target).collect()
    }

    /// Whether all live processes were stopped when they were last read; false if there is none.
    pub(crate) fn are_all_stopped(&self) -> bool {
        let is_stopped = |id| self.readings.get(id).is_some_and(|reading| reading.vitals.is_stopped());
        !self.alive.is_empty() && self.alive.iter().all(is_stopped)
    }

    /// The live processes whose image is newer than the last reading of their peak, oldest first.
    pub fn new_images(&self, tree: &Tree) -> Vec<ProcessId> {
        self.alive.iter().copied().filter(|id| self.is_new_image(tree, *id)).collect()
    }

    /// Whether a process's image is newer than the last reading of its peak.
    fn is_new_image(&self, tree: &Tree, id: ProcessId) -> bool {
        // At equal times the image counts as new: the peak may be that of the image before.
        let image_ns = tree.get(id).map(Process::program_start_ns);
        self.readings.get(&id).zip(image_ns).is_some_and(|(reading, image_ns)| image_ns >= reading.peak_at_ns)
    }

    /// Whether a process's peak should be read again, which is useless if it had no fault since. `is_rich`: the budget has more than
    /// footprints need.
    pub fn is_peak_due(&self, id: ProcessId, is_rich: bool) -> bool {
        let rest_ns = if is_rich { PEAK_INTERVAL_NS } else { LATEST_PEAK_NS };
        self.readings.get(&id).is_some_and(|reading| {
            self.current.at_ns.saturating_sub(reading.peak_at_ns) >= rest_ns
                && reading.vitals.counts.minor_faults != reading.faults_at_peak
        })
    }

    /// Takes in the second pass: peaks, huge pages and resource limits. Forgets what was read of the memory of images that were
    /// replaced. Then makes the estimates anew, if anything has changed. By these, the session chooses what to read in the third
    /// pass.
    pub(crate) fn peaks(&mut self, tree: &Tree, peaks: &[PeakReading]) {
        // This comes first, since an image whose `peak_at_ns` is set (below) counts as old.
        for id in self.new_images(tree) {
            if let Some(reading) = self.readings.get_mut(&id) {
                (reading.sharing, reading.files, reading.vm_hwm_bytes) = (None, None, None);
                (reading.hugetlb_bytes, reading.swap_bytes, reading.is_sharing_denied) = (0, 0, false);
            }
        }
        for peak in peaks {
            let Some(reading) = self.readings.get_mut(&peak.id) else { continue };
            (reading.peak_at_ns, reading.faults_at_peak) =
                (self.current.at_ns, reading.vitals.counts.minor_faults);
            let process = tree.get(peak.id);
            // A peak that the process may have had before the run attached to it does not count.
            let vm_hwm_bytes = process.and_then(|process| process.peak_of_run(peak.vm_hwm_bytes));
            reading.vm_hwm_bytes = vm_hwm_bytes.or(reading.vm_hwm_bytes);
            reading.hugetlb_bytes = peak.hugetlb_bytes.unwrap_or(reading.hugetlb_bytes);
            reading.swap_bytes = peak.swap_bytes.unwrap_or(reading.swap_bytes);
            reading.limits = peak.limits.unwrap_or(reading.limits);
        }
        if self.is_estimate_due || !peaks.is_empty() {
            self.estimate_anew(tree);
        }
    }

    /// Makes the estimates anew, so readings of sharing may tell something again. Before that, notes what each process had touched when
    /// it got fork relatives whose sharing is not read yet (unread). Pages that it writes to from then on may be copies.
    fn estimate_anew(&mut self, tree: &Tree) {
        (self.is_estimate_due, self.has_read_enough) = (false, false);
        self.note_forks(tree);
        let unread_groups = footprint::unread_groups(tree, &self.readings, &self.alive);
        for id in &self.alive {
            let Some(reading) = self.readings.get_mut(id) else { continue };
            let is_unread = |process: &Process| unread_groups.contains(&process.program.group);
            // Keeps what it had touched when the first of its unread relatives came.
            let has_unread_group = tree.get(*id).is_some_and(is_unread);
            reading.touched_before_relatives =
                has_unread_group.then(|| reading.touched_before_relatives.unwrap_or(reading.touched_before));
            reading.unread_since_ns =
                has_unread_group.then(|| reading.unread_since_ns.unwrap_or(self.current.at_ns));
        }
        let readings = self.alive.iter().filter_map(|id| self.readings.get(id));
        self.shared_of_all_bytes = readings.map(|reading| reading.size.shared_bytes).sum();
        self.estimates = footprint::estimate_all(tree, self.last_readings());
    }

    /// Notes what each process with a new fork child may have copied since its previous fork child. Later children share the copies
    /// with it, and earlier ones share the old pages with each other. So at one address there can be several pages, each of them
    /// shared. Without copies between forks, all relatives that share something at an address share the same page.
    fn note_forks(&mut self, tree: &Tree) {
        let page_bytes = tree.context().page;
        for id in &self.alive {
            // A process in the image group of its parent is a fork child: an exec would have given it a group of its own.
            let group_of = |id: ProcessId| tree.get(id).map(|process| process.program.group);
            let parent = tree.get(*id).and_then(|process| process.ancestry.parent.known());
            let Some(group) = group_of(*id).filter(|group| parent.and_then(group_of) == Some(*group)) else {
                continue;
            };
            let was_noted = |reading: &mut LastReading| std::mem::replace(&mut reading.is_fork_noted, true);
            if self.readings.get_mut(id).is_none_or(was_noted) {
                continue;
            }
            let Some(parent) = parent.and_then(|parent| self.readings.get_mut(&parent)) else { continue };
            let now = parent.touched();
            if let Some(before) = parent.touched_at_fork.replace(now) {
                *self.copied_bytes.entry(group).or_default() += now.copied_since(&before, page_bytes);
            } else {
                // Its first child was forked since the sample before, so what it touched since then may be copies already.
                parent.touched_at_fork = Some(parent.touched_before);
            }
            let copied_bytes = self.copied_bytes.get(&group).copied().unwrap_or(0);
            if let Some(reading) = self.readings.get_mut(id) {
                reading.copied_at_fork_bytes = copied_bytes;
            }
        }
        self.copied_bytes.retain(|group, _| tree.group(*group).is_some());
    }

    /// What estimates are made of.
    fn last_readings(&self) -> Readings<'_> {
        Readings {
            by_id: &self.readings,
            programs: &self.programs,
            alive: &self.alive,
            shared_of_all_bytes: self.shared_of_all_bytes,
            copied_bytes: &self.copied_bytes,
        }
    }

    /// Chooses the processes (a unit) of which to read next how they share memory. They are those that leave most of the footprint
    /// uncertain and were not tried in this sample. `None`: a reading would tell nothing more, or less than it costs. `mark`: the
    /// largest RAM so far, bytes. A reading may cost more if this sample can exceed that.
    pub fn next_unit(&self, tree: &Tree, mark: Groups<u64>) -> Option<Unit> {
        if self.has_read_enough {
            return None;
        }
        self.estimates.next_unit(tree, self.last_readings(), &self.current.tried, mark)
    }

    /// The readings that bring outdated private and proportional sizes up to date.
    pub fn stale(&self, tree: &Tree) -> Vec<Unit> {
        if self.has_read_enough {
            return Vec::new();
        }
        self.estimates.stale(tree, self.last_readings(), &self.current.tried)
    }

    /// Takes in a reading of the third pass: how the members of a unit (processes that were read together) share memory. If the
    /// footprint may have changed, makes the estimates anew, since the next unit is chosen by them.
    pub(crate) fn take_in_sharing(&mut self, tree: &Tree, unit: &SharingReadings) {
        let is_group = unit.members.len() > 1;
        let mut may_change_footprint = is_group;
        // This comes before the loop, which replaces earlier readings. A unit of one process has none of its relatives.
        let oldest_ns = if is_group { self.first_read_ns(&unit.members) } else { 0 };
        for (id, read) in &unit.read {
            may_change_footprint |= self.note_sharing(tree, *id, read, oldest_ns);
        }
        self.note_tried(tree, unit);
        self.current.is_any_sharing_read |= !unit.read.is_empty();
        self.discard_if_moved(&unit.sizes_after);
        if may_change_footprint {
            self.estimates = footprint::estimate_all(tree, self.last_readings());
        }
    }

    /// Notes which processes and groups a unit has, so that no other unit of this sample has them.
    fn note_tried(&mut self, tree: &Tree, unit: &SharingReadings) {
        for process in unit.members.iter().filter_map(|id| tree.get(*id)) {
            self.current.tried.groups.insert(process.program.group);
            self.current.is_any_relative_read |= !footprint::is_alone(tree, process.program.group);
            // A group that was read without its files can have them read later in this sample.
            if unit.members.len() == 1 || unit.with_files {
                self.current.tried.files.insert(process.ids.id);
            }
        }
    }

    /// The earliest of the times at which the sharing of these processes was last read, CLOCK_MONOTONIC nanoseconds. 0: that of one
    /// was never read.
    fn first_read_ns(&self, members: &[ProcessId]) -> u64 {
        let sharing = members.iter().map(|id| self.readings.get(id)?.sharing);
        sharing.map(|sharing| sharing.map_or(0, |sharing| sharing.at_ns)).min().unwrap_or(0)
    }

    /// Takes in a reading of how a process shares memory. `oldest_ns`: when the first of its relatives was read, CLOCK_MONOTONIC
    /// nanoseconds; 0: one was not, or they were not looked up. Returns whether the reading tells which files are mapped, which
    /// can change the footprint.
    fn note_sharing(&mut self, tree: &Tree, id: ProcessId, read: &SharingReading, oldest_ns: u64) -> bool {
        let at_ns = self.current.at_ns;
        let Some(reading) = self.readings.get_mut(&id) else { return false };
        let others_shared_bytes = self.shared_of_all_bytes.saturating_sub(reading.size.shared_bytes);
        // The mappings, if the reading is valid, and how much shared memory the process had with them, bytes.
        let mapped = match read {
            SharingReading::Read { rollup, mappings, size } => {
                let sharing = Sharing {
                    rollup: *rollup,
                    mapped_private_anon_bytes: mappings.as_ref().map(|mappings| mappings.private_anon_bytes),
                    size: reading.set_size_after(rollup, *size),
                    others_shared_bytes,
                    minor_faults: reading.vitals.counts.minor_faults,
                    // It counts the changes of the image group, so it tells later whether a relative has come or gone.
                    epoch: footprint::epoch(tree, id),
                    at_ns,
                    unshared_before_bytes: 0,
                };
                let is_valid = reading.set_sharing(sharing, tree.context().page, oldest_ns);
                let valid = mappings.as_ref().filter(|_| is_valid);
                valid.map(|mappings| (mappings, sharing.size.shared_bytes))
            }
            SharingReading::NoMemory => None,
            SharingReading::Denied => {
                reading.is_sharing_denied = true;
                None
            }
        };
        // The reading can have brought a newer size.
        self.shared_of_all_bytes = others_shared_bytes + reading.size.shared_bytes;
        let Some((mappings, shared_bytes)) = mapped else { return false };
        let table = reading.set_files(mappings.files.clone(), shared_bytes, at_ns);
        // The process's files stand for those of other processes that run its program.
        if let Some(process) = tree.get(id) {
            self.programs.remember(&process.name.command, table);
        }
        true
    }

    /// Takes in the sizes that the members of a unit had when all were read; `None`: a member's memory is gone. Discards the
    /// unit's readings if a member may have exec'd or ended while they were read one after another, or was not read. Then their
    /// proportional sizes are of different times, or incomplete, and don't add up.
    fn discard_if_moved(&mut self, sizes_after: &[(ProcessId, Option<Size>)]) {
        let mut has_moved = false;
        for (id, size) in sizes_after {
            let (Some(reading), Some(size)) = (self.readings.get_mut(id), *size) else {
                has_moved = true;
                continue;
            };
            let shared_before = reading.size.shared_bytes;
            reading.size = size;
            self.shared_of_all_bytes =
                self.shared_of_all_bytes.saturating_sub(shared_before) + size.shared_bytes;
            has_moved |= reading.sharing.is_none_or(|sharing| {
                size.rss_bytes.abs_diff(sharing.size.rss_bytes) > sharing.size.rss_bytes / MOVED_PART
            });
        }
        for (id, _) in sizes_after {
            if let Some(reading) = self.readings.get_mut(id) {
                if has_moved {
                    reading.sharing = None;
                } else {
                    reading.unread_since_ns = None;
                }
            }
        }
    }

    /// Makes the sample from what the passes read; [`Self::take`] returns it. Notes with each process what was observed of it, with
    /// its limits and arguments. `from_ns`: the sample before, CLOCK_MONOTONIC nanoseconds.
    pub(crate) fn conclude(&mut self, tree: &mut Tree, from_ns: u64) {
        if self.current.is_any_sharing_read {
            // Other members may have mapped memory while one after another was read.
            self.estimates = footprint::estimate_all(tree, self.last_readings());
        }
        // This sample's readings tell how much relatives had copied by now, so the next sample must estimate anew.
        self.is_estimate_due |= self.current.is_any_relative_read;
        self.current.is_concluded = true;
        self.note_if_enough_is_read(tree);
        let mut sample = Sample { from_ns, at_ns: self.current.at_ns, ..Sample::default() };
        let largest_shared = reading::largest_shared(&self.readings, &self.alive);
        for id in &self.alive {
            let (Some(reading), Some(estimate)) = (self.readings.get(id), self.estimates.by_id.get(id))
            else {
                continue;
            };
            note_clock(tree, *id, &reading.vitals);
            let Some(process) = tree.get_mut(*id) else { continue };
            process.note_bounds(reading.vitals.virtual_bytes, reading.limits);
            if reading.peak_at_ns > 0 {
                let swap_bytes = sample.swap_bytes.get_or_insert(0);
                *swap_bytes = swap_bytes.saturating_add(reading.swap_bytes);
            }
            let common_growth_bytes = reading::common_growth(reading, largest_shared, *id);
            add_process(&mut sample, process, reading, estimate, common_growth_bytes);
            if process.name.args.is_none() {
                process.name.args = self.current.args.remove(id);
            }
        }
        self.sample = Some(sample);
    }

    /// Notes whether another reading of how memory is shared would tell anything more (`has_read_enough`). A sample that read
    /// sharing leaves that open, as more readings may be wanted. The next sample that reads none decides it.
    fn note_if_enough_is_read(&mut self, tree: &Tree) {
        if self.current.is_any_sharing_read {
            self.has_read_enough = false;
        } else if !self.has_read_enough {
            // `next_unit` uses the mark only to decide what a reading may cost, so any will do here.
            self.has_read_enough =
                self.stale(tree).is_empty() && self.next_unit(tree, Groups::default()).is_none();
        }
    }

    /// Takes the sample that the passes led to. `None`: it was taken before, or the passes are not over.
    pub(crate) fn take(&mut self) -> Option<Sample> {
        self.sample.take()
    }
}

/// Adds a process's part to a sample: what it holds now, its CPU time, and what it held since the sample before, for all of that
/// time or a part. Notes with the process what was observed of it. `common_growth_bytes`: see [`reading::common_growth`].
fn add_process(
    sample: &mut Sample,
    process: &mut Process,
    reading: &LastReading,
    estimate: &Estimate,
    common_growth_bytes: u64,
) {
    let before = process.observed;
    let is_main = process.ids.is_main;
    sample.now.add(&TreeSums::of_estimate(is_main, estimate, reading));
    sample.unseen_bytes += unseen_bytes(process, reading, estimate, sample.at_ns);
    // These compare with what the sample before observed, which is replaced below.
    let (peak_rss_bytes, spike_bytes) = peak_and_spike(process, reading);
    let steady_bytes = add_memory(sample, process, reading, estimate, spike_bytes);
    process.observed = Observed {
        at_ns: sample.at_ns,
        rss_bytes: reading.size.rss_bytes,
        peak_rss_bytes,
        contribution: estimate.contribution,
        unread_bytes: estimate.unread_private_bytes,
        common_growth_bytes,
        threads: reading.vitals.threads,
        most_threads: before.most_threads.max(reading.vitals.threads),
        counts: reading.vitals.counts,
        cpu_ns: reading.vitals.cpu_ns.or(before.cpu_ns),
        // Block I/O is read at the end of the run only.
        blocks: None,
    };
    let cpu_ns = count_cpu(process, reading, sample.at_ns);
    sample.cpu_ns.add(is_main, cpu_ns, u64::saturating_add);
    sample.holders.push(Held {
        id: process.ids.id,
        rss_bytes: reading.size.rss_bytes + reading.hugetlb_bytes,
        contribution: estimate.contribution,
        steady_bytes,
        unread_bytes: estimate.unread_private_bytes,
        cpu_ns,
    });
}

/// The peak RSS of a process's program so far, and its spike, both in bytes. A spike is how much more memory of its own than now
/// the process held at a peak that no sample saw.
fn peak_and_spike(process: &Process, reading: &LastReading) -> (u64, u64) {
    let rss_bytes = reading.size.rss_bytes;
    // An unknown image may be a copy of the parent's memory. Then its high-water mark began with the parent's RSS, and does not count.
    // Of a fork child, whose RSS at the fork is known, `own_part` takes that off.
    let hwm = reading.vm_hwm_bytes.filter(|_| process.program.image != Image::Unknown).unwrap_or(0);
    // What samples saw may be the peak of a program that an exec has replaced since.
    let is_new_program = process.program_start_ns() >= process.observed.at_ns;
    let seen_before_bytes = if is_new_program { 0 } else { process.observed.peak_rss_bytes };
    let seen_bytes = seen_before_bytes.max(rss_bytes);
    let peak_bytes = seen_bytes.max(hwm);
    let has_spike = peak_bytes > seen_bytes;
    let spike_bytes = if has_spike { process.program.image.own_part(peak_bytes, rss_bytes) } else { 0 };
    (peak_bytes, spike_bytes)
}

/// How much more a process can hold than counts, bytes, in pages that no reading tells apart. What is uncertain becomes certain by the
/// next reading, but a busy machine may leave no time for that. So after [`LATE_NS`] it counts here.
fn unseen_bytes(process: &Process, reading: &LastReading, estimate: &Estimate, now_ns: u64) -> u64 {
    let unread_ns = reading.unread_since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns));
    // What is uncertain of the command's first process counts for its fork children.
    let is_late = unread_ns >= LATE_NS && !process.ids.is_main;
    if is_late {
        estimate.unseen_bytes.max(estimate.anonymous_uncertain_bytes)
    } else {
        estimate.unseen_bytes
    }
}

/// Adds a process's memory to a sample. What it held at all times since the sample before goes to the steady sums, the
/// rest to the intervals. `spike_bytes`: see [`peak_and_spike`]. Returns how much the steady part adds to the footprint, bytes.
/// `None`: the sample before did not see the process.
fn add_memory(
    sample: &mut Sample,
    process: &Process,
    reading: &LastReading,
    estimate: &Estimate,
    spike_bytes: u64,
) -> Option<u64> {
    let (from_ns, now_ns, last) = (sample.from_ns, sample.at_ns, process.observed);
    let (is_main, threads) = (process.ids.is_main, reading.vitals.threads);
    let (contribution, unread_bytes) = (estimate.contribution, estimate.unread_private_bytes);
    let at_peak = contribution.plus(Contribution::private(spike_bytes));
    let peak_bytes = reading.size.rss_bytes + spike_bytes;
    // If the sample before did not see it, it counts from its start on, or from an earlier sample that saw it.
    if last.at_ns != from_ns || last.at_ns == 0 {
        sample.intervals.extend(process.intervals_until(now_ns, at_peak, unread_bytes, peak_bytes));
        return None;
    }
    // Both samples saw it, so it is taken to have held the smaller of its two contributions all the time.
    let steady = contribution.with(last.contribution, u64::min);
    let steady_unread_bytes = unread_bytes.max(last.unread_bytes);
    let steady_threads = threads.min(last.threads);
    sample.steady.add(&TreeSums::of_one(is_main, steady, steady_unread_bytes, steady_threads));
    // After an exec nothing is steady: the intervals of the old image and of the new one have all of their memory.
    let is_new_image = process.program.image_start_ns >= from_ns;
    if !is_new_image {
        let mean = contribution.with(last.contribution, u64::midpoint);
        // Only footprints have means, so what is unread does not matter.
        sample.steady_mean.add(&TreeSums::of_one(is_main, mean, 0, threads));
    }
    let mut at_most = contribution.with(last.contribution, u64::max);
    if is_new_image || spike_bytes > 0 {
        // What it held beside the steady part, for a part of the time. The process itself and its unread memory are counted with
        // the steady part already.
        let beside = at_peak.minus(steady);
        let [_, memory] = process.intervals_until(now_ns, beside, 0, peak_bytes);
        // How long a spike lasted is not known, and the mean of both samples counts above. So a spike adds nothing to means.
        let likely_start_ns = if is_new_image { memory.likely_start_ns } else { memory.end_ns };
        sample.intervals.push(LiveInterval { likely_start_ns, ..memory });
        // The interval has what it holds now beyond the steady part, so only what it held before is left.
        at_most = last.contribution;
    }
    let unseen_bytes = unseen_bytes(process, reading, estimate, now_ns);
    // Only footprints have an upper bound, so none of this counts as private.
    let at_most = at_most.plus(Contribution { private_bytes: 0, ..Contribution::private(unseen_bytes) });
    sample.steady_at_most.add(&TreeSums::of_one(is_main, at_most, steady_unread_bytes, steady_threads));
    Some(steady.added_bytes)
}

/// Counts a process's CPU time up to the sample at `at_ns`, CLOCK_MONOTONIC nanoseconds. Returns how much was not counted before,
/// nanoseconds.
fn count_cpu(process: &mut Process, reading: &LastReading, at_ns: u64) -> u64 {
    let all_ns = reading.vitals.cpu_ns.unwrap_or(0);
    let more_ns = all_ns.saturating_sub(process.cpu.counted_cpu_ns);
    process.cpu.counted_cpu_ns += more_ns;
    process.cpu.counted_at_ns = at_ns;
    more_ns
}

/// Takes in the last reading of a process's CPU clock and its clock ticks. If the clock could not be read, both stay as they
/// were.
fn note_clock(tree: &mut Tree, id: ProcessId, vitals: &Vitals) {
    if let Some(process) = tree.get_mut(id)
        && let Some(cpu_ns) = vitals.cpu_ns
    {
        process.observed.cpu_ns = Some(cpu_ns);
        let StatCounts { user_ticks, system_ticks, .. } = vitals.counts;
        process.observed.counts = StatCounts { user_ticks, system_ticks, ..process.observed.counts };
    }
}
