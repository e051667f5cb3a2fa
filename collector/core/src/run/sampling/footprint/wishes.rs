//! Chooses what to read next of how memory is shared: what makes most of the footprint certain.
//!
//! `BudgetPolicy` says how much CPU time readings may cost. A sample that would set a new peak may exceed the budget, but by less
//! while memory grows. What is left of the budget brings private and proportional sizes up to date.
//!
//! While smaps or smaps_rollup walks a mapping, its process waits in mmap(2), munmap(2), pthread_create(3) and some page faults. So
//! large processes are read by pagemap: the kernel takes the mmap lock for 2 MiB at a time (`PAGEMAP_WALK_SIZE`), which is 10 us.

use std::collections::HashMap;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Estimate, Estimates, LastReading, Readings, is_borrowed, is_current, negligible_bytes};
use crate::model::groups::Groups;
use crate::model::observation::{SharingSource, SharingTarget};
use crate::run::tree::{Image, ImageGroup, Process, ProcessId, Tree};

/// How far beyond the budget a reading of sharing may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharingCredit {
    /// It may not even use the part of the budget that is reserved for footprints.
    Spare,
    /// Not at all: it may use only what the budget has left.
    None,
    /// Far, since the sample may set a new peak, and too much of that is uncertain.
    NewPeak,
    /// Less far: the same, but memory still grows, so the next sample will want the reading again.
    GrowingPeak,
}

/// Processes whose sharing is to be read together.
#[derive(Debug)]
pub struct Unit {
    /// All processes whose proportional sizes depend on each other.
    pub members: Vec<ProcessId>,
    /// What to read of them, in this order. Members that were read before may be left out.
    pub order: Vec<SharingTarget>,
    /// How far beyond the budget the readings may go.
    pub credit: SharingCredit,
}

/// What was read, or tried to be read, for this sample already.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tried {
    /// Image groups (fork relatives).
    pub groups: FxHashSet<ImageGroup>,
    /// Processes that were read by themselves, with or without their mappings, or by pagemap. A second reading of one, with its
    /// mappings, waits for the next sample.
    pub files: FxHashSet<ProcessId>,
}

/// A process with more memory than this is large: smaps takes 0.8 to 2.5 ms for so much in pages of 4 KiB, and up to 5 ms on a
/// machine half as fast. The number of mappings hardly matters: 60,000 take 2.6 ms, and since Linux 5.10 smaps_rollup releases the
/// lock between two of them if somebody waits.
const LARGE_BYTES: u64 = 256 << 20;

/// A reading is worth its cost if it makes more bytes certain than one part in this many of the negligible amount. So this many
/// readings that are left out are negligible together.
const WORTH_PART: u64 = 4;

/// An image group (fork relatives, which may share anonymous pages) with uncertain anonymous memory.
#[derive(Debug, Default)]
struct UncertainGroup {
    /// How much of its anonymous memory is uncertain, bytes.
    uncertain_bytes: u64,
    /// Its processes, oldest first.
    members: Vec<ProcessId>,
}

/// The processes of one program, by what readings of their mappings would tell.
#[derive(Debug)]
struct UnreadProgram {
    /// Sum over the processes of what a reading of each would tell (`Estimate::files_unread_bytes`).
    unread_bytes: u64,
    /// The most that the reading of a single process would tell, bytes.
    largest_bytes: u64,
    /// The process whose reading would tell that.
    largest: ProcessId,
}

impl Estimates {
    /// The reading that makes most of the footprint certain: of an image group, or of one process's mappings, which then
    /// stand for its program. What was `tried` for this sample is left out. `None`: no reading is worth its cost. `mark` is the
    /// largest RAM so far, bytes: the reading may exceed the budget only if this sample's RAM can exceed the mark.
    pub(crate) fn next_unit(
        &self,
        tree: &Tree,
        readings: Readings,
        tried: &Tried,
        mark: Groups<u64>,
    ) -> Option<Unit> {
        let groups =
            self.uncertain_groups(tree).into_iter().filter(|(group, _)| !tried.groups.contains(group));
        let largest_group = groups.map(|(_, group)| group).max_by_key(|group| group.uncertain_bytes);
        let programs = self.unread_programs(tree, tried).into_values();
        let largest_program = programs.max_by_key(|program| program.unread_bytes);
        // What the better reading of each kind would make certain, bytes. For files, that is no more than what is uncertain of
        // the footprint.
        let unread_bytes = largest_program.as_ref().map_or(0, |program| program.unread_bytes);
        let of_files = unread_bytes.min(self.files_uncertain_bytes);
        let of_group = largest_group.as_ref().map_or(0, |group| group.uncertain_bytes);
        if of_files.max(of_group) <= self.negligible_bytes() / WORTH_PART {
            return None;
        }
        let (members, order) = match largest_group.filter(|_| of_group >= of_files) {
            Some(UncertainGroup { members, .. }) => {
                let order = self.reading_order(tree, readings, &members);
                (members, order)
            }
            None => members_and_targets(tree, readings, largest_program?.largest, SharingSource::Smaps),
        };
        let credit = self.credit(tree, readings, mark, &members);
        Some(Unit { members, order, credit })
    }

