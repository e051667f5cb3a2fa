//! The tree's RAM: its footprint, the distinct pages that its processes have mapped, whoever else maps them.
//!
//! The kernel says exactly how pages are shared. Reading that from smaps_rollup takes 20 us for a small process and 19 ms for 4
//! GB, with the process's mmap lock held. smaps takes up to four times as long. Large processes are read by pagemap instead. Most
//! is known from statm alone, or from an earlier reading:
//!
//! - Anonymous pages are shared between fork relatives (an image group) only: see [`anonymous`].
//! - Pages of files and of shared memory are mapped by any process: see [`super::files`].
//!
//! Each process has an estimate: what it certainly adds to the footprint of all older processes, and how much more that can be.
//! So the sum over the tree is its footprint, and does not change when a process forks. A maximum counts what is certain. How much
//! is uncertain decides what is read next: see [`wishes`].

mod anonymous;
mod wishes;

use rustc_hash::{FxHashMap, FxHashSet};

use super::files::{FileFootprint, FileTimes, KnownFiles, KnownPrograms};
use super::reading::LastReading;
use crate::run::tree::{Contribution, Image, ImageGroup, Process, ProcessId, Tree};
use anonymous::{Anonymous, Member};
pub(crate) use wishes::Tried;
pub use wishes::{SharingCredit, Unit};

/// What one process adds to the tree's RAM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Estimate {
    /// What it adds for certain.
    pub contribution: Contribution,
    /// Its proportional size, as far as that was read, bytes.
    pub proportional_bytes: u64,
    /// Pages of which the proportional size was never read, bytes.
    pub unread_proportional_bytes: u64,
    /// How much more may be private, bytes: how the process shares its memory was never read.
    pub unread_private_bytes: u64,
    /// How much more anonymous memory it may add to the tree's footprint or the descendants', whichever is more, bytes.
    pub anonymous_uncertain_bytes: u64,
    /// About how many of its file pages a reading of its mappings would tell more, bytes.
    pub files_unread_bytes: u64,
    /// By how much its private and proportional sizes may be wrong, bytes.
    pub stale_bytes: u64,
    /// How much more it or its image group can hold in pages that no reading tells apart, bytes. That of a group is noted for its
    /// youngest process. The command's first process has none of its own.
    pub unseen_bytes: u64,
}

/// What each process adds to the tree's RAM, and the sums of that.
#[derive(Debug, Clone, Default)]
pub(crate) struct Estimates {
    /// The estimate of each process that was live when these were made.
    pub by_id: FxHashMap<ProcessId, Estimate>,
    /// By how much the tree's footprint, or the descendants', may be larger, bytes.
    uncertain_bytes: u64,
    /// The part of `uncertain_bytes` that is in file pages, bytes.
    files_uncertain_bytes: u64,
    /// Footprint of the tree, for certain, bytes.
    combined_footprint_bytes: u64,
    /// Footprint of the descendants, for certain, bytes.
    descendants_footprint_bytes: u64,
}

impl Estimates {
    /// How much does not matter in the footprint of the tree, bytes.
    fn negligible_bytes(&self) -> u64 {
        negligible_bytes(self.combined_footprint_bytes + self.uncertain_bytes)
    }
}

/// One part in this many of a sum does not matter.
const NEGLIGIBLE_PART: u64 = 100;

/// This many bytes do not matter in any sum.
const NEGLIGIBLE_BYTES: u64 = 1 << 20;

/// How many bytes do not matter in a sum of this size.
fn negligible_bytes(of_bytes: u64) -> u64 {
    (of_bytes / NEGLIGIBLE_PART).max(NEGLIGIBLE_BYTES)
}

/// Last readings of the live processes, and of programs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Readings<'a> {
    pub by_id: &'a FxHashMap<ProcessId, LastReading>,
    pub programs: &'a KnownPrograms,
    /// The live processes, oldest first.
    pub alive: &'a [ProcessId],
    /// The sum of their shared memory, each counted in full, bytes.
    pub shared_of_all_bytes: u64,
    /// How much the processes of each image group have copied between two forks of theirs, bytes.
    pub copied_bytes: &'a FxHashMap<ImageGroup, u64>,
}

/// Makes the estimates for all live processes, and their sums.
pub(crate) fn estimate_all(tree: &Tree, readings: Readings) -> Estimates {
    let mut all = Estimates::default();
    // This makes an estimate for each process. The steps after it complete the estimates.
    add_anonymous(tree, readings, &mut all);
    add_files(tree, readings, &mut all);
    for (id, estimate) in &mut all.by_id {
        // A process that runs in its parent's memory has nothing to be read.
        if let Some(reading) = readings.by_id.get(id).filter(|_| !is_borrowed(tree, *id)) {
            add_last_reading(estimate, reading, readings.shared_of_all_bytes);
            if !reading.is_sharing_denied && has_unread_relatives(tree, *id, reading) {
                // How much of its memory no other process has is not known any more.
                estimate.stale_bytes += reading.anonymous_bytes();
            }
        }
        all.combined_footprint_bytes += estimate.contribution.added_bytes;
        all.descendants_footprint_bytes += estimate.contribution.added_to_descendants_bytes;
        all.uncertain_bytes += estimate.anonymous_uncertain_bytes;
    }
    all.uncertain_bytes += all.files_uncertain_bytes;
    all
}

