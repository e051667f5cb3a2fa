//! What a killed collector leaves to the next one: a second file beside the segment, that tracked processes never map.
//!
//! ```text
//! 0        | the run: what the collector was told
//! 1 << 39  | events of the kernel, as they are read: they are findings only when their turn comes
//! 1 << 40  | snapshot A: the collector's account of the run
//! 2 << 40  | snapshot B: the same; the two are written in turn
//! 3 << 40  | journal: every finding; a record of the ring before its slot is freed
//! 4 << 40  | one byte, if the report is written
//! ```
//!
//! A snapshot says up to which journal entry it holds all; the next collector takes the newer snapshot, applies the
//! journal from there on, and goes on reading the ring behind the last entry. The file is sparse: what a snapshot
//! has made superfluous is given back.
//!
//! Death by a signal tears no completed write, so an order of writes is all the safety that is needed against it: the
//! head of a part (sequence, length, checksum) is cleared before its body changes, and written after. The checksum tells
//! what was spoilt by others, as far as chance goes.

use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use gpu_track_abi::record::RECORD_WORDS;
use rustix::fs::FallocateFlags;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::model::finding::{Entry, EventSlot, ReadUpTo};
use crate::sys::segment::named::NamedFile;

const RUN: u64 = 0;
const EVENTS: u64 = 1 << 39;
const SNAPSHOTS: [u64; 2] = [1 << 40, 2 << 40];
const JOURNAL: u64 = 3 << 40;
const REPORTED: u64 = 4 << 40;
const HEAD: usize = 24;
/// Position in the ring, then the record, then nothing. No entry lies on two pages, so the end of a writer leaves whole
/// ones.
const ENTRY: usize = (8 + RECORD_WORDS * 4).next_power_of_two();

const SLOT: usize = size_of::<EventSlot>();

/// The file.
#[derive(Debug)]
pub struct StateFile {
    named: NamedFile,
    file: File,
    is_discarded: AtomicBool,
}

