//! The state file: if a collector is killed, the next one resumes from it. Tracked processes never map it.
//!
//! ```text
//! byte     | what begins there
//! 0        | the run: configuration and machine
//! 1 << 38  | items of the outbox, of any length; each is written before a sink gets it
//! 1 << 39  | connector events, as they are read; each becomes a finding when its turn in the merge comes
//! 1 << 40  | snapshot A: the run state
//! 2 << 40  | snapshot B: the same; the two are written in turn
//! 3 << 40  | journal: every finding; a record is written before its slot of the ring is freed
//! 4 << 40  | one byte, if the report is written
//! ```
//!
//! A snapshot has the number of journal entries that it includes. A replacement loads the newer snapshot, applies the
//! later journal entries, and continues to read the ring after the last entry. The file is sparse: the space of entries
//! that a snapshot includes is released.
//!
//! The run and the snapshots are parts. A part has a head (sequence, length, checksum), which is cleared before the body changes
//! and written after it. A killed process has done all writes up to some moment and none after it, so the head tells whether
//! the body is whole. The checksum detects changes by other processes.

use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::FallocateFlags;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::model::journal::Journal;
use crate::model::kernel_event::EventSlot;
use crate::model::record_or_event::{Entry, ReadUpTo};
use crate::sys::segment::named::NamedFile;

// Where the areas begin, bytes.
const RUN: u64 = 0;
const OUTGOING: u64 = 1 << 38;
const EVENTS: u64 = 1 << 39;
const SNAPSHOTS: [u64; 2] = [1 << 40, 2 << 40];
const JOURNAL: u64 = 3 << 40;
const REPORTED: u64 = 4 << 40;
/// Bytes of a part's head: sequence, length and checksum.
const HEAD: usize = 24;
/// Bytes before an item of the outbox: length and checksum.
const OUTGOING_HEAD: usize = 16;
/// Bytes of a journal entry, and of a connector event. Both divide a page. SIGKILL can cut a write(2) between two pages only, so each of
/// them is whole or absent.
const ENTRY: usize = size_of::<Entry>();
const EVENT: usize = size_of::<EventSlot>();
const _: () = assert!(4096 % ENTRY == 0 && 4096 % EVENT == 0);
/// The unit of a file's blocks (stat(2)), which does not depend on the file system.
const STAT_BLOCK_BYTES: u64 = 512;

/// The state file of a session.
#[derive(Debug)]
pub struct StateFile {
    /// The file by its name, with its lock.
    named: NamedFile,
    /// A descriptor of the same file, to read and write it.
    file: File,
    is_discarded: AtomicBool,
}

impl Journal for StateFile {
    fn write_findings(&self, number: u64, entries: &[Entry]) {
        self.append(JOURNAL, number, entries);
    }

    fn write_events(&self, number: u64, events: &[EventSlot]) {
        self.append(EVENTS, number, events);
    }

    fn events(&self, number: u64) -> Vec<EventSlot> {
        self.slots(EVENTS, number)
    }
}