    /// Readings of the processes whose private and proportional sizes may be too wrong by now, the worst first. The footprint does
    /// not depend on these sizes. How much is too wrong depends on the footprint of all descendants. For the command's first
    /// process, which has figures of its own, it depends on that process's footprint.
    ///
    /// Large processes that were `tried` for this sample are left out.
    pub(crate) fn stale(&self, tree: &Tree, readings: Readings, tried: &Tried) -> Vec<Unit> {
        let most_descendants_bytes = self.descendants_footprint_bytes + self.uncertain_bytes;
        let is_stale = |(id, estimate): &(&ProcessId, &Estimate)| {
            let is_main = tree.get(**id).is_some_and(|process| process.ids.is_main);
            let sum_bytes = if is_main { estimate.contribution.added_bytes } else { most_descendants_bytes };
            estimate.stale_bytes > negligible_bytes(sum_bytes) / WORTH_PART
        };
        let mut stale: Vec<_> = self.by_id.iter().filter(is_stale).collect();
        stale.sort_unstable_by_key(|(id, estimate)| (std::cmp::Reverse(estimate.stale_bytes), **id));
        let mut tried = tried.files.clone();
        let mut units = Vec::with_capacity(stale.len());
        for (id, _) in stale {
            let (members, order) = members_and_targets(tree, readings, *id, source_of_one(tree, *id));
            let is_by_pages = order.iter().any(|target| matches!(target.source, SharingSource::Pages { .. }));
            // With pagemap, each stale member of an image group leads to the same unit, which counts once.
            if !is_by_pages || tried.insert(*id) {
                if is_by_pages {
                    tried.extend(&members);
                }
                units.push(Unit { members, order, credit: SharingCredit::Spare });
            }
        }
        units
    }

    /// How far beyond the budget a reading of these processes may go. There is credit only if the sample may set a new peak
    /// (above `mark`) and more of the footprint is uncertain than is negligible. If one of them still grows, the credit is
    /// smaller.
    fn credit(
        &self,
        tree: &Tree,
        readings: Readings,
        mark: Groups<u64>,
        members: &[ProcessId],
    ) -> SharingCredit {
        let may_be_new_peak = self.combined_footprint_bytes + self.uncertain_bytes > mark.combined
            || self.descendants_footprint_bytes + self.uncertain_bytes > mark.descendants;
        if !may_be_new_peak || self.uncertain_bytes <= self.negligible_bytes() {
            SharingCredit::None
        } else if members.iter().any(|id| is_growing(tree, readings, *id)) {
            SharingCredit::GrowingPeak
        } else {
            SharingCredit::NewPeak
        }
    }

    /// The image groups with uncertain anonymous memory, each with all its processes that can be read.
    fn uncertain_groups(&self, tree: &Tree) -> FxHashMap<ImageGroup, UncertainGroup> {
        // A process that runs in its parent's memory is not read: its /proc files show its parent's memory.
        let group_of = |id: ProcessId| {
            tree.get(id).filter(|_| !is_borrowed(tree, id)).map(|process| process.program.group)
        };
        // First the groups are found, then all their members, since these are read together.
        let mut groups: FxHashMap<ImageGroup, UncertainGroup> = FxHashMap::default();
        for (id, estimate) in self.by_id.iter().filter(|(_, estimate)| estimate.anonymous_uncertain_bytes > 0)
        {
            let Some(group) = group_of(*id) else { continue };
            groups.entry(group).or_default().uncertain_bytes += estimate.anonymous_uncertain_bytes;
        }
        if groups.is_empty() {
            return groups;
        }
        for id in self.by_id.keys() {
            if let Some(group) = group_of(*id).and_then(|group| groups.get_mut(&group)) {
                group.members.push(*id);
            }
        }
        for group in groups.values_mut() {
            group.members.sort_unstable();
        }
        groups
    }

