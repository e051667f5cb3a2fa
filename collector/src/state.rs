//! What a killed collector leaves to the next one: a second file beside the segment, that tracked processes never map.
//!
//! ```text
//! 0        | snapshot A: sequence, length, the collector's account of the run
//! 1 << 40  | snapshot B: the same; the two are written in turn
//! 2 << 40  | journal: every finding; a record of the ring before its slot is freed
//! ```
//!
//! A snapshot says up to which journal entry it holds all; the next collector takes the newer snapshot, applies the
//! journal from there on, and goes on reading the ring behind the last entry. The file is sparse: what a snapshot
//! has made superfluous is given back.
//!
//! Death by a signal tears no completed write, so an order of writes is all the safety that is needed: a snapshot's
//! head is cleared before its body changes, and written after.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use gpu_track_abi::record::RECORD_WORDS;
use rustix::fs::FallocateFlags;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::segment::named::NamedFile;

const SNAPSHOTS: [u64; 2] = [0, 1 << 40];
const JOURNAL: u64 = 2 << 40;
const HEAD: usize = 16;
/// A longer snapshot is none of ours (a live process takes about a kilobyte): any process of this user can write here.
const LONGEST_SNAPSHOT: u64 = 1 << 28;
/// Position in the ring, then the record.
const ENTRY: usize = 8 + RECORD_WORDS * 4;

/// An entry of the journal: a record's position in the ring and its words, or what stands for them.
pub type Entry = (u64, [u32; RECORD_WORDS]);

/// Which findings are in an account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadUpTo {
    /// How many: as many journal entries there are.
    pub count: u64,
    /// Position in the ring behind the last record.
    pub position: u64,
}

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

    fn of(named: NamedFile) -> io::Result<Self> {
        let file = named.file().try_clone_to_owned()?.into();
        Ok(Self { named, file, is_discarded: AtomicBool::new(false) })
    }

    /// Its file.
    #[must_use]
    pub fn named(&self) -> &NamedFile {
        &self.named
    }

    /// Append to the journal as its entry number `number`.
    ///
    /// # Errors
    /// If there is no room.
    pub fn append(&self, number: u64, position: u64, record: &[u32; RECORD_WORDS]) -> io::Result<()> {
        let mut entry = [0; ENTRY];
        let (head, body) = entry.split_at_mut(8);
        head.copy_from_slice(&position.to_ne_bytes());
        for (bytes, word) in body.chunks_exact_mut(4).zip(record) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        self.file.write_all_at(&entry, JOURNAL + number * ENTRY as u64)
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

    fn head(&self, at: u64) -> Option<(u64, u64)> {
        let mut head = [0; HEAD];
        self.file.read_exact_at(&mut head, at).ok()?;
        let (sequence, length) = head.split_at(8);
        let number = |bytes: &[u8]| Some(u64::from_ne_bytes(bytes.try_into().ok()?));
        let head = (number(sequence)?, number(length)?);
        Some(head).filter(|(sequence, length)| *sequence > 0 && *length <= LONGEST_SNAPSHOT)
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

    /// Write a snapshot, newer than all before it, that holds the journal up to entry number `journal_end`.
    ///
    /// # Errors
    /// If there is no room.
    pub fn save<T: Serialize>(&self, sequence: u64, journal_end: u64, state: &T) -> io::Result<()> {
        let at = if sequence.is_multiple_of(2) { SNAPSHOTS[0] } else { SNAPSHOTS[1] };
        let body = postcard::to_stdvec(state).map_err(io::Error::other)?;
        if body.len() as u64 > LONGEST_SNAPSHOT {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.file.write_all_at(&[0; HEAD], at)?;
        self.file.write_all_at(&body, at + HEAD as u64)?;
        let mut head = [0; HEAD];
        let (first, second) = head.split_at_mut(8);
        first.copy_from_slice(&sequence.to_ne_bytes());
        second.copy_from_slice(&(body.len() as u64).to_ne_bytes());
        self.file.write_all_at(&head, at)?;
        let superfluous = journal_end * ENTRY as u64;
        if superfluous > 0 {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Where it can't be given back, it stays.
            let _ = rustix::fs::fallocate(&self.file, flags, JOURNAL, superfluous);
        }
        Ok(())
    }

    /// The newest whole snapshot and its sequence number.
    #[must_use]
    pub fn load<T: DeserializeOwned>(&self) -> Option<(u64, T)> {
        let newest = SNAPSHOTS.into_iter().filter_map(|at| Some((self.head(at)?, at))).max()?;
        let ((sequence, length), at) = newest;
        let mut body = vec![0; usize::try_from(length).ok()?];
        self.file.read_exact_at(&mut body, at + HEAD as u64).ok()?;
        Some((sequence, postcard::from_bytes(&body).ok()?))
    }
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
        state.save(1, 0, &vec![1u32]).unwrap();
        state.save(2, 0, &vec![2u32, 2]).unwrap();
        state.save(3, 0, &vec![3u32, 3, 3]).unwrap();
        assert_eq!(state.load::<Vec<u32>>(), Some((3, vec![3, 3, 3])));
        // Killed while writing the fourth: its head is cleared.
        state.file.write_all_at(&[0; HEAD], SNAPSHOTS[0]).unwrap();
        assert_eq!(state.load::<Vec<u32>>(), Some((3, vec![3, 3, 3])));
    }

    #[test]
    fn the_journal_comes_back_from_where_a_snapshot_ends() {
        let (state, _dir) = file();
        assert!(state.journal(0).unwrap().is_empty());
        for number in 0..5u32 {
            state.append(number.into(), u64::from(number) + 100, &[number; RECORD_WORDS]).unwrap();
        }
        // Killed in the middle of the sixth.
        state.file.write_all_at(&[1; 7], JOURNAL + 5 * ENTRY as u64).unwrap();
        state.save(1, 3, &()).unwrap();
        let entries = state.journal(3).unwrap();
        assert_eq!(entries, [(103, [3; RECORD_WORDS]), (104, [4; RECORD_WORDS])]);
    }
}