impl StateFile {
    /// Creates an empty state file.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn create(path: &Path) -> io::Result<Self> {
        let unnamed = NamedFile::unnamed(path)?;
        // The file gets its name last, so that no error leaves it behind.
        let state = Self::from_named(unnamed)?;
        state.named.link()?;
        Ok(state)
    }

    /// Takes the state file behind this open descriptor, whose name is `path`, and locks it.
    ///
    /// # Errors
    /// If it cannot be locked, or the process has no descriptors left.
    pub fn from_file(path: &Path, file: OwnedFd) -> io::Result<Self> {
        Self::from_named(NamedFile::opened(path, file)?)
    }

    /// Takes a state file that is open, and does not lock it. The file of a stale session ([`NamedFile::left_behind`]), or of a run
    /// that a process outside it looks at, is open for reading only.
    ///
    /// # Errors
    /// If the process has no descriptors left.
    pub fn from_named(named: NamedFile) -> io::Result<Self> {
        let file = named.file().try_clone_to_owned()?.into();
        Ok(Self { named, file, is_discarded: AtomicBool::new(false) })
    }

    /// The file with its name and lock.
    pub fn named(&self) -> &NamedFile {
        &self.named
    }

    /// Writes slots to the area that begins at byte `begin`, the first one as slot `number`. If they can't be written, discards the
    /// content of the file.
    fn append<const N: usize>(&self, begin: u64, number: u64, slots: &[[u32; N]]) {
        if self.is_discarded() {
            return;
        }
        let mut bytes = Vec::with_capacity(size_of_val(slots));
        for word in slots.as_flattened() {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        let at = begin + number * size_of::<[u32; N]>() as u64;
        if self.file.write_all_at(&bytes, at).is_err() {
            self.discard();
        }
    }

    /// Reads slots of the area that begins at byte `begin`, from slot `from` up to the first that was never written, which is all
    /// zeros.
    fn slots<const N: usize>(&self, begin: u64, from: u64) -> Vec<[u32; N]> {
        let mut slots = Vec::new();
        let mut words = [[0; 4]; N];
        let mut at = begin + from * size_of_val(&words) as u64;
        while self.file.read_exact_at(words.as_flattened_mut(), at).is_ok() && words != [[0; 4]; N] {
            slots.push(words.map(u32::from_ne_bytes));
            at += size_of_val(&words) as u64;
        }
        slots
    }

    /// Reads journal entries from number `from` on.
    pub fn journal(&self, from: u64) -> Vec<Entry> {
        self.slots(JOURNAL, from)
    }

    /// Empties the file, because it can't be kept complete. A replacement must not resume from a part of the state.
    pub(crate) fn discard(&self) {
        self.is_discarded.store(true, Ordering::Relaxed);
        // A truncation needs no space.
        let _ = self.file.set_len(0);
    }

    /// Whether the content was discarded.
    pub(crate) fn is_discarded(&self) -> bool {
        self.is_discarded.load(Ordering::Relaxed)
    }

    /// Writes a snapshot of `state`, which includes all findings and events up to `found`. Releases their space in the journal and
    /// among the events. `sequence` must be larger than that of all snapshots before.
    ///
    /// # Errors
    /// If there is no space.
    pub fn save<T: Serialize>(&self, sequence: u64, found: &ReadUpTo, state: &T) -> io::Result<()> {
        let at = if sequence.is_multiple_of(2) { SNAPSHOTS[0] } else { SNAPSHOTS[1] };
        self.write_part(at, sequence, &postcard::to_stdvec(state).map_err(io::Error::other)?)?;
        self.release(JOURNAL, found.count * ENTRY as u64);
        self.release(EVENTS, found.events * EVENT as u64);
        Ok(())
    }

    /// Loads the newest complete snapshot. Returns its sequence number and the state. `None`: there is none, or it is damaged.
    pub fn load<T: DeserializeOwned>(&self) -> Option<(u64, T)> {
        let (_, newest) = SNAPSHOTS.into_iter().filter_map(|at| Some((self.head(at)?[0], at))).max()?;
        let (sequence, body) = self.read_part(newest)?;
        Some((sequence, postcard::from_bytes(&body).ok()?))
    }

    /// Writes an item of the outbox at byte `at` of their area. Returns the byte at which the next one begins.
    ///
    /// # Errors
    /// If there is no space.
    pub(crate) fn write_outgoing(&self, at: u64, body: &[u8]) -> io::Result<u64> {
        let head = [body.len() as u64, checksum(body)].map(u64::to_ne_bytes);
        let entry = [head.as_flattened(), body].concat();
        self.file.write_all_at(&entry, OUTGOING + at)?;
        Ok(at + entry.len() as u64)
    }

    /// Reads the items of the outbox from byte `at` of their area on, up to the first that is missing or damaged. Returns their
    /// bodies, and the byte at which the next one begins.
    pub(crate) fn read_outgoing(&self, mut at: u64) -> (Vec<Vec<u8>>, u64) {
        let most = self.allocated_bytes().unwrap_or(0);
        let mut entries = Vec::new();
        while let Some([length, sum]) = self.numbers(OUTGOING + at) {
            // A damaged head can claim any length.
            let mut body = vec![0; usize::try_from(length.min(most)).unwrap_or(0)];
            let is_read = self.file.read_exact_at(&mut body, OUTGOING + at + OUTGOING_HEAD as u64).is_ok();
            if length == 0 || !is_read || checksum(&body) != sum {
                break;
            }
            at += (OUTGOING_HEAD + body.len()) as u64;
            entries.push(body);
        }
        (entries, at)
    }

    /// Releases the space of the outbox items before byte `before` of their area, which a snapshot includes.
    pub(crate) fn release_outgoing(&self, before: u64) {
        self.release(OUTGOING, before);
    }

    /// Releases the space of the first `length` bytes of the area that begins at byte `begin`.
    fn release(&self, begin: u64, length: u64) {
        if length > 0 {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // If this fails, the space stays in use.
            let _ = rustix::fs::fallocate(&self.file, flags, begin, length);
        }
    }

    /// Writes what a report of a stale session (`--recover`) needs besides the run state.
    ///
    /// # Errors
    /// If there is no space.
    pub fn save_run(&self, run: &[u8]) -> io::Result<()> {
        self.write_part(RUN, 1, run)
    }

    /// Reads the bytes that [`StateFile::save_run`] wrote. `None`: there are none, or they are damaged.
    pub(crate) fn load_run(&self) -> Option<Vec<u8>> {
        Some(self.read_part(RUN)?.1)
    }

    /// Notes that the report is written, so that no replacement writes it again.
    pub(crate) fn note_reported(&self) {
        // If there is no space and this collector is killed now, its replacement writes the report again.
        let _ = self.file.write_all_at(&[1], REPORTED);
    }

    /// Whether the report is written.
    pub fn is_reported(&self) -> bool {
        // The file is this long only if the byte was written. Its value does not matter.
        self.file.read_exact_at(&mut [0_u8; 1], REPORTED).is_ok()
    }

    /// The sequence number of the newest snapshot, valid or not. `None`: there is none.
    pub(crate) fn newest_snapshot(&self) -> Option<u64> {
        SNAPSHOTS.into_iter().filter_map(|at| Some(self.head(at)?[0])).max()
    }

    /// Whether there is a snapshot, valid or not.
    pub(crate) fn has_snapshot(&self) -> bool {
        self.newest_snapshot().is_some()
    }

    /// The space that the file takes, bytes: the file is sparse, so this is far less than its length. `None`: the kernel
    /// does not tell.
    fn allocated_bytes(&self) -> Option<u64> {
        Some(self.file.metadata().ok()?.blocks().saturating_mul(STAT_BLOCK_BYTES))
    }

    /// Writes the part that begins at byte `at`: clears its head, writes the body, and then the new head.
    fn write_part(&self, at: u64, sequence: u64, body: &[u8]) -> io::Result<()> {
        self.file.write_all_at(&[0; HEAD], at)?;
        self.file.write_all_at(body, at + HEAD as u64)?;
        let head = [sequence, body.len() as u64, checksum(body)].map(u64::to_ne_bytes);
        self.file.write_all_at(head.as_flattened(), at)
    }

    /// Reads sequence and body of the part that begins at byte `at`. `None`: it was not written, or is damaged.
    fn read_part(&self, at: u64) -> Option<(u64, Vec<u8>)> {
        let [sequence, length, sum] = self.head(at)?;
        // A damaged head can claim any length. No part is longer than the space that the file takes.
        if length > self.allocated_bytes()? {
            return None;
        }
        let mut body = vec![0; usize::try_from(length).ok()?];
        self.file.read_exact_at(&mut body, at + HEAD as u64).ok()?;
        (checksum(&body) == sum).then_some((sequence, body))
    }

    /// Reads the head of the part that begins at byte `at`: sequence, length and checksum. `None`: it was not written, or not
    /// completely.
    fn head(&self, at: u64) -> Option<[u64; 3]> {
        self.numbers(at).filter(|[sequence, _, _]| *sequence > 0)
    }

    /// Reads the numbers of a head that begins at byte `at`. `None`: the file ends before.
    fn numbers<const N: usize>(&self, at: u64) -> Option<[u64; N]> {
        let mut numbers = [[0; 8]; N];
        self.file.read_exact_at(numbers.as_flattened_mut(), at).ok()?;
        Some(numbers.map(u64::from_ne_bytes))
    }
}

