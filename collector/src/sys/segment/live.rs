//! The live file: the latest samples, the GPUs, the largest live processes and a summary, for programs that watch the run.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gpu_track_abi::live::{
    GPUS, LIVE_MAGIC, LIVE_SIZE, LIVE_VERSION, LiveHeader, PROCESSES, SAMPLES, SECTIONS, SUFFIX, SUMMARY,
    Section,
};
use gpu_track_abi::sample::{SAMPLE_CAPACITY, Sample, SampleSlot};
use gpu_track_abi::slot::{Slot, Unread};
use gpu_track_abi::table::{
    GpuEntry, GpuTable, HEAD_WORDS, ProcessEntry, ProcessTable, SUMMARY_CAPACITY, SummaryTable, words_of,
};
use gpu_track_abi::words::Words;
use rustix::fs::{FallocateFlags, OFlags, fstat};
use rustix::mm::{MapFlags, ProtFlags};

use super::guard;
use super::named::NamedFile;
use crate::sys::files::open_regular;

/// The path of the live file beside this segment.
pub fn path_of(segment: &Path) -> PathBuf {
    let mut path = segment.as_os_str().to_owned();
    path.push(SUFFIX);
    path.into()
}

/// A mapped live file. Drop unmaps it; the file stays until it is unlinked.
#[derive(Debug)]
pub struct LiveFile {
    named: NamedFile,
    base: NonNull<u8>,
}

// SAFETY: all that changes behind the pointer is atomic. Everything else is written before a second user exists.
unsafe impl Send for LiveFile {}
// SAFETY: as above.
unsafe impl Sync for LiveFile {}

impl LiveFile {
    /// Creates and maps a live file, and writes its header. The file gets its name last, so no reader sees it without its header.
    ///
    /// # Errors
    /// If the file can't be created, or there is no room for it.
    pub fn create(path: &Path, session_id: u64) -> io::Result<Self> {
        let named = NamedFile::unnamed(path)?;
        rustix::fs::fallocate(named.file(), FallocateFlags::empty(), 0, LIVE_SIZE as u64)?;
        let live = Self::map(named, ProtFlags::READ | ProtFlags::WRITE)?;
        // SAFETY: the mapping is LIVE_SIZE bytes, page-aligned, and no other user exists yet.
        let header = unsafe { live.base.cast::<LiveHeader>().as_mut() };
        header.magic = LIVE_MAGIC;
        header.version = LIVE_VERSION;
        header.section_count = SECTIONS.len() as u32;
        header.session_id = session_id;
        header.file_size = LIVE_SIZE as u64;
        header.sections = SECTIONS;
        live.named.link()?;
        Ok(live)
    }

    /// Opens the live file that an earlier collector of this session made, to go on in it.
    ///
    /// # Errors
    /// `NotFound` if there is none. Other errors if it is another user's, or of another session or version.
    pub fn resume(path: &Path, session_id: u64) -> io::Result<Self> {
        let live = Self::existing(path, OFlags::RDWR, ProtFlags::READ | ProtFlags::WRITE, NamedFile::opened)?;
        let is_own = fstat(live.named.file())?.st_uid == rustix::process::geteuid().as_raw();
        if is_own && live.header().session_id == session_id {
            Ok(live)
        } else {
            Err(io::ErrorKind::InvalidData.into())
        }
    }

