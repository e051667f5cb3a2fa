//! The footprint of the pages of files, of shared memory and of hugetlbfs that some processes have mapped.
//!
//! Two processes can have the same pages of a file, or different ones, and processes outside the tree can have them too. If a
//! part of a file is resident as a whole, it is known which pages these are: pagemap divides large mappings into such parts.
//! Of any other part, the sum of the proportional sizes (PSS) is exact if no process outside the tree has the pages. Otherwise
//! that sum is too small. So the footprint of such a part is the larger of the largest RSS and the sum of the PSS. Different
//! parts of a file add up. A PSS counts only if it was read after the last change of that file's pages.
//!
//! smaps lists the mappings, but costs much more than statm. Without it, the footprint is at least that of the process with the
//! most file pages, and at most the sum. Tables are remembered by program name, so a thousand `sh` are read once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::model::observation::FileMapping;

/// When mappings count as the same or as changed, and which are remembered: each value with its reason.
struct FilePolicy;

impl FilePolicy {
    /// Programs of one name map the same files if their pages of them differ by at most one part in this many and
    /// [`Self::SAME_SIZE_BYTES`].
    const SAME_SIZE_PART: u64 = 16;
    /// By how many bytes the file pages of two runs of a program differ, since other pages of libraries are resident.
    const SAME_SIZE_BYTES: u64 = 128 << 10;
    /// A process with more file pages than this is read itself: it has mapped more than programs and libraries.
    const MOST_ASSUMED_BYTES: u64 = 32 << 20;
    /// The pages of a mapping have changed if their number differs by more than one part in this many and [`Self::CHANGE_BYTES`].
    const CHANGE_PART: u64 = 64;
    /// If the pages of a mapping differ by at most this many bytes, they have not changed.
    const CHANGE_BYTES: u64 = 64 << 10;
    /// Maximum number of programs whose files are remembered.
    const MOST_REMEMBERED: usize = 1024;
}

/// A mapped part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MappedPart {
    mapping: FileMapping,
    /// When the process had it in this size for the first time, CLOCK_MONOTONIC nanoseconds.
    since_ns: u64,
}

/// Whether all of a mapping is resident.
fn is_whole(mapping: &FileMapping) -> bool {
    mapping.rss_bytes == mapping.end - mapping.start
}

/// The files of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FileTable {
    parts: Vec<MappedPart>,
    /// How many file pages the process had when this was read, by statm and status, bytes.
    bytes: u64,
    /// When this was read, CLOCK_MONOTONIC nanoseconds.
    read_ns: u64,
}

/// Whether `by` continues a mapping: it begins later in the same file, but not after the mapping's end. If it begins at the same
/// place, it is another view of the same pages.
fn is_continued(mapping: &FileMapping, by: &FileMapping) -> bool {
    mapping.file == by.file && mapping.start < by.start && by.start <= mapping.end
}

/// Adds to a mapping another one that continues it. If both are whole, so is the result, even if they overlap.
fn join(mapping: &mut FileMapping, with: &FileMapping) {
    let are_whole = is_whole(mapping) && is_whole(with);
    mapping.end = mapping.end.max(with.end);
    mapping.rss_bytes += with.rss_bytes;
    mapping.pss_bytes += with.pss_bytes;
    if are_whole {
        mapping.rss_bytes = mapping.end - mapping.start;
    }
}

impl FileTable {
    /// Makes a table of what smaps shows at `read_ns`, CLOCK_MONOTONIC nanoseconds. `bytes`: how many file pages statm and status
    /// show at that time. `earlier`: the process's table of an earlier reading, which tells since when a part has its size.
    pub(crate) fn new(mut files: Vec<FileMapping>, bytes: u64, read_ns: u64, earlier: Option<&Self>) -> Self {
        files.sort_unstable_by_key(|mapping| (mapping.file, mapping.start));
        let mut parts: Vec<MappedPart> = Vec::with_capacity(files.len());
        for mapping in files {
            // The segments of a library follow each other in its file.
            match parts.last_mut() {
                Some(last) if is_continued(&last.mapping, &mapping) => join(&mut last.mapping, &mapping),
                _ => parts.push(MappedPart { mapping, since_ns: read_ns }),
            }
        }
        for part in &mut parts {
            let unchanged = earlier.and_then(|earlier| earlier.unchanged_part(&part.mapping));
            part.since_ns = unchanged.map_or(read_ns, |earlier| earlier.since_ns);
        }
        Self { parts, bytes, read_ns }
    }