/// A process that adds memory to the footprint, and its last reading. `None`: it was never read, or runs in its parent's memory.
fn counted<'a>(
    tree: &'a Tree,
    readings: Readings<'a>,
    id: ProcessId,
) -> Option<(&'a Process, &'a LastReading)> {
    let process = tree.get(id)?;
    let reading = readings.by_id.get(&id)?;
    (process.program.image != Image::Borrowed).then_some((process, reading))
}

/// Adds each process's part of the anonymous pages to the estimates.
fn add_anonymous(tree: &Tree, readings: Readings, all: &mut Estimates) {
    let page_bytes = tree.context().page;
    // The processes that add memory, by image group. The others add nothing.
    let mut groups: FxHashMap<ImageGroup, Vec<ProcessId>> = FxHashMap::default();
    for id in readings.alive {
        if let Some((process, _)) = counted(tree, readings, *id) {
            groups.entry(process.program.group).or_default().push(*id);
        } else {
            all.by_id.insert(*id, Estimate::default());
        }
    }
    let have_forked: FxHashSet<ProcessId> =
        readings.alive.iter().filter_map(|id| tree.get(*id)?.ancestry.parent.known()).collect();
    let member = |id: &ProcessId| {
        let (process, reading) = counted(tree, readings, *id)?;
        Some(Member {
            reading,
            image: process.program.image,
            is_main: process.ids.is_main,
            // The epoch counts the changes of the image group: a reading of an earlier one is out of date.
            is_current: is_current(Some(reading), epoch(tree, *id)),
            has_forked: have_forked.contains(id),
        })
    };
    for (group, ids) in groups {
        // `groups` has only processes that count, so each has its member.
        let members: Vec<Member> = ids.iter().filter_map(member).collect();
        // The tree decides this, since a process of the group that this sample did not read can share the pages, too.
        let is_alone = is_alone(tree, group);
        // All that have memory must have a reading, and one since the group last changed.
        let with_memory = tree
            .group(group)
            .map_or(0, |group| group.members.iter().filter(|id| !is_borrowed(tree, **id)).count());
        let are_read = members.len() == with_memory && is_group_read(tree, readings.by_id, group);
        let added = added_by_group(&members, are_read, page_bytes);
        for ((id, member), added) in ids.iter().zip(&members).zip(added) {
            all.by_id.insert(*id, anonymous_estimate(member, added, is_alone, page_bytes));
        }
        if let Some(youngest) = ids.last().and_then(|id| all.by_id.get_mut(id)).filter(|_| are_read) {
            // Relatives share several pages at one address only if their parent copied pages between its forks. So these are no
            // more than it copied.
            let copied_bytes = readings.copied_bytes.get(&group).copied().unwrap_or(0);
            youngest.unseen_bytes += anonymous::unseen_bytes(&members).min(copied_bytes);
        }
    }
}

/// What each process of an image group adds by its anonymous pages, oldest first: to the tree's footprint, and to the descendants'.
/// `are_read`: all were read since the group last changed.
fn added_by_group(members: &[Member], are_read: bool, page_bytes: u64) -> Vec<(Anonymous, Anonymous)> {
    let combined = anonymous::of_group(members, are_read, page_bytes);
    let main_index = members.iter().position(|member| member.is_main);
    let descendants = match main_index {
        Some(index) if members.len() > 1 => {
            let mut added = anonymous::of_descendants(members, are_read, page_bytes);
            // The command's first process has no entry there, since it is no descendant.
            added.insert(index, Anonymous::default());
            added
        }
        _ => combined.clone(),
    };
    combined.into_iter().zip(descendants).collect()
}