    /// Opens a live file to read it. It may be another user's, so that root can watch that user's run. It is not locked: a reader
    /// must not keep the files of a killed run from being found.
    ///
    /// # Errors
    /// If there is no such file, or it is of another version.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::existing(path, OFlags::RDONLY, ProtFlags::READ, |path, file| Ok(NamedFile::held(path, file)))
    }

    /// Opens and maps an existing live file. `named` takes the open file, and may lock it. Fails if it has another length or version.
    fn existing(
        path: &Path,
        access: OFlags,
        protection: ProtFlags,
        named: fn(&Path, OwnedFd) -> io::Result<NamedFile>,
    ) -> io::Result<Self> {
        let (file, found) = open_regular(path, access)?.ok_or(io::ErrorKind::InvalidData)?;
        if found.len() != LIVE_SIZE as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let live = Self::map(named(path, file.into())?, protection)?;
        if live.header().is_compatible() { Ok(live) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// Maps the file, and guards against its truncation.
    fn map(named: NamedFile, protection: ProtFlags) -> io::Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe {
            let anywhere = std::ptr::null_mut();
            rustix::mm::mmap(anywhere, LIVE_SIZE, protection, MapFlags::SHARED, named.file(), 0)
        }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        guard::LIVE.protect(base.as_ptr() as usize, LIVE_SIZE);
        Ok(Self { named, base })
    }

    fn header(&self) -> &LiveHeader {
        // SAFETY: the mapping starts with a LiveHeader, lives as long as self, and only its atomics change.
        unsafe { self.base.cast::<LiveHeader>().as_ref() }
    }

    /// The ring of samples.
    fn slots(&self) -> &[SampleSlot] {
        // SAFETY: the slots are inside the mapping, are aligned, and are accessed atomically only.
        unsafe {
            let first = self.base.byte_add(SAMPLES.offset as usize).cast::<SampleSlot>();
            std::slice::from_raw_parts(first.as_ptr().cast_const(), SAMPLE_CAPACITY)
        }
    }

    fn gpu_table(&self) -> &GpuTable {
        self.table(GPUS)
    }

    fn process_table(&self) -> &ProcessTable {
        self.table(PROCESSES)
    }

    fn summary_table(&self) -> &SummaryTable {
        self.table(SUMMARY)
    }

    /// The table in a section, which must have its size.
    fn table<const N: usize>(&self, section: Section) -> &Slot<N> {
        assert_eq!(section.size as usize, size_of::<Slot<N>>());
        // SAFETY: the section is inside the mapping, aligned to 64 bytes, as long as the table, and accessed atomically only.
        unsafe { self.base.byte_add(section.offset as usize).cast::<Slot<N>>().as_ref() }
    }

    /// Appends a sample of the tree to the ring, in place of the oldest one. For the collector only.
    pub fn push(&self, sample: Sample) {
        let written = &self.header().samples.0;
        let number = written.load(Ordering::Relaxed);
        if let Some(slot) = self.slots().get(number as usize % SAMPLE_CAPACITY) {
            slot.write(sample);
        }
        written.store(number.wrapping_add(1), Ordering::Release);
    }

    /// Writes the table of GPUs, all of them. `at_ns`: the time of the sample, CLOCK_MONOTONIC nanoseconds. GPUs for which the table has
    /// no room are only counted. For the collector only.
    pub fn put_gpus(&self, at_ns: u64, gpus: &[GpuEntry]) {
        let others = 0;
        write_table(self.gpu_table(), at_ns, gpus, others);
    }

    /// Writes the table of the largest live processes as [`Self::put_gpus`] does. `others`: how many live processes are not among
    /// them. For the collector only.
    pub fn put_processes(&self, at_ns: u64, processes: &[ProcessEntry], others: u64) {
        write_table(self.process_table(), at_ns, processes, others);
    }

    /// Writes the summary. `at_ns`: the time of the sample, CLOCK_MONOTONIC nanoseconds. Returns whether there was room for it;
    /// otherwise the previous summary stays. For the collector only.
    pub fn put_summary(&self, at_ns: u64, summary: &str) -> bool {
        if summary.len() > SUMMARY_CAPACITY {
            return false;
        }
        // The time and the length of the text; the other words are not used.
        let head = [at_ns, summary.len() as u64, 0, 0, 0, 0, 0];
        self.summary_table().write_words(head.into_iter().chain(words_of(summary.as_bytes())));
        true
    }

    /// Reads the table of GPUs.
    ///
    /// # Errors
    /// If they were never written, or their writer was killed in the middle.
    pub fn gpus(&self) -> Result<Listed<GpuEntry>, Unread> {
        read_table(self.gpu_table())
    }

    /// Reads the table of the largest live processes.
    ///
    /// # Errors
    /// As [`Self::gpus`].
    pub fn processes(&self) -> Result<Listed<ProcessEntry>, Unread> {
        read_table(self.process_table())
    }

    /// Reads the time of the summary's sample, CLOCK_MONOTONIC nanoseconds, and the summary.
    ///
    /// # Errors
    /// As [`Self::gpus`].
    pub fn summary(&self) -> Result<(u64, String), Unread> {
        let words = words_in(self.summary_table())?;
        let (head, text) = words.split_at(HEAD_WORDS);
        let bytes: Vec<u8> = text.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let length = (head[1] as usize).min(bytes.len());
        Ok((head[0], String::from_utf8_lossy(&bytes[..length]).into_owned()))
    }

    /// How many samples were written so far.
    pub fn count(&self) -> u64 {
        self.header().samples.0.load(Ordering::Acquire)
    }

    /// Reads a sample by its number, from 0 on. `None`: it is not written yet, or was overwritten, or is being overwritten.
    pub fn sample(&self, number: u64) -> Option<Sample> {
        // The sample SAMPLE_CAPACITY numbers later overwrites its slot, and is counted only after that.
        let is_there = || {
            let count = self.count();
            number < count && count - number < SAMPLE_CAPACITY as u64
        };
        if !is_there() {
            return None;
        }
        let sample = self.slots().get(number as usize % SAMPLE_CAPACITY)?.read();
        // It may have been overwritten while it was read.
        sample.filter(|_| is_there())
    }

    /// Whether the file was truncated. Then readers see nothing of what is written.
    pub fn is_lost(&self) -> bool {
        guard::LIVE.is_lost()
    }

    /// The file with its name.
    pub fn named(&self) -> &NamedFile {
        &self.named
    }
}