    /// Finds the part that begins where this later reading of a mapping begins, if about as much of it is resident. `None`: there
    /// is no such part, or its pages have changed.
    fn unchanged_part(&self, mapping: &FileMapping) -> Option<&MappedPart> {
        let key = |mapping: &FileMapping| (mapping.file, mapping.start);
        let at = self.parts.binary_search_by_key(&key(mapping), |part| key(&part.mapping)).ok()?;
        let part = self.parts.get(at)?;
        let (then, now) = (part.mapping.rss_bytes, mapping.rss_bytes);
        let is_same = now.abs_diff(then) <= then / FilePolicy::CHANGE_PART + FilePolicy::CHANGE_BYTES;
        is_same.then_some(part)
    }

    /// Whether a process of the same program with this many bytes of file pages can be assumed to map the same files. If it has
    /// fewer pages, these are assumed to be a part of the same ones.
    fn may_stand_for(&self, bytes: u64) -> bool {
        bytes <= FilePolicy::MOST_ASSUMED_BYTES
            && bytes <= self.bytes + self.bytes / FilePolicy::SAME_SIZE_PART + FilePolicy::SAME_SIZE_BYTES
    }
}

/// The files of programs, by their names.
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownPrograms {
    tables: HashMap<Arc<str>, Arc<FileTable>>,
}

impl KnownPrograms {
    /// Keeps the table of a process that runs this command, unless it has mapped too much to stand for others. If there are too
    /// many commands, forgets all; those that run again may be read again.
    pub(crate) fn remember(&mut self, command: &Arc<str>, table: &Arc<FileTable>) {
        if table.bytes > FilePolicy::MOST_ASSUMED_BYTES {
            return;
        }
        if self.tables.len() >= FilePolicy::MOST_REMEMBERED && !self.tables.contains_key(command) {
            self.tables.clear();
        }
        self.tables.insert(command.clone(), table.clone());
    }

    /// The files that a process of this command with this many bytes of file pages can be assumed to map. `None`: its own
    /// mappings have to be read.
    pub(crate) fn find(&self, command: &Arc<str>, bytes: u64) -> Option<&Arc<FileTable>> {
        self.tables.get(command).filter(|table| table.may_stand_for(bytes))
    }
}

/// What is known of the file pages of one process.
#[derive(Debug, Clone, Copy)]
pub(crate) enum KnownFiles<'a> {
    /// Its own were read.
    Own(&'a FileTable),
    /// Those of another process of the same program were read.
    Assumed(&'a FileTable),
    /// Only how many there are is known.
    Size,
    /// They can't be read: the process is another user's.
    Denied,
}

/// What one more process adds to a [`FileFootprint`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Added {
    /// How much it adds for certain, bytes.
    pub certain_bytes: u64,
    /// Roughly, the file pages of which another reading of its smaps would tell more, bytes.
    pub unread_bytes: u64,
}

/// A range of a file, and how much of it the processes that were counted so far have resident.
#[derive(Debug, Clone, Copy)]
struct Segment {
    start: u64,
    end: u64,
    /// Resident at least, bytes: the most that one process has, or what was certain of the segments that were merged into this one.
    rss_bytes: u64,
    /// Sum of the proportional sizes that are still right.
    pss_bytes: u64,
    /// Sum of the proportional sizes that are not right any more.
    stale_pss_bytes: u64,
}

impl Segment {
    /// Whether all of it is resident, in one process or in several.
    fn is_whole(&self) -> bool {
        self.rss_bytes == self.end - self.start
    }

    /// A lower bound of its resident pages, bytes.
    fn certain_bytes(&self) -> u64 {
        if self.is_whole() { self.rss_bytes } else { self.rss_bytes.max(self.pss_bytes) }
    }

    /// How many more resident pages it can have by the proportional sizes, bytes. It is 0 for a whole segment.
    fn uncertain_bytes(&self) -> u64 {
        let most_bytes = if self.is_whole() { 0 } else { self.pss_bytes + self.stale_pss_bytes };
        most_bytes.saturating_sub(self.certain_bytes())
    }
}