/// Makes the estimate of a process from its anonymous pages, and from what these add to the tree's footprint and to the descendants'.
/// `is_alone`: no other process of its image group has memory.
fn anonymous_estimate(
    member: &Member,
    (combined, descendants): (Anonymous, Anonymous),
    is_alone: bool,
    page_bytes: u64,
) -> Estimate {
    let uncertain_bytes = combined.uncertain_bytes.max(descendants.uncertain_bytes);
    // The larger of both decides what is read next. If the sharing can't be read, it stays uncertain: an upper bound. That of the
    // command's first process is left out, since it counts for its fork children.
    let is_denied = member.reading.is_sharing_denied;
    let unseen_bytes = if is_denied && !member.is_main { uncertain_bytes } else { 0 };
    let contribution = Contribution {
        added_bytes: combined.certain_bytes,
        // The command's first process is no descendant.
        added_to_descendants_bytes: if member.is_main { 0 } else { descendants.certain_bytes },
        private_bytes: anonymous::private_bytes(member, is_alone)
            + anonymous::private_of_files_bytes(member, is_alone),
    };
    Estimate {
        contribution,
        proportional_bytes: anonymous::proportional_bytes(member, is_alone),
        unread_private_bytes: anonymous::unread_private_bytes(member, is_alone, page_bytes),
        anonymous_uncertain_bytes: if is_denied { 0 } else { uncertain_bytes },
        unseen_bytes,
        ..Estimate::default()
    }
}

/// Adds each process's part of the file pages to the estimates, and how much more of them the footprint may have.
fn add_files(tree: &Tree, readings: Readings, all: &mut Estimates) {
    let mut times = FileTimes::default();
    for id in readings.alive {
        if let Some(files) = readings.by_id.get(id).and_then(|reading| reading.files.as_ref()) {
            times.add(files);
        }
    }
    // From the oldest process on, each adds the file pages that none before it has: to the tree's footprint, and to the descendants'.
    let mut combined = FileFootprint::default();
    let mut descendants = FileFootprint::default();
    // Proportional sizes of the processes' file pages, bytes.
    let mut file_pss: Vec<(ProcessId, u64)> = Vec::new();
    for id in readings.alive {
        let Some((process, reading)) = counted(tree, readings, *id) else { continue };
        let Some(estimate) = all.by_id.get_mut(id) else { continue };
        let bytes = reading.file_bytes();
        let known = known_files(readings, process, reading);
        let files = FilesReading::of_process(reading, readings.shared_of_all_bytes).unwrap_or_default();
        // If other processes may have come to share the pages, the proportional size is too large, and does not count.
        let pss_bytes = if files.more_others_bytes > 0 { 0 } else { files.pss_bytes };
        file_pss.push((*id, pss_bytes));
        let added = combined.add(bytes, pss_bytes, known, &times);
        estimate.contribution.added_bytes += added.certain_bytes;
        estimate.files_unread_bytes = added.unread_bytes;
        if !process.ids.is_main {
            let added = descendants.add(bytes, pss_bytes, known, &times);
            estimate.contribution.added_to_descendants_bytes += added.certain_bytes;
        }
    }
    all.files_uncertain_bytes = combined.uncertain_bytes().max(descendants.uncertain_bytes());
    let missing_bytes = combined.missing_bytes().max(descendants.missing_bytes());
    if missing_bytes == 0 {
        return;
    }
    // Some process maps other files than were assumed. Only the mappings tell which process that is, so all may be read.
    all.files_uncertain_bytes = all.files_uncertain_bytes.max(missing_bytes);
    for (id, pss_bytes) in file_pss {
        if let Some(estimate) = all.by_id.get_mut(&id) {
            estimate.files_unread_bytes = estimate.files_unread_bytes.max(pss_bytes);
        }
    }
}

/// What is known of a process's file pages: by its own mappings, or those of another process of its program.
fn known_files<'a>(readings: Readings<'a>, process: &Process, reading: &'a LastReading) -> KnownFiles<'a> {
    match &reading.files {
        Some(files) => KnownFiles::Own(files),
        None if reading.is_sharing_denied => KnownFiles::Denied,
        None => {
            let of_program = readings.programs.find(&process.name.command, reading.file_bytes());
            of_program.map_or(KnownFiles::Size, |files| KnownFiles::Assumed(files))
        }
    }
}

/// What the last reading of smaps_rollup says of a process's file pages.
#[derive(Default)]
struct FilesReading {
    /// Their proportional size, scaled to how many file pages there are now, bytes.
    pss_bytes: u64,
    /// How many file pages there are more or less now than at that reading, bytes.
    changed_bytes: u64,
    /// Pages that other processes have mapped since, bytes. If these are the same pages, its proportional part of them is smaller
    /// now.
    more_others_bytes: u64,
    /// Shared pages that the proportional size lacks, scaled as well, bytes.
    uncounted_bytes: u64,
}

