//! The tree's RAM: private memory added up, shared memory counted once.
//!
//! The kernel's answer is the sum of the proportional set sizes, but reading one takes 20 us for a small process and
//! 19 ms for 4 GB, with the process's mmap lock held. Most of it is known without:
//!
//! - Anonymous memory of a process that has no fork relatives in the same image is its own: `statm` is enough.
//! - A fork child shares what it has not touched since: until it is read, its share is what it faulted in or grew by,
//!   and the oldest of the image's processes holds the rest.
//! - Memory of files and shared memory (`statm`'s third number) is what is uncertain, and what was copied on write
//!   since the last reading.
//!
//! So each process has an [`Estimate`]: its share, and how much of that is uncertain.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::reading::LastReading;

use crate::run::tree::program::fork_share;
use crate::run::tree::{Image, ImageGroup, ProcessId, Tree};

/// A process's part in the tree's RAM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Estimate {
    /// Its share, bytes.
    pub share: u64,
    /// The part of the share that no other process has, bytes.
    pub private: u64,
    /// How much of the share may be another's too, bytes.
    pub uncertain: u64,
}

/// Sums over processes, bytes; main apart from its descendants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sums {
    /// RSS of the first process.
    pub main_rss: u64,
    /// Its share of the tree's RAM.
    pub main: u64,
    /// The private part of it.
    pub main_private: u64,
    /// Shares of the others.
    pub descendants: u64,
    /// The private part of them.
    pub descendants_private: u64,
    /// The uncertain part of the others' shares.
    pub descendants_uncertain: u64,
    /// The uncertain part of all shares.
    pub uncertain: u64,
    /// Threads of the first process.
    pub main_threads: u64,
    /// Threads of the others.
    pub descendants_threads: u64,
    /// Processes.
    pub processes: u64,
}

impl Sums {
    /// One process.
    pub(crate) fn of(is_main: bool, estimate: &Estimate, reading: &LastReading) -> Self {
        let mut sums = Self { processes: 1, uncertain: estimate.uncertain, ..Self::default() };
        if is_main {
            sums.main_rss = reading.size.rss_bytes + reading.hugetlb_bytes;
            sums.main = estimate.share;
            sums.main_private = estimate.private;
            sums.main_threads = reading.vitals.threads;
        } else {
            sums.descendants = estimate.share;
            sums.descendants_private = estimate.private;
            sums.descendants_uncertain = estimate.uncertain;
            sums.descendants_threads = reading.vitals.threads;
        }
        sums
    }

    /// Add another's.
    pub(crate) fn add(&mut self, other: &Self) {
        self.main_rss += other.main_rss;
        self.main += other.main;
        self.main_private += other.main_private;
        self.descendants += other.descendants;
        self.descendants_private += other.descendants_private;
        self.descendants_uncertain += other.descendants_uncertain;
        self.uncertain += other.uncertain;
        self.main_threads += other.main_threads;
        self.descendants_threads += other.descendants_threads;
        self.processes += other.processes;
    }

    /// One process's sums with the smaller of two shares.
    pub(crate) fn smaller_share(mut self, before: u64, threads_before: u64) -> Self {
        self.main = self.main.min(before);
        self.descendants = self.descendants.min(before);
        self.main_threads = self.main_threads.min(threads_before);
        self.descendants_threads = self.descendants_threads.min(threads_before);
        self
    }

    /// One process's sums with the mean of two shares.
    pub(crate) fn mean_share(mut self, before: u64) -> Self {
        if self.main > 0 {
            self.main = self.main.midpoint(before);
        } else {
            self.descendants = self.descendants.midpoint(before);
        }
        self
    }

    /// The whole tree's RAM.
    pub(crate) fn combined(&self) -> u64 {
        self.main + self.descendants
    }

    /// The private part of it.
    pub(crate) fn combined_private(&self) -> u64 {
        self.main_private + self.descendants_private
    }
}

/// Processes whose sharing must be read together.
#[derive(Debug)]
pub(crate) struct Unit {
    /// The uncertain bytes of all of them.
    pub uncertain: u64,
    /// The processes.
    pub members: Vec<ProcessId>,
}

/// What does not matter in a sum of this size, bytes.
pub(crate) fn negligible(combined: u64) -> u64 {
    (combined / 100).max(1 << 20)
}

/// Whether the uncertain part of the estimates is negligible.
pub(crate) fn certain(estimates: &HashMap<ProcessId, Estimate>) -> bool {
    let (share, uncertain) = estimates.values().fold((0, 0), |(share, uncertain), estimate| {
        (share + estimate.share, uncertain + estimate.uncertain)
    });
    uncertain <= negligible(share)
}

/// The sums of the estimates, as far as they are needed to see a new peak.
pub(crate) fn total(tree: &Tree, estimates: &HashMap<ProcessId, Estimate>) -> Sums {
    let mut sums = Sums::default();
    for (id, estimate) in estimates {
        if tree.get(*id).is_some_and(|process| process.ids.is_main) {
            sums.main += estimate.share;
        } else {
            sums.descendants += estimate.share;
        }
    }
    sums
}