    /// Sums up, by program, what readings of the processes' mappings would tell. Processes that were `tried` for this sample are
    /// left out. Of two processes with the most, names the older one, so that the choice is always the same.
    fn unread_programs<'a>(&self, tree: &'a Tree, tried: &Tried) -> HashMap<&'a Arc<str>, UnreadProgram> {
        let mut programs: HashMap<&Arc<str>, UnreadProgram> = HashMap::new();
        for (id, estimate) in &self.by_id {
            let unread_bytes = estimate.files_unread_bytes;
            let is_wanted = unread_bytes > 0 && !tried.files.contains(id);
            let Some(process) = tree.get(*id).filter(|_| is_wanted) else { continue };
            let none = UnreadProgram { unread_bytes: 0, largest_bytes: 0, largest: *id };
            let program = programs.entry(&process.name.command).or_insert(none);
            program.unread_bytes += unread_bytes;
            let is_older = *id < program.largest;
            if unread_bytes > program.largest_bytes || (unread_bytes == program.largest_bytes && is_older) {
                (program.largest_bytes, program.largest) = (unread_bytes, *id);
            }
        }
        programs
    }

    /// Which `members` of an image group to read, in order. If one of them is large, all are read, by pagemap. Otherwise those are read
    /// that were not read since the group last changed; or, if all were, all of them again, the most uncertain first.
    fn reading_order(&self, tree: &Tree, readings: Readings, members: &[ProcessId]) -> Vec<SharingTarget> {
        if let Some(targets) = pages_of(tree, readings, members) {
            return targets;
        }
        let needs_reading = |id: &ProcessId| {
            !is_borrowed(tree, *id) && !is_current(readings.by_id.get(id), super::epoch(tree, *id))
        };
        let mut order: Vec<ProcessId> = members.iter().copied().filter(needs_reading).collect();
        if order.is_empty() {
            order = members.to_vec();
            order.sort_by_key(|id| {
                std::cmp::Reverse(self.by_id.get(id).map_or(0, |estimate| estimate.anonymous_uncertain_bytes))
            });
        }
        order.into_iter().map(|id| SharingTarget { id, source: source_of_one(tree, id) }).collect()
    }
}

/// What to read of a process to know its sharing. The footprint of the command's first process is without its fork
/// children, and only its mappings tell which pages it shares with these.
fn source_of_one(tree: &Tree, id: ProcessId) -> SharingSource {
    let has_relatives =
        |process: &Process| process.ids.is_main && !super::is_alone(tree, process.program.group);
    if tree.get(id).is_some_and(has_relatives) { SharingSource::Smaps } else { SharingSource::Rollup }
}

/// The members of a unit that reads this process, and what to read of them. If it or a fork relative is large, these are all of
/// them, read by pagemap. Otherwise it is the process alone, read from `source`.
fn members_and_targets(
    tree: &Tree,
    readings: Readings,
    id: ProcessId,
    source: SharingSource,
) -> (Vec<ProcessId>, Vec<SharingTarget>) {
    let group = tree.get(id).and_then(|process| tree.group(process.program.group));
    let is_read = |id: &ProcessId| !is_borrowed(tree, *id) && readings.by_id.contains_key(id);
    let relatives = group.map(|group| group.members.iter().copied().filter(is_read).collect());
    let members: Vec<ProcessId> = relatives.unwrap_or_default();
    match pages_of(tree, readings, &members) {
        Some(targets) => (members, targets),
        None => (vec![id], vec![SharingTarget { id, source }]),
    }
}

/// If one of these members of an image group is large, returns targets for reading all of them by pagemap. A pagemap does not say how
/// many processes have a page, only whether several do. Fork relatives have a shared page at the same address, so reading all of them
/// together tells how many have it.
fn pages_of(tree: &Tree, readings: Readings, members: &[ProcessId]) -> Option<Vec<SharingTarget>> {
    let reading = |id: &ProcessId| readings.by_id.get(id);
    if !members.iter().filter_map(reading).any(|reading| reading.walked_bytes() > LARGE_BYTES) {
        return None;
    }
    let target = |id: &ProcessId| {
        let (process, reading) = (tree.get(*id)?, reading(id)?);
        // Its anonymous pages are all its own, and need no reading, if no other process of its group has memory. Its image must be
        // known, too: an unknown one may be a copy of its parent's.
        let with_anonymous =
            !super::is_alone(tree, process.program.group) || process.program.image == Image::Unknown;
        let bytes = if with_anonymous { reading.walked_bytes() } else { reading.file_bytes() };
        Some(SharingTarget { id: *id, source: SharingSource::Pages { bytes, with_anonymous } })
    };
    Some(members.iter().filter(|id| !is_borrowed(tree, **id)).filter_map(target).collect())
}

/// Memory grows if it is larger than at the sample before by more than one part in this many. A process that only works with the
/// memory that it has grows by less.
const GROWTH_PART: u64 = 1000;

/// Whether a process's RSS has grown since its last sample by more than one part in [`GROWTH_PART`]. A process without a last
/// sample has grown, one without a reading has not.
fn is_growing(tree: &Tree, readings: Readings, id: ProcessId) -> bool {
    let before = tree.get(id).map_or(0, |process| process.observed.rss_bytes);
    let has_grown =
        |reading: &LastReading| reading.size.rss_bytes > before.saturating_add(before / GROWTH_PART);
    readings.by_id.get(&id).is_some_and(has_grown)
}