/// A checksum that is the same in every process of one version.
fn checksum(body: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(body);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> (StateFile, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        (StateFile::create(&dir.path().join("state")).unwrap(), dir)
    }

    // Requirement: TIME-2
    #[test]
    fn entries_for_the_sinks_are_there_up_to_the_first_that_is_not_whole() {
        let (state, _dir) = file();
        assert_eq!(state.read_outgoing(0), (Vec::new(), 0));
        let first = state.write_outgoing(0, b"first").unwrap();
        let second = state.write_outgoing(first, &[7; 5000]).unwrap();
        assert!(!state.is_reported());
        assert_eq!(state.read_outgoing(0), (vec![b"first".to_vec(), vec![7; 5000]], second));
        assert_eq!(state.read_outgoing(first), (vec![vec![7; 5000]], second));
        state.release_outgoing(first);
        assert_eq!(state.read_outgoing(0).0, [b""; 0]);
        // A writer that was killed: the head and a part of the body.
        state.file.write_all_at(&[100, 0, 0, 0, 0, 0, 0, 0, 9, 9], OUTGOING + second).unwrap();
        assert_eq!(state.read_outgoing(first), (vec![vec![7; 5000]], second));
        state.file.write_all_at(&[0xff; 100], OUTGOING + second).unwrap();
        assert_eq!(state.read_outgoing(first).1, second, "any length is claimed");
        let third = state.write_outgoing(second, b"third").unwrap();
        assert_eq!(state.read_outgoing(second), (vec![b"third".to_vec()], third));
    }

    #[test]
    fn newest_complete_snapshot_is_loaded() {
        let (state, _dir) = file();
        assert!(state.load::<Vec<u32>>().is_none());
        let found = ReadUpTo::default();
        state.save(1, &found, &vec![1u32]).unwrap();
        state.save(2, &found, &vec![2u32, 2]).unwrap();
        state.save(3, &found, &vec![3u32, 3, 3]).unwrap();
        assert_eq!(state.load::<Vec<u32>>(), Some((3, vec![3, 3, 3])));
        // Killed while writing the fourth snapshot: its head is cleared.
        state.file.write_all_at(&[0; HEAD], SNAPSHOTS[0]).unwrap();
        assert_eq!(state.load::<Vec<u32>>(), Some((3, vec![3, 3, 3])));
    }

    // Requirement: FAULT-66
    #[test]
    fn damaged_parts_are_not_loaded() {
        let (state, _dir) = file();
        state.save_run(b"the run").unwrap();
        assert_eq!(state.load_run().unwrap(), b"the run");
        state.save(1, &ReadUpTo::default(), &vec![7u32; 100]).unwrap();
        state.file.write_all_at(&[8], SNAPSHOTS[1] + HEAD as u64 + 50).unwrap();
        assert_eq!(state.load::<Vec<u32>>(), None);
        // Lengths beyond the space in use.
        for (at, length) in [(RUN, u64::MAX), (SNAPSHOTS[1], 1 << 38)] {
            state.file.write_all_at(&length.to_ne_bytes(), at + 8).unwrap();
        }
        assert_eq!((state.load_run(), state.load::<Vec<u32>>()), (None, None));
        assert!(!state.is_reported());
        state.note_reported();
        assert!(state.is_reported());
        state.discard();
        assert_eq!(state.load_run(), None);
    }

    #[test]
    fn journal_is_read_from_the_end_of_a_snapshot() {
        let (state, _dir) = file();
        assert!(state.journal(0).is_empty());
        let entry = |number: u32| [number + 100; ENTRY / 4];
        state.write_findings(0, &[0, 1, 2].map(entry));
        state.write_findings(3, &[3, 4].map(entry));
        // A partial sixth entry.
        state.file.write_all_at(&[1; 7], JOURNAL + 5 * ENTRY as u64).unwrap();
        state.save(1, &ReadUpTo { count: 3, ..ReadUpTo::default() }, &()).unwrap();
        let entries = state.journal(3);
        assert_eq!(entries, [3, 4].map(entry));
    }

    #[test]
    fn events_are_read_from_the_end_of_a_snapshot() {
        let (state, _dir) = file();
        assert!(state.events(0).is_empty());
        state.write_events(0, &[[1; 8], [2; 8]]);
        state.write_events(2, &[[3; 8]]);
        assert_eq!(state.events(1), [[2; 8], [3; 8]]);
        state.save(1, &ReadUpTo { events: 2, ..ReadUpTo::default() }, &()).unwrap();
        assert_eq!((state.events(2), state.events(3)), (vec![[3; 8]], vec![]));
        state.discard();
        assert!(state.events(2).is_empty());
    }
}
