//! The session's shared memory. The launcher creates the segment; launcher and collector map it.
//!
//! The segment is a plain file in /dev/shm. The `shared_memory` crate is not used for two reasons. It only calls `ftruncate`, so
//! a full tmpfs kills every user of the file by SIGBUS. And it unlinks the file in a `Drop`.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use gpu_track_abi::layout::{
    FILE_SIZE, HEADER_SIZE, Header, MAGIC, NODES_ASKED, NODES_GIVEN_UP, NODES_NONE, RING_CAPACITY, RING_SIZE,
    SLOT_SIZE, STATE_CLOSED, STATE_OPEN,
};
use gpu_track_abi::overflow;
use gpu_track_abi::record::{ABI_VERSION, Event, Origin, RECORD_WORDS};
use gpu_track_abi::ring::{Push, Ring};
use gpu_track_abi::task::{KINDS, NAMES_BYTES};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::ReadWriteFlags;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex;
use thiserror::Error;

mod guard;
pub mod live;
pub mod named;

use super::files;
use crate::model::run_end::ShimlessPrograms;
use named::NamedFile;

/// Why a segment cannot be created or mapped.
#[derive(Debug, Error)]
pub enum SegmentError {
    /// A new file of that name cannot be created.
    #[error("cannot create {path}: {source}")]
    Create {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The file system has not enough space.
    #[error("no room for {bytes} bytes of shared memory in {path}: {source}")]
    Reserve {
        /// The file.
        path: PathBuf,
        /// Size of a segment.
        bytes: usize,
        /// What the kernel said.
        source: io::Error,
    },
    /// An existing file cannot be opened or mapped.
    #[error("cannot map {path}: {source}")]
    Map {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The file is not a segment, or is one of another version.
    #[error("{path} is not a session of this version")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
}

/// What the launcher writes into the header of a new segment.
#[derive(Debug, Clone, Copy)]
pub struct NewSession {
    /// `FLAG_*` of the layout.
    pub flags: u32,
    /// A random number that identifies the session.
    pub session_id: u64,
    /// Pid of the launcher.
    pub launcher_pid: u32,
    /// Inode of the launcher's pid namespace.
    pub launcher_pid_ns: u32,
    /// CLOCK_MONOTONIC now, nanoseconds.
    pub monotonic_ns: u64,
    /// CLOCK_REALTIME now, nanoseconds since the epoch.
    pub realtime_ns: u64,
    /// The names of `--by-env`, each with a NUL after it.
    pub task_names: [u8; NAMES_BYTES],
    /// The hashes of the marks of tasks that the launcher has itself.
    pub task_baseline: [u32; KINDS],
}

impl Default for NewSession {
    fn default() -> Self {
        Self {
            flags: 0,
            session_id: 0,
            launcher_pid: 0,
            launcher_pid_ns: 0,
            monotonic_ns: 0,
            realtime_ns: 0,
            task_names: [0; NAMES_BYTES],
            task_baseline: [0; KINDS],
        }
    }
}

/// A mapped segment. Drop unmaps it; the file stays until it is unlinked.
#[derive(Debug)]
pub struct Segment {
    named: NamedFile,
    base: NonNull<u8>,
}

/// Lets processes of all users open a segment's file. Only those that can enter its directory, or that it is mounted for, can find it.
/// Not for the launcher: closing the file would drop its record lock.
///
/// # Errors
/// If it is no file of this user alone, or its mode can't be changed.
pub fn open_to_all(path: &Path) -> std::io::Result<()> {
    let (file, found) = files::open_regular(path, OFlags::RDONLY)?.ok_or(io::ErrorKind::PermissionDenied)?;
    // A container that has /dev/shm can put another file in its place.
    if found.nlink() != 1 || found.uid() != rustix::process::geteuid().as_raw() {
        return Err(std::io::ErrorKind::PermissionDenied.into());
    }
    Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(0o666))?)
}