impl Drop for LiveFile {
    fn drop(&mut self) {
        // SAFETY: our own mapping; no reference into it outlives self.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), LIVE_SIZE) };
    }
}

/// The content of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed<E> {
    /// The time of its sample, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// Its entries.
    pub entries: Vec<E>,
    /// How many more there were, for which the table has no entry.
    pub others: u64,
}

/// How often a reader tries to read a table that is being written. All tries take longer than the collector that follows a killed
/// one needs to its first sample, which writes the table again.
const READER_TRIES: usize = 200;
/// The time between two tries.
const READER_WAIT: Duration = Duration::from_millis(1);

/// Writes a table: its head (time of the sample, number of entries, number of others), then as many entries as fit. The rest
/// is added to `others`.
fn write_table<const N: usize, E: Words>(table: &Slot<N>, at_ns: u64, entries: &[E], others: u64) {
    let listed = &entries[..entries.len().min((N - HEAD_WORDS) / E::WORDS)];
    let others = others + (entries.len() - listed.len()) as u64;
    let head = [at_ns, listed.len() as u64, others, 0, 0, 0, 0];
    table.write_words(head.into_iter().chain(listed.iter().flat_map(E::words)));
}

/// Reads a table that [`write_table`] wrote.
fn read_table<const N: usize, E: Words>(table: &Slot<N>) -> Result<Listed<E>, Unread> {
    let words = words_in(table)?;
    let (head, entries) = words.split_at(HEAD_WORDS);
    // Another program may have written any count.
    let entries = entries.chunks_exact(E::WORDS).take(usize::try_from(head[1]).unwrap_or(usize::MAX));
    Ok(Listed { at_ns: head[0], entries: entries.map(E::of_words).collect(), others: head[2] })
}

/// Reads all words of a table. Waits for up to [`READER_TRIES`] times [`READER_WAIT`] while it is being written.
fn words_in<const N: usize>(table: &Slot<N>) -> Result<Vec<u64>, Unread> {
    let mut words = vec![0; N];
    for _ in 1..READER_TRIES {
        match table.read_words(&mut words) {
            Err(Unread::Busy) => std::thread::sleep(READER_WAIT),
            Err(Unread::Empty) => return Err(Unread::Empty),
            Ok(()) => return Ok(words),
        }
    }
    table.read_words(&mut words).map(|()| words)
}