/// When the pages that processes have of a file last changed, by device and inode, CLOCK_MONOTONIC nanoseconds. A PSS that was
/// read by then is not right any more.
#[derive(Debug, Default)]
pub(crate) struct FileTimes(FxHashMap<(u64, u64), u64>);

impl FileTimes {
    /// Takes in the files that a process maps.
    pub(crate) fn add(&mut self, table: &FileTable) {
        for part in &table.parts {
            let changed_ns = self.0.entry(part.mapping.file).or_default();
            *changed_ns = part.since_ns.max(*changed_ns);
        }
    }

    /// When the pages of a file last changed, CLOCK_MONOTONIC nanoseconds; 0: no process was read that maps it.
    fn changed_ns(&self, file: (u64, u64)) -> u64 {
        self.0.get(&file).copied().unwrap_or(0)
    }
}

/// Finds the last of a file's segments that overlaps the range from `from` to `to`, bytes. Segments don't overlap each other, so
/// only the last one that begins before `to` can be that.
fn last_overlapping(segments: &BTreeMap<u64, Segment>, from: u64, to: u64) -> Option<Segment> {
    let (_, last) = segments.range(..to).next_back()?;
    (last.end > from).then_some(*last)
}

/// File pages of a set of processes that grows by one process after another.
#[derive(Debug, Default)]
pub(crate) struct FileFootprint {
    /// By file, and by where they begin in it. They don't overlap.
    segments: FxHashMap<(u64, u64), BTreeMap<u64, Segment>>,
    /// Tables that were assumed for a process, by address, each with the most bytes for which it was added. Another process for
    /// which it is assumed adds nothing, if it has no more bytes.
    assumed: FxHashMap<usize, u64>,
    /// Sum of what is certain of the segments, bytes.
    read_bytes: u64,
    /// The most file pages that one process has, bytes.
    largest_bytes: u64,
    /// Sum of the file pages that were not read, bytes.
    unread_bytes: u64,
    /// Sum of what is uncertain of the segments, bytes. It is never negative, but its changes can be.
    segments_uncertain_bytes: i64,
    /// Pages that may not be read, bytes.
    denied_bytes: u64,
    /// Sum of the proportional sizes of the processes, where known, bytes.
    pss_bytes: u64,
}

impl FileFootprint {
    /// A lower bound of the footprint, bytes. What was not read can be the same pages as what was read.
    fn certain_bytes(&self) -> u64 {
        self.read_bytes.max(self.largest_bytes) + self.denied_bytes
    }

    /// How much more the footprint can be, bytes.
    pub(crate) fn uncertain_bytes(&self) -> u64 {
        let most = self.read_bytes + self.unread_bytes + self.denied_bytes;
        most.saturating_add_signed(self.segments_uncertain_bytes).saturating_sub(self.certain_bytes())
    }

    /// By how much the sum of the proportional sizes exceeds what is certain, bytes. That happens if processes of one program name
    /// map different files, or if processes that mapped the same files have ended.
    pub(crate) fn missing_bytes(&self) -> u64 {
        self.pss_bytes.saturating_sub(self.certain_bytes())
    }

    /// Adds a process with this many bytes of file pages, and their proportional size in bytes (0: not known). `files`: what is
    /// known of which pages these are. `times`: when files last changed. Returns what the process adds to the footprint.
    pub(crate) fn add(&mut self, bytes: u64, pss_bytes: u64, files: KnownFiles, times: &FileTimes) -> Added {
        let certain_before = self.certain_bytes();
        self.pss_bytes += pss_bytes;
        let unread_bytes = match files {
            KnownFiles::Denied => {
                self.denied_bytes += bytes;
                0
            }
            KnownFiles::Size => {
                self.unread_bytes += bytes;
                bytes
            }
            KnownFiles::Own(table) => {
                self.unread_bytes += bytes.saturating_sub(table.bytes);
                self.add_table(table, bytes, Some(times))
            }
            KnownFiles::Assumed(table) => {
                // A table may stand for a process with a little more ([`FileTable::may_stand_for`]), which is left out.
                let bytes = bytes.min(table.bytes);
                let counted = self.assumed.entry(std::ptr::from_ref(table).addr()).or_default();
                if *counted < bytes {
                    *counted = bytes;
                    self.add_table(table, bytes, None);
                }
                0
            }
        };
        if !matches!(files, KnownFiles::Denied) {
            self.largest_bytes = self.largest_bytes.max(bytes);
        }
        let certain_bytes = self.certain_bytes().saturating_sub(certain_before);
        Added { certain_bytes, unread_bytes }
    }