// SAFETY: the shared state behind the pointer is atomic. Everything else is written before a second user exists.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// Creates a segment's file, reserves its space, maps it, and writes its header.
    ///
    /// The file gets its name last, so no process sees it without its header or its lock.
    ///
    /// # Errors
    /// If the file can't be created or mapped, or there is no space for it.
    pub fn create(path: &Path, session: &NewSession) -> Result<Self, SegmentError> {
        let create = |source: io::Error| SegmentError::Create { path: path.into(), source };
        let named = NamedFile::unnamed(path).map_err(create)?;
        rustix::fs::fallocate(named.file(), FallocateFlags::empty(), 0, FILE_SIZE as u64).map_err(
            |source| SegmentError::Reserve { path: path.into(), bytes: FILE_SIZE, source: source.into() },
        )?;
        let made = Self::map(named, MapFlags::SHARED)?;
        // SAFETY: the mapping is FILE_SIZE bytes, page-aligned, and no other user exists yet.
        let header = unsafe { made.base.cast::<Header>().as_mut() };
        header.magic = MAGIC;
        header.abi_version = ABI_VERSION;
        header.record_words = RECORD_WORDS as u32;
        header.ring_capacity = RING_CAPACITY as u32;
        header.flags = session.flags;
        header.session_id = session.session_id;
        header.launcher_pid = session.launcher_pid;
        header.launcher_pid_ns = session.launcher_pid_ns;
        header.created_monotonic_ns = session.monotonic_ns;
        header.created_realtime_ns = session.realtime_ns;
        header.task_names = session.task_names.map(AtomicU8::new);
        header.task_baseline = session.task_baseline;
        header.state.store(STATE_OPEN, Ordering::Release);
        made.named.hold_record_lock();
        made.named.link().map_err(create)?;
        Ok(made)
    }

    /// Maps the file, and guards against its truncation.
    fn map(named: NamedFile, flags: MapFlags) -> Result<Self, SegmentError> {
        let failed = |source: rustix::io::Errno| SegmentError::Map {
            path: named.path().into(),
            source: source.into(),
        };
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                FILE_SIZE,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
                named.file(),
                0,
            )
        }
        .map_err(failed)?;
        let base = NonNull::new(base.cast()).ok_or_else(|| failed(rustix::io::Errno::NOMEM))?;
        guard::SEGMENT.protect(base.as_ptr() as usize, FILE_SIZE);
        Ok(Self { named, base })
    }

    /// Locks and maps the segment that is open as `file`, and was created at `path`.
    ///
    /// # Errors
    /// If the file can't be locked or mapped, or is not a segment of this version.
    pub fn from_file(path: &Path, file: OwnedFd) -> Result<Self, SegmentError> {
        let failed = |source: io::Error| SegmentError::Map { path: path.into(), source };
        Self::existing(NamedFile::opened(path, file).map_err(failed)?, MapFlags::SHARED)
    }

    /// Maps a stale segment, or a copy of one in use, copy-on-write: changes do not reach the file.
    pub(crate) fn copy_of(file: NamedFile) -> Result<Self, SegmentError> {
        Self::existing(file, MapFlags::PRIVATE)
    }

    /// Maps a segment that was created before. Fails if it is too short, or of another version.
    fn existing(named: NamedFile, flags: MapFlags) -> Result<Self, SegmentError> {
        let path = named.path().to_owned();
        let size = match rustix::fs::fstat(named.file()) {
            Ok(stat) => stat.st_size,
            Err(error) => return Err(SegmentError::Map { path, source: error.into() }),
        };
        if size < FILE_SIZE as i64 {
            return Err(SegmentError::Foreign { path });
        }
        let segment = Self::map(named, flags)?;
        if segment.header().is_compatible() { Ok(segment) } else { Err(SegmentError::Foreign { path }) }
    }

    /// The segment's file with its name.
    ///
    /// A collector inherits the open descriptor, because the name can be removed. New processes of the tree find the segment by
    /// its name.
    pub fn named(&self) -> &NamedFile {
        &self.named
    }

    /// Whether the file was truncated. Then its records are lost, and no more will come.
    pub(crate) fn is_lost(&self) -> bool {
        guard::SEGMENT.is_lost()
    }

    /// The header, at the start of the file. Processes of the tree change its atomics at any time.
    pub fn header(&self) -> &Header {
        // SAFETY: the mapping starts with a Header, lives as long as self, and only its atomics change.
        unsafe { self.base.cast::<Header>().as_ref() }
    }

    /// How many programs were started without the shim, as the processes of the tree have counted them.
    pub(crate) fn shimless_programs(&self) -> ShimlessPrograms {
        let header = self.header();
        ShimlessPrograms {
            unreachable: header.unreachable.0.load(Ordering::Relaxed),
            filtered: header.filtered.0.load(Ordering::Relaxed),
        }
    }

    /// The ring to which the processes of the tree write their records.
    pub fn ring(&self) -> Ring<'_, RECORD_WORDS> {
        const WORDS: usize = RING_SIZE / size_of::<u64>();
        const _: () = assert!(WORDS == RING_CAPACITY * RECORD_WORDS && SLOT_SIZE == RECORD_WORDS * 8);
        let header = self.header();
        // SAFETY: the ring follows the header page inside the mapping, is aligned, and is accessed atomically only.
        let words = unsafe {
            std::slice::from_raw_parts(
                self.base.byte_add(HEADER_SIZE).cast::<AtomicU64>().as_ptr().cast_const(),
                WORDS,
            )
        };
        match Ring::new(&header.head.0, &header.tail.0, &header.dropped.0, words) {
            Some(ring) => ring,
            None => unreachable!("a power of two, asserted in gpu_track_abi::layout"),
        }
    }

    /// Writes an event as the shim does. Wakes the reader if a quarter of the ring is used now, or if the reader rests. If the ring
    /// is full, the event goes to the overflow area; if that fails, it is counted as dropped. The launcher writes REAPED records of
    /// the children that it waits for.
    pub fn push_event(&self, origin: &Origin, event: &Event) {
        let record = event.encode(origin);
        match self.ring().push(&record) {
            Push::Stored if !self.header().end_rest() => {}
            Push::Stored | Push::StoredWake => self.ring_doorbell(),
            Push::Full if self.append(&record).is_ok() => {}
            Push::Full => self.ring().count_drop(),
        }
    }

    /// Appends a record to the overflow area, which follows the mapped part of the file. The ring's head goes with it: a reader
    /// puts the record before that position.
    pub(crate) fn append(&self, record: &[u32; RECORD_WORDS]) -> io::Result<()> {
        let slot = overflow::slot(record, self.header().head.0.load(Ordering::Relaxed));
        // The file is not opened anew for this: closing a second descriptor would drop the launcher's record lock.
        let (file, flags) = (self.named.file(), ReadWriteFlags::APPEND);
        let length = rustix::io::pwritev2(file, &[IoSlice::new(&slot)], 0, flags)?;
        if length == slot.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// The number of records in the overflow area so far.
    pub(crate) fn appended(&self) -> u64 {
        self.named.length().saturating_sub(overflow::START) / overflow::SLOT as u64
    }

    /// Rings the doorbell, which wakes the collector.
    pub fn ring_doorbell(&self) {
        let doorbell = &self.header().doorbell;
        doorbell.fetch_add(1, Ordering::Release);
        // If the wake fails, the collector still polls every 50 ms.
        let _ = futex::wake(doorbell, futex::Flags::empty(), 1);
    }

    /// Has processes tell the launcher before the first program that reaches other nodes `by` a certain way: `NODES_BY_SRUN`,
    /// `NODES_BY_SSH` or `NODES_BY_LAUNCHER`.
    pub fn tell_of_nodes(&self, by: u32) {
        self.header().nodes.store(by, Ordering::Release);
    }

    /// Whether a process has told of such a program.
    pub fn is_told_of_nodes(&self) -> bool {
        matches!(self.header().nodes.load(Ordering::Acquire), NODES_ASKED | NODES_GIVEN_UP)
    }

    /// Lets that program go on, and has no other one wait. Returns whether it has waited until now.
    pub fn end_wait_for_nodes(&self) -> bool {
        let nodes = &self.header().nodes;
        let has_waited = nodes.swap(NODES_NONE, Ordering::AcqRel) == NODES_ASKED;
        // If the wake fails, the program waits for its whole patience.
        let _ = futex::wake(nodes, futex::Flags::empty(), u32::MAX >> 1);
        has_waited
    }

    /// How often the doorbell was rung.
    pub(crate) fn doorbell(&self) -> u32 {
        self.header().doorbell.load(Ordering::Acquire)
    }

    /// Sleeps until the doorbell's count differs from `seen`, or until the timeout. The caller reads `seen` before it looks at the
    /// event ring. So the sleep ends at once if the doorbell was rung since. For the collector only.
    pub(crate) fn wait_doorbell(&self, seen: u32, timeout: std::time::Duration) {
        let timeout = futex::Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // The caller looks at the ring after every outcome: woken, timed out, already changed, interrupted.
        let _ = futex::wait(&self.header().doorbell, futex::Flags::empty(), seen, Some(&timeout));
    }

    /// Whether processes may write records.
    pub(crate) fn is_open(&self) -> bool {
        self.header().is_open()
    }

    /// Closes the segment: processes see that they must write no more records.
    pub fn close(&self) {
        self.header().state.store(STATE_CLOSED, Ordering::Release);
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: our own mapping; no reference into it outlives self.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), FILE_SIZE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> NewSession {
        NewSession {
            flags: 1,
            session_id: 42,
            launcher_pid: 7,
            launcher_pid_ns: 8,
            monotonic_ns: 9,
            realtime_ns: 10,
            ..NewSession::default()
        }
    }

    #[test]
    fn second_mapping_reads_events_of_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("segment");
        let mine = Segment::create(&path, &session()).unwrap();
        let other = Segment::from_file(
            &path,
            std::fs::File::options().read(true).write(true).open(&path).unwrap().into(),
        )
        .unwrap();
        assert_eq!(other.header().session_id, 42);
        let event = Event::SpawnFailed { error: 2 };
        mine.push_event(&Origin { pid: 5, ..Origin::default() }, &event);
        let gpu_track_abi::ring::Pop::Record(record) = other.ring().peek(0) else { panic!("no record") };
        assert_eq!(Event::decode(&record).unwrap().1, event);
        mine.named().unlink().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn overflow_record_keeps_the_creators_record_lock() {
        let dir = tempfile::tempdir().unwrap();
        let segment = Segment::create(&dir.path().join("segment"), &session()).unwrap();
        let inode = rustix::fs::fstat(segment.named().file()).unwrap().st_ino;
        let has_lock = || {
            let ours = [format!(" {} ", std::process::id()), format!(":{inode} ")];
            let locks = std::fs::read_to_string("/proc/locks").unwrap();
            locks.lines().any(|lock| lock.contains("POSIX") && ours.iter().all(|part| lock.contains(part)))
        };
        assert!(has_lock());
        for error in 0..=RING_CAPACITY as i32 {
            segment.push_event(&Origin::default(), &Event::SpawnFailed { error });
        }
        assert_eq!(segment.appended(), 1);
        assert!(has_lock());
    }

    #[test]
    fn removed_name_is_noticed_and_a_new_file_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("segment");
        let segment = Segment::create(&path, &session()).unwrap();
        assert!(segment.named().is_linked());
        std::fs::remove_file(&path).unwrap();
        assert!(!segment.named().is_linked());
        std::fs::write(&path, "another's").unwrap();
        segment.named().unlink().unwrap();
        assert!(path.exists());
    }

    // Requirement: FAULT-11
    #[test]
    fn existing_file_or_link_is_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("segment");
        std::fs::write(&path, "mine").unwrap();
        assert!(matches!(Segment::create(&path, &session()), Err(SegmentError::Create { .. })));
        let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        assert!(matches!(Segment::from_file(&path, file.into()), Err(SegmentError::Foreign { .. })));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &link).unwrap();
        assert!(matches!(Segment::create(&link, &session()), Err(SegmentError::Create { .. })));
        assert!(!dir.path().join("elsewhere").exists());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    }
}