impl FilesReading {
    /// What the last reading of a process says. `None`: its sharing was never read.
    fn of_process(reading: &LastReading, shared_of_all_bytes: u64) -> Option<Self> {
        let sharing = reading.sharing.as_ref()?;
        let (now_bytes, then_bytes) = (reading.size.shared_bytes, sharing.size.shared_bytes);
        let pss_bytes = sharing.rollup.pss_bytes.saturating_sub(sharing.rollup.pss_anon_bytes);
        let others_bytes = shared_of_all_bytes.saturating_sub(now_bytes);
        let uncounted_bytes = sharing.rollup.uncounted_bytes;
        Some(Self {
            pss_bytes: scale(pss_bytes, now_bytes, then_bytes).min(now_bytes),
            changed_bytes: now_bytes.abs_diff(then_bytes),
            more_others_bytes: others_bytes.saturating_sub(sharing.others_shared_bytes).min(pss_bytes),
            // `scale` would make something of nothing if there were no file pages then.
            uncounted_bytes: if uncounted_bytes == 0 {
                0
            } else {
                scale(uncounted_bytes, now_bytes, then_bytes).min(now_bytes)
            },
        })
    }
}

/// Adds to an estimate what the last reading says of the file pages. If sharing was never read, they count as unread in both sizes,
/// private and proportional. Also notes by how much these sizes may be wrong by now, which decides on another reading.
fn add_last_reading(estimate: &mut Estimate, reading: &LastReading, shared_of_all_bytes: u64) {
    let stale_bytes = if let Some(files) = FilesReading::of_process(reading, shared_of_all_bytes) {
        estimate.proportional_bytes += files.pss_bytes;
        estimate.unread_proportional_bytes = files.uncounted_bytes;
        files.changed_bytes + files.more_others_bytes
    } else {
        let shared_bytes = reading.size.shared_bytes;
        // Anonymous pages that no other process can have are in the proportional size already, without a reading.
        let anonymous_bytes = reading.anonymous_bytes().saturating_sub(estimate.proportional_bytes);
        estimate.unread_proportional_bytes = shared_bytes + anonymous_bytes;
        estimate.unread_private_bytes += shared_bytes;
        reading.file_bytes()
    };
    // A process whose smaps_rollup can't be read is not to be read again.
    estimate.stale_bytes = if reading.is_sharing_denied { 0 } else { stale_bytes };
}

/// Scales a `part` of something that had the size `then` to its size `now`. If `then` is 0, all of `now` counts as the part.
fn scale(part: u64, now: u64, then: u64) -> u64 {
    if then == 0 { now } else { (u128::from(part) * u128::from(now) / u128::from(then)) as u64 }
}

/// Whether the sharing of all processes of an image group was read since the group last changed. Processes that run in their
/// parent's memory need no reading.
fn is_group_read(tree: &Tree, readings: &FxHashMap<ProcessId, LastReading>, group: ImageGroup) -> bool {
    tree.group(group).is_some_and(|group| {
        group.members.iter().all(|id| is_borrowed(tree, *id) || is_current(readings.get(id), group.epoch))
    })
}

/// Whether a process runs in its parent's memory.
fn is_borrowed(tree: &Tree, id: ProcessId) -> bool {
    tree.get(id).is_some_and(|process| process.program.image == Image::Borrowed)
}

/// Whether a process's sharing was read since its image group last changed.
fn is_current(reading: Option<&LastReading>, epoch: u64) -> bool {
    reading.and_then(|reading| reading.sharing).is_some_and(|sharing| sharing.epoch == epoch)
}

/// Whether at most one process of an image group has memory. The others run in their parent's.
pub(super) fn is_alone(tree: &Tree, group: ImageGroup) -> bool {
    let has_memory = |id: &&ProcessId| !is_borrowed(tree, **id);
    tree.group(group).is_none_or(|group| group.members.iter().filter(has_memory).nth(1).is_none())
}

/// The image groups of which several processes have memory, and not all were read since the group last changed.
pub(crate) fn unread_groups(
    tree: &Tree,
    readings: &FxHashMap<ProcessId, LastReading>,
    alive: &[ProcessId],
) -> FxHashSet<ImageGroup> {
    let groups: FxHashSet<ImageGroup> =
        alive.iter().filter_map(|id| Some(tree.get(*id)?.program.group)).collect();
    let is_unread = |group: &ImageGroup| !is_alone(tree, *group) && !is_group_read(tree, readings, *group);
    groups.into_iter().filter(is_unread).collect()
}

/// Whether a process may share anonymous pages with others, and was not read since its image group last changed.
fn has_unread_relatives(tree: &Tree, id: ProcessId, reading: &LastReading) -> bool {
    let is_shared = |process: &Process| {
        process.program.image != Image::Borrowed && !is_alone(tree, process.program.group)
    };
    !is_current(Some(reading), epoch(tree, id)) && tree.get(id).is_some_and(is_shared)
}

/// The epoch of a process's image group: how often the group has changed. 0: the process or its group is not known.
pub(crate) fn epoch(tree: &Tree, id: ProcessId) -> u64 {
    tree.get(id).and_then(|process| tree.group(process.program.group)).map_or(0, |group| group.epoch)
}