/// The epoch of a process's image group.
pub(crate) fn epoch(tree: &Tree, id: ProcessId) -> u64 {
    tree.get(id).and_then(|process| tree.group(process.program.group)).map_or(0, |group| group.epoch)
}

/// What to read next, the most uncertain last. An image group is read together or not at all: the shares of its
/// processes depend on each other.
pub(crate) fn units_by_uncertainty(tree: &Tree, estimates: &HashMap<ProcessId, Estimate>) -> Vec<Unit> {
    let mut groups: HashMap<ImageGroup, Unit> = HashMap::new();
    for (id, estimate) in estimates {
        let Some(process) = tree.get(*id) else { continue };
        let unit = groups.entry(process.program.group).or_insert(Unit { uncertain: 0, members: Vec::new() });
        unit.uncertain += estimate.uncertain;
        unit.members.push(*id);
    }
    let mut units: Vec<Unit> = groups.into_values().filter(|unit| unit.uncertain > 0).collect();
    units.sort_unstable_by_key(|unit| unit.uncertain);
    units
}

/// In which order to read the members of a unit: those that were not read since the group last changed; once all
/// were, the most uncertain first.
pub(crate) fn reading_order(
    tree: &Tree,
    readings: &HashMap<ProcessId, LastReading>,
    estimates: &HashMap<ProcessId, Estimate>,
    members: &[ProcessId],
) -> Vec<ProcessId> {
    let is_read = |id: &ProcessId| is_borrowed(tree, *id) || is_current(readings.get(id), epoch(tree, *id));
    let unread: Vec<_> = members.iter().copied().filter(|id| !is_read(id)).collect();
    if !unread.is_empty() {
        return unread;
    }
    let mut order = members.to_vec();
    order.sort_by_key(|id| std::cmp::Reverse(estimates.get(id).map_or(0, |estimate| estimate.uncertain)));
    order
}

/// Estimates for all live processes.
pub(crate) fn estimate_all(
    tree: &Tree,
    readings: &HashMap<ProcessId, LastReading>,
    alive: &[ProcessId],
) -> HashMap<ProcessId, Estimate> {
    let read = groups_read(tree, readings, alive);
    let all = shared_of_all(readings, alive);
    alive.iter().filter_map(|id| Some((*id, estimate(tree, &read, *id, readings.get(id)?, all)?))).collect()
}

/// The shared memory of several processes, each in full, bytes.
pub(crate) fn shared_of_all<'a>(
    readings: &HashMap<ProcessId, LastReading>,
    of: impl IntoIterator<Item = &'a ProcessId>,
) -> u64 {
    of.into_iter().filter_map(|id| Some(readings.get(id)?.size.shared_bytes)).sum()
}

/// The two largest shared memories of several processes, bytes, and the process with the first.
pub(crate) fn largest_shared(readings: &HashMap<ProcessId, LastReading>, of: &[ProcessId]) -> LargestShared {
    let mut largest = LargestShared::default();
    for id in of {
        let shared = readings.get(id).map_or(0, |reading| reading.size.shared_bytes);
        if shared > largest.first {
            largest = LargestShared { id: Some(*id), first: shared, second: largest.first };
        } else {
            largest.second = largest.second.max(shared);
        }
    }
    largest
}

/// See [`largest_shared`].
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LargestShared {
    id: Option<ProcessId>,
    first: u64,
    second: u64,
}

/// How much of a process's growth may be other processes' memory too, bytes: the largest shared memory of another process, if
/// nearly all memory of this one is shared, and is more than common programs and libraries.
pub(crate) fn common_growth(reading: &LastReading, largest: LargestShared, id: ProcessId) -> u64 {
    const MUCH: u64 = 16 << 20;
    let is_sharing =
        reading.size.shared_bytes >= MUCH && reading.size.shared_bytes > reading.size.rss_bytes / 4 * 3;
    let of_others = if largest.id == Some(id) { largest.second } else { largest.first };
    if is_sharing { of_others } else { 0 }
}

/// The image groups of several processes of which all were read since they last changed.
pub(crate) fn groups_read(
    tree: &Tree,
    readings: &HashMap<ProcessId, LastReading>,
    of: &[ProcessId],
) -> HashSet<ImageGroup> {
    let groups: HashSet<ImageGroup> = of.iter().filter_map(|id| Some(tree.get(*id)?.program.group)).collect();
    let is_read = |group: &ImageGroup| {
        tree.group(*group).is_some_and(|group| {
            group.members.len() > 1
                && group
                    .members
                    .iter()
                    .all(|id| is_borrowed(tree, *id) || is_current(readings.get(id), group.epoch))
        })
    };
    groups.into_iter().filter(is_read).collect()
}