impl StateFile {
    /// A new, empty one.
    ///
    /// # Errors
    /// If the file can't be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        let unnamed = NamedFile::unnamed(path)?;
        // All that can fail comes before it has a name.
        let state = Self::of(unnamed)?;
        state.named.link()?;
        Ok(state)
    }

    /// The one that this descriptor is open on.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn from_file(path: &Path, file: OwnedFd) -> io::Result<Self> {
        Self::of(NamedFile::opened(path, file)?)
    }

    /// This one, which was left behind: it can only be read.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn of(named: NamedFile) -> io::Result<Self> {
        let file = named.file().try_clone_to_owned()?.into();
        Ok(Self { named, file, is_discarded: AtomicBool::new(false) })
    }

    /// Its file.
    #[must_use]
    pub fn named(&self) -> &NamedFile {
        &self.named
    }

    /// Append to the journal, from entry number `number` on.
    ///
    /// # Errors
    /// If there is no room.
    pub fn append(&self, number: u64, entries: &[Entry]) -> io::Result<()> {
        let mut bytes = vec![0; entries.len() * ENTRY];
        for (entry, (position, record)) in bytes.chunks_exact_mut(ENTRY).zip(entries) {
            let (head, body) = entry.split_at_mut(8);
            head.copy_from_slice(&position.to_ne_bytes());
            for (bytes, word) in body.chunks_exact_mut(4).zip(record) {
                bytes.copy_from_slice(&word.to_ne_bytes());
            }
        }
        self.file.write_all_at(&bytes, JOURNAL + number * ENTRY as u64)
    }

    /// The journal's entries from number `from` on.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn journal(&self, from: u64) -> io::Result<Vec<Entry>> {
        let length = self.file.metadata()?.len().saturating_sub(JOURNAL) / ENTRY as u64;
        let mut entries = Vec::new();
        for number in from..length {
            let mut entry = [0; ENTRY];
            self.file.read_exact_at(&mut entry, JOURNAL + number * ENTRY as u64)?;
            let (head, body) = entry.split_at(8);
            let mut record = [0; RECORD_WORDS];
            for (word, bytes) in record.iter_mut().zip(body.chunks_exact(4)) {
                *word = u32::from_ne_bytes(bytes.try_into().unwrap_or_default());
            }
            // Nothing was ever written here: what follows is not of use either.
            if record == [0; RECORD_WORDS] {
                break;
            }
            entries.push((u64::from_ne_bytes(head.try_into().unwrap_or_default()), record));
        }
        Ok(entries)
    }

    /// Take down events of the kernel that were read, from number `number` on.
    ///
    /// # Errors
    /// If there is no room.
    pub fn append_events(&self, number: u64, events: &[EventSlot]) -> io::Result<()> {
        let bytes: Vec<u8> = events.iter().flatten().flat_map(|word| word.to_ne_bytes()).collect();
        self.file.write_all_at(&bytes, EVENTS + number * SLOT as u64)
    }

    /// The events of the kernel that were read, from number `from` on.
    #[must_use]
    pub fn events(&self, from: u64) -> Vec<EventSlot> {
        let mut events = Vec::new();
        let mut bytes = [0; SLOT];
        let mut at = EVENTS + from * SLOT as u64;
        while self.file.read_exact_at(&mut bytes, at).is_ok() && bytes != [0; SLOT] {
            let mut slot = EventSlot::default();
            for (word, bytes) in slot.iter_mut().zip(bytes.chunks_exact(4)) {
                *word = u32::from_ne_bytes(bytes.try_into().unwrap_or_default());
            }
            events.push(slot);
            at += SLOT as u64;
        }
        events
    }

    /// Nothing in it is of use any more: whoever comes next must know that.
    pub fn discard(&self) {
        self.is_discarded.store(true, Ordering::Relaxed);
        // Cutting a file short needs no room.
        let _ = self.file.set_len(0);
    }

    /// Whether there was no room for it.
    #[must_use]
    pub fn is_discarded(&self) -> bool {
        self.is_discarded.load(Ordering::Relaxed)
    }

    /// Write a snapshot, newer than all before it, that holds these findings.
    ///
    /// # Errors
    /// If there is no room.
    pub fn save<T: Serialize>(&self, sequence: u64, found: &ReadUpTo, state: &T) -> io::Result<()> {
        let at = if sequence.is_multiple_of(2) { SNAPSHOTS[0] } else { SNAPSHOTS[1] };
        self.write_part(at, sequence, &postcard::to_stdvec(state).map_err(io::Error::other)?)?;
        let superfluous = [(JOURNAL, found.count * ENTRY as u64), (EVENTS, found.events * SLOT as u64)];
        for (at, length) in superfluous.into_iter().filter(|(_, length)| *length > 0) {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Where it can't be given back, it stays.
            let _ = rustix::fs::fallocate(&self.file, flags, at, length);
        }
        Ok(())
    }

    /// The newest whole snapshot and its sequence number.
    #[must_use]
    pub fn load<T: DeserializeOwned>(&self) -> Option<(u64, T)> {
        let newest = SNAPSHOTS.into_iter().filter_map(|at| Some((self.head(at)?.0, at))).max()?;
        let (sequence, body) = self.read_part(newest.1)?;
        Some((sequence, postcard::from_bytes(&body).ok()?))
    }

    /// Write down what the next one must know of the run besides the account.
    ///
    /// # Errors
    /// If there is no room.
    pub fn save_run(&self, run: &[u8]) -> io::Result<()> {
        self.write_part(RUN, 1, run)
    }

    /// What [`StateFile::save_run`] wrote.
    #[must_use]
    pub fn load_run(&self) -> Option<Vec<u8>> {
        Some(self.read_part(RUN)?.1)
    }

    /// The report is written: there is nothing left to do for anybody.
    pub fn note_reported(&self) {
        // Where there is no room, a collector that is killed now is followed by one that writes it again.
        let _ = self.file.write_all_at(&[1], REPORTED);
    }

    /// Whether the report is written.
    #[must_use]
    pub fn is_reported(&self) -> bool {
        self.file.read_exact_at(&mut [0], REPORTED).is_ok()
    }

    /// Whether there is a snapshot, be it of use or not.
    #[must_use]
    pub fn has_snapshot(&self) -> bool {
        SNAPSHOTS.into_iter().any(|at| self.head(at).is_some())
    }

    fn write_part(&self, at: u64, sequence: u64, body: &[u8]) -> io::Result<()> {
        self.file.write_all_at(&[0; HEAD], at)?;
        self.file.write_all_at(body, at + HEAD as u64)?;
        let mut head = [0; HEAD];
        for (bytes, number) in head.chunks_exact_mut(8).zip([sequence, body.len() as u64, checksum(body)]) {
            bytes.copy_from_slice(&number.to_ne_bytes());
        }
        self.file.write_all_at(&head, at)
    }

    fn read_part(&self, at: u64) -> Option<(u64, Vec<u8>)> {
        let (sequence, length, sum) = self.head(at)?;
        // No more than was ever written, whatever the head says: the file is longer than any memory.
        let written = self.file.metadata().ok()?.blocks().saturating_mul(512);
        let mut body = vec![0; usize::try_from(length).ok().filter(|_| length <= written)?];
        self.file.read_exact_at(&mut body, at + HEAD as u64).ok()?;
        (checksum(&body) == sum).then_some((sequence, body))
    }

    /// Sequence, length and checksum of a part that is there.
    fn head(&self, at: u64) -> Option<(u64, u64, u64)> {
        let mut head = [0; HEAD];
        self.file.read_exact_at(&mut head, at).ok()?;
        let mut numbers =
            head.chunks_exact(8).map(|bytes| u64::from_ne_bytes(bytes.try_into().unwrap_or_default()));
        let (sequence, length, sum) = (numbers.next()?, numbers.next()?, numbers.next()?);
        (sequence > 0).then_some((sequence, length, sum))
    }
}