/// Removes the live file of a segment, if there is one.
pub fn remove(segment: &Path) {
    let _ = std::fs::remove_file(path_of(segment));
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use gpu_track_abi::table::Text;

    use super::*;

    #[test]
    fn reader_sees_the_samples_of_the_collector_and_of_its_successor() {
        let dir = tempfile::tempdir().unwrap();
        let path = path_of(&dir.path().join("segment"));
        let live = LiveFile::create(&path, 42).unwrap();
        let reader = LiveFile::open(&path).unwrap();
        assert_eq!((reader.count(), reader.sample(0)), (0, None));
        live.push(Sample { combined_bytes: 99, ..Sample::default() });
        drop(live);
        let next = LiveFile::resume(&path, 42).unwrap();
        for n in 1..1500 {
            next.push(Sample { combined_bytes: n, ..Sample::default() });
        }
        assert_eq!(reader.count(), 1500);
        let bytes = |n| reader.sample(n).map(|sample| sample.combined_bytes);
        assert_eq!(
            [bytes(0), bytes(476), bytes(477), bytes(1499), bytes(1500)],
            [None, None, Some(477), Some(1499), None]
        );
    }

    /// Writes a word into a live file, as a writer that is killed in the middle or another program leaves it.
    fn overwrite(path: &Path, at: u32, word: u64) {
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(&word.to_ne_bytes(), u64::from(at)).unwrap();
    }

    fn process(pid: u64) -> ProcessEntry {
        ProcessEntry { pid: Some(pid), ..ProcessEntry::default() }
    }

    // Requirement: TIME-8
    #[test]
    fn tables_that_a_killed_writer_left_half_written_are_unread_until_its_successor_writes() {
        let dir = tempfile::tempdir().unwrap();
        let path = path_of(&dir.path().join("segment"));
        let live = LiveFile::create(&path, 42).unwrap();
        let reader = LiveFile::open(&path).unwrap();
        assert_eq!(reader.gpus(), Err(Unread::Empty));
        assert_eq!(reader.summary(), Err(Unread::Empty));
        let gpu = GpuEntry { used_bytes: Some(7), uuid: Text::new("GPU-1"), ..GpuEntry::default() };
        live.put_gpus(1, &[gpu]);
        live.put_processes(2, &[process(3), process(4)], 5);
        assert!(live.put_summary(6, "{\"a\":1}"));
        assert_eq!(reader.gpus(), Ok(Listed { at_ns: 1, entries: vec![gpu], others: 0 }));
        let processes = Listed { at_ns: 2, entries: vec![process(3), process(4)], others: 5 };
        assert_eq!(reader.processes(), Ok(processes));
        assert_eq!(reader.summary(), Ok((6, "{\"a\":1}".into())));
        drop(live);
        overwrite(&path, PROCESSES.offset, 3);
        assert_eq!(reader.processes(), Err(Unread::Busy));
        let next = LiveFile::resume(&path, 42).unwrap();
        next.put_processes(9, &[], 0);
        assert_eq!(reader.processes(), Ok(Listed { at_ns: 9, entries: Vec::new(), others: 0 }));
    }

    // Requirement: TIME-65
    #[test]
    fn what_has_no_room_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let live = LiveFile::create(&dir.path().join("live"), 1).unwrap();
        let many: Vec<_> = (0..300).map(process).collect();
        live.put_processes(1, &many, 10);
        let listed = live.processes().unwrap();
        assert_eq!((listed.entries, listed.others), (many[..256].to_vec(), 54));
        let full = "x".repeat(SUMMARY_CAPACITY);
        assert!(live.put_summary(1, &full) && !live.put_summary(2, &(full.clone() + "y")));
        assert_eq!(live.summary(), Ok((1, full)));
    }

    // Requirement: TIME-8
    #[test]
    fn anything_that_another_program_writes_there_is_read_without_harm() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("live");
        let live = LiveFile::create(&path, 1).unwrap();
        for garbage in [0, u64::MAX, 1 << 63, 0xfffe] {
            for section in &SECTIONS[1..] {
                (section.offset..section.offset + section.size)
                    .step_by(8)
                    .for_each(|at| overwrite(&path, at, garbage));
                overwrite(&path, section.offset, 2);
            }
            let (gpus, processes, summary) =
                (live.gpus().unwrap(), live.processes().unwrap(), live.summary());
            assert!(gpus.entries.len() <= 64 && processes.entries.len() <= 256, "{garbage}");
            assert!(summary.unwrap().1.chars().count() <= SUMMARY_CAPACITY);
        }
    }

    // Requirement: TIME-8
    #[test]
    fn file_of_another_version_or_length_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("live");
        drop(LiveFile::create(&path, 1).unwrap());
        assert!(LiveFile::open(&path).is_ok());
        let version = std::mem::offset_of!(LiveHeader, version) as u32;
        let (before, after) = (u64::from(LIVE_VERSION) | 4 << 32, u64::from(LIVE_VERSION + 1) | 4 << 32);
        overwrite(&path, version, after);
        assert_eq!(LiveFile::open(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
        overwrite(&path, version, before);
        assert!(LiveFile::open(&path).is_ok());
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(69_632).unwrap();
        assert_eq!(LiveFile::open(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    // Requirement: FAULT-11
    #[test]
    fn files_that_are_no_live_file_of_the_session_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("live");
        assert_eq!(LiveFile::resume(&path, 1).unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::write(&path, "mine").unwrap();
        assert!(LiveFile::create(&path, 1).is_err() && LiveFile::resume(&path, 1).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
        std::fs::remove_file(&path).unwrap();
        drop(LiveFile::create(&path, 1).unwrap());
        assert!(LiveFile::resume(&path, 2).is_err() && LiveFile::resume(&path, 1).is_ok());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(LiveFile::resume(&link, 1).is_err());
    }
}