    /// Adds the parts of a table for a process that has `bytes` of file pages now. `times`: when files last changed; `None`: the
    /// table is another process's, so its proportional sizes tell nothing of this one. Returns about how much another reading
    /// would tell more, bytes. That is the larger of the pages that the table lacks and those whose PSS is not right any more.
    fn add_table(&mut self, table: &FileTable, bytes: u64, times: Option<&FileTimes>) -> u64 {
        // If there are fewer pages now, it is unknown which are left: each part shrinks alike.
        let scaled = |part: u64| {
            if bytes >= table.bytes {
                part
            } else {
                (u128::from(part) * u128::from(bytes) / u128::from(table.bytes)) as u64
            }
        };
        let mut stale_pss_bytes = 0;
        for MappedPart { mapping, .. } in &table.parts {
            let pss_bytes = scaled(mapping.pss_bytes);
            // While one process is read, others touch pages. So a PSS is right only if it was read after the file's last change.
            let (right_bytes, stale_bytes) = match times {
                Some(times) if table.read_ns > times.changed_ns(mapping.file) => (pss_bytes, 0),
                Some(_) => (0, pss_bytes),
                None => (0, 0),
            };
            stale_pss_bytes += stale_bytes;
            self.add_segment(
                mapping.file,
                Segment {
                    start: mapping.start,
                    end: mapping.end,
                    rss_bytes: scaled(mapping.rss_bytes),
                    pss_bytes: right_bytes,
                    stale_pss_bytes: stale_bytes,
                },
            );
        }
        bytes.saturating_sub(table.bytes).max(stale_pss_bytes)
    }

    /// Adds what a process maps of a file. It becomes one segment with all that it overlaps, so a file's segments stay apart. Brings
    /// `read_bytes` and `segments_uncertain_bytes` up to date. What is certain never gets less.
    fn add_segment(&mut self, file: (u64, u64), mut merged: Segment) {
        let segments = self.segments.entry(file).or_default();
        // Sums over the segments that it overlaps, which are merged into it.
        let (mut certain_before, mut uncertain_before) = (0, 0);
        let mut are_whole = merged.is_whole();
        let (from, to) = (merged.start, merged.end);
        while let Some(segment) = last_overlapping(segments, from, to) {
            segments.remove(&segment.start);
            certain_before += segment.certain_bytes();
            uncertain_before += segment.uncertain_bytes();
            are_whole &= segment.is_whole();
            merged.start = merged.start.min(segment.start);
            merged.end = merged.end.max(segment.end);
            merged.pss_bytes += segment.pss_bytes;
            merged.stale_pss_bytes += segment.stale_pss_bytes;
        }
        // The old segments did not overlap each other, so what is certain of them adds up.
        let at_least_bytes = merged.rss_bytes.max(certain_before);
        merged.rss_bytes = if are_whole { merged.end - merged.start } else { at_least_bytes };
        self.read_bytes += merged.certain_bytes() - certain_before;
        self.segments_uncertain_bytes +=
            merged.uncertain_bytes().cast_signed() - uncertain_before.cast_signed();
        segments.insert(merged.start, merged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: RAM-3
    #[test]
    fn what_is_certain_of_a_file_is_the_sum_over_its_segments_however_they_are_joined() {
        // Of each process: where its part begins and ends, its pages, and its proportional size.
        let narrow = [(0, 100, 10, 2)].into_iter().chain([(100, 200, 2, 2); 5]);
        let wide = [(0, 200, 10, 2); 4];
        let mut footprint = FileFootprint::default();
        for (start, end, rss_bytes, pss_bytes) in narrow.chain(wide) {
            footprint.add_segment((1, 1), Segment { start, end, rss_bytes, pss_bytes, stale_pss_bytes: 0 });
            let sum: u64 = footprint.segments[&(1, 1)].values().map(Segment::certain_bytes).sum();
            // The first two kinds have 20 different pages, and proportional sizes do not add up to more.
            assert!(footprint.read_bytes == sum && sum <= 20, "{sum}: {footprint:?}");
        }
    }
}