/// The same in every process of one version, which is all that is asked of it.
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

    #[test]
    fn the_newest_whole_snapshot_counts() {
        let (state, _dir) = file();
        assert!(state.load::<Vec<u32>>().is_none());
        let found = ReadUpTo::default();
        state.save(1, &found, &vec![1u32]).unwrap();
        state.save(2, &found, &vec![2u32, 2]).unwrap();
        state.save(3, &found, &vec![3u32, 3, 3]).unwrap();
        assert_eq!(state.load::<Vec<u32>>(), Some((3, vec![3, 3, 3])));
        // Killed while writing the fourth: its head is cleared.
        state.file.write_all_at(&[0; HEAD], SNAPSHOTS[0]).unwrap();
        assert_eq!(state.load::<Vec<u32>>(), Some((3, vec![3, 3, 3])));
    }

    #[test]
    fn what_is_not_as_it_was_written_is_not_there() {
        let (state, _dir) = file();
        state.save_run(b"the run").unwrap();
        assert_eq!(state.load_run().unwrap(), b"the run");
        state.save(1, &ReadUpTo::default(), &vec![7u32; 100]).unwrap();
        state.file.write_all_at(&[8], SNAPSHOTS[1] + HEAD as u64 + 50).unwrap();
        assert_eq!(state.load::<Vec<u32>>(), None);
        // As long as nothing is.
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
    fn the_journal_comes_back_from_where_a_snapshot_ends() {
        let (state, _dir) = file();
        assert!(state.journal(0).unwrap().is_empty());
        let entry = |number: u32| (u64::from(number) + 100, [number; RECORD_WORDS]);
        state.append(0, &[0, 1, 2].map(entry)).unwrap();
        state.append(3, &[3, 4].map(entry)).unwrap();
        // Killed in the middle of the sixth.
        state.file.write_all_at(&[1; 7], JOURNAL + 5 * ENTRY as u64).unwrap();
        state.save(1, &ReadUpTo { count: 3, ..ReadUpTo::default() }, &()).unwrap();
        let entries = state.journal(3).unwrap();
        assert_eq!(entries, [3, 4].map(entry));
    }

    #[test]
    fn events_come_back_from_where_a_snapshot_ends() {
        let (state, _dir) = file();
        assert!(state.events(0).is_empty());
        state.append_events(0, &[[1; 8], [2; 8]]).unwrap();
        state.append_events(2, &[[3; 8]]).unwrap();
        assert_eq!(state.events(1), [[2; 8], [3; 8]]);
        state.save(1, &ReadUpTo { events: 2, ..ReadUpTo::default() }, &()).unwrap();
        assert_eq!((state.events(2), state.events(3)), (vec![[3; 8]], vec![]));
        state.discard();
        assert!(state.events(2).is_empty());
    }
}