/// The estimate for one process; `shared_of_all` is the shared memory of all processes of the tree.
pub(crate) fn estimate(
    tree: &Tree,
    read: &HashSet<ImageGroup>,
    id: ProcessId,
    reading: &LastReading,
    shared_of_all: u64,
) -> Option<Estimate> {
    let process = tree.get(id)?;
    let group = tree.group(process.program.group)?;
    let mut estimate = if process.program.image == Image::Borrowed {
        return Some(Estimate::default());
    } else if group.members.len() <= 1 {
        alone(reading, matches!(process.program.image, Image::Unknown))
    } else if read.contains(&process.program.group) {
        read_together(reading, tree.context().page)
    } else if group.members.first() == Some(&id) {
        alone(reading, false)
    } else {
        forked(reading, process.program.image, tree.context().page)
    };
    if let Some(sharing) = &reading.sharing {
        // Other processes may have mapped the same pages since: then its share is smaller now. Pages that they unmapped make it
        // larger, but a process that has just ended still counts.
        let of_files = sharing.rollup.pss_bytes.saturating_sub(sharing.rollup.pss_anon_bytes);
        let others = shared_of_all.saturating_sub(reading.size.shared_bytes);
        let stale = others.saturating_sub(sharing.others_shared_bytes).min(of_files);
        estimate.uncertain = estimate.uncertain.saturating_add(stale).min(estimate.share);
    }
    estimate.share += reading.hugetlb_bytes;
    if reading.is_sharing_denied {
        estimate.uncertain = 0;
    }
    Some(estimate)
}

fn is_borrowed(tree: &Tree, id: ProcessId) -> bool {
    tree.get(id).is_some_and(|process| process.program.image == Image::Borrowed)
}

fn is_current(reading: Option<&LastReading>, epoch: u64) -> bool {
    reading.and_then(|reading| reading.sharing).is_some_and(|sharing| sharing.epoch == epoch)
}

/// No other process runs this image (or this process stands for all that do): anonymous memory is its own.
fn alone(reading: &LastReading, unknown_image: bool) -> Estimate {
    let anonymous = reading.size.rss_bytes - reading.size.shared_bytes;
    match &reading.sharing {
        None => Estimate {
            share: reading.size.rss_bytes,
            private: anonymous,
            uncertain: if unknown_image { reading.size.rss_bytes } else { reading.size.shared_bytes },
        },
        Some(sharing) => {
            let rollup = &sharing.rollup;
            let shared_share = rollup.pss_bytes.saturating_sub(rollup.pss_anon_bytes);
            let share = anonymous
                + scale(shared_share, reading.size.shared_bytes, sharing.size.shared_bytes)
                    .min(reading.size.shared_bytes);
            let private_of_files = rollup.private_bytes.saturating_sub(rollup.pss_anon_bytes);
            Estimate {
                share,
                private: (anonymous + private_of_files).min(share),
                uncertain: reading.size.shared_bytes.abs_diff(sharing.size.shared_bytes),
            }
        }
    }
}

/// All of the image group were read since it last changed: proportional sizes, carried forward by what grew.
fn read_together(reading: &LastReading, page: u64) -> Estimate {
    let Some(sharing) = &reading.sharing else { return Estimate::default() };
    let rollup = &sharing.rollup;
    let grown = reading.size.rss_bytes.saturating_sub(sharing.size.rss_bytes);
    let shrunk = sharing.size.rss_bytes.saturating_sub(reading.size.rss_bytes);
    // A page that is copied on write is a fault and no growth.
    let faulted = reading.vitals.minor_faults.saturating_sub(sharing.minor_faults).saturating_mul(page);
    let copied = faulted.saturating_sub(grown).min(rollup.rss_bytes.saturating_sub(rollup.pss_bytes));
    Estimate {
        share: (rollup.pss_bytes + grown).saturating_sub(shrunk),
        private: (rollup.private_bytes + grown).saturating_sub(shrunk),
        uncertain: reading.size.shared_bytes.abs_diff(sharing.size.shared_bytes) + copied,
    }
}

/// A fork child that was not read since: what it faulted in or grew by.
fn forked(reading: &LastReading, image: Image, page: u64) -> Estimate {
    let Image::Forked { rss_at_fork } = image else { return alone(reading, true) };
    let share =
        fork_share(reading.size.rss_bytes, rss_at_fork, reading.vitals.minor_faults.saturating_mul(page));
    let grown = reading
        .size
        .rss_bytes
        .saturating_sub(rss_at_fork)
        .min(reading.size.rss_bytes - reading.size.shared_bytes)
        .min(share);
    Estimate { share, private: grown, uncertain: share - grown }
}

/// `part` of `then`, scaled to `now`.
fn scale(part: u64, now: u64, then: u64) -> u64 {
    if then == 0 { now } else { (u128::from(part) * u128::from(now) / u128::from(then)) as u64 }
}
