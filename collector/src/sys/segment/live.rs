//! The live file: the latest samples, for programs that watch the run.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use gpu_track_abi::layout::HEADER_SIZE;
use gpu_track_abi::live::{LIVE_MAGIC, LIVE_SIZE, LIVE_VERSION, LiveHeader, SUFFIX};
use gpu_track_abi::sample::{SAMPLE_CAPACITY, Sample, SampleSlot};
use rustix::fs::{CWD, FallocateFlags, FileType, Mode, OFlags, fstat, openat};
use rustix::mm::{MapFlags, ProtFlags};

use super::guard;
use super::named::NamedFile;

/// Gives the path of the live file of this segment.
#[must_use]
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

// SAFETY: what changes behind the pointer is atomic. Everything else is written before a second user exists.
unsafe impl Send for LiveFile {}
// SAFETY: as above.
unsafe impl Sync for LiveFile {}

impl LiveFile {
    /// Creates a live file. It gets its name last, so no reader sees it without its header.
    ///
    /// # Errors
    /// If it cannot be created, or there is no room for it.
    pub fn create(path: &Path, session_id: u64) -> io::Result<Self> {
        let named = NamedFile::unnamed(path)?;
        rustix::fs::fallocate(named.file(), FallocateFlags::empty(), 0, LIVE_SIZE as u64)?;
        let live = Self::map(named, ProtFlags::READ | ProtFlags::WRITE)?;
        // SAFETY: the mapping is LIVE_SIZE bytes, page-aligned, and no other user exists yet.
        let header = unsafe { live.base.cast::<LiveHeader>().as_mut() };
        header.magic = LIVE_MAGIC;
        header.version = LIVE_VERSION;
        header.slot_size = size_of::<SampleSlot>() as u32;
        header.capacity = SAMPLE_CAPACITY as u32;
        header.first_slot = HEADER_SIZE as u32;
        header.session_id = session_id;
        live.named.link()?;
        Ok(live)
    }

    /// Opens the live file that an earlier collector of this session made, to go on in it.
    ///
    /// # Errors
    /// `NotFound` if there is none; other errors if it is another user's, or of another session.
    pub fn resume(path: &Path, session_id: u64) -> io::Result<Self> {
        let live = Self::existing(path, OFlags::RDWR, ProtFlags::READ | ProtFlags::WRITE)?;
        let is_own = fstat(live.named.file())?.st_uid == rustix::process::geteuid().as_raw();
        let is_it = is_own && live.header().session_id == session_id;
        if is_it { Ok(live) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// Opens a live file for a reader, which may be root and the run another user's.
    ///
    /// # Errors
    /// If there is none, or this version cannot read it.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::existing(path, OFlags::RDONLY, ProtFlags::READ)
    }

    /// Opens and maps a live file that is there. Fails if it has another length or version.
    fn existing(path: &Path, access: OFlags, protection: ProtFlags) -> io::Result<Self> {
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file: OwnedFd = openat(CWD, path, flags, Mode::empty())?;
        let stat = fstat(&file)?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !is_file || stat.st_size != LIVE_SIZE as i64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let live = Self::map(NamedFile::opened(path, file)?, protection)?;
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

    fn slots(&self) -> &[SampleSlot] {
        // SAFETY: the slots follow the header page inside the mapping, are aligned, and are accessed atomically only.
        unsafe {
            let first = self.base.byte_add(HEADER_SIZE).cast::<SampleSlot>();
            std::slice::from_raw_parts(first.as_ptr().cast_const(), SAMPLE_CAPACITY)
        }
    }

    /// Collector only: append a sample of the tree.
    pub fn push(&self, sample: Sample) {
        let written = &self.header().samples.0;
        let number = written.load(Ordering::Relaxed);
        if let Some(slot) = self.slots().get(number as usize % SAMPLE_CAPACITY) {
            slot.write(sample);
        }
        written.store(number.wrapping_add(1), Ordering::Release);
    }

    /// How many samples were written so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.header().samples.0.load(Ordering::Acquire)
    }

    /// Reads a sample by its number, if it is still there.
    #[must_use]
    pub fn sample(&self, number: u64) -> Option<Sample> {
        let is_there =
            (number..number.saturating_add(SAMPLE_CAPACITY as u64)).contains(&self.count().checked_sub(1)?);
        self.slots().get(number as usize % SAMPLE_CAPACITY).filter(|_| is_there)?.read()
    }

    /// Whether its file was truncated: nothing that is written to it arrives.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        guard::LIVE.is_lost()
    }

    /// Its file.
    #[must_use]
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

/// Removes the live file of a segment, if there is one.
pub fn remove(segment: &Path) {
    // Where there is none, there is nothing to remove.
    let _ = std::fs::remove_file(path_of(segment));
}

#[cfg(test)]
mod tests {
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
            [bytes(0), bytes(475), bytes(476), bytes(1499), bytes(1500)],
            [None, None, Some(476), Some(1499), None]
        );
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
