//! Opens the files of a session whose run goes on, for a program outside the run that makes a report of the run so far. They are
//! opened read-only. The only effect on the run is that [`LiveSession::is_stale`] locks the state file for a moment.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gpu_track_abi::layout::{FILE_SIZE, HEADER_SIZE};
use gpu_track_abi::overflow::MAX_UNREAD_BYTES;
use rustix::fs::{FlockOperation, MemfdFlags, Mode, OFlags, flock, memfd_create};

use super::session_name::state_name;
use super::state_file::StateFile;
use crate::sys::files::{copy_range, open_regular};
use crate::sys::segment::named::NamedFile;

/// Maximum number of bytes that are copied of the overflow area after the segment. Writers leave at most 16 MiB there unread, but
/// several that look at the same time may each append. More than twice that is damage.
const MAX_OVERFLOW_BYTES: u64 = 2 * MAX_UNREAD_BYTES;

/// The files of a session.
#[derive(Debug)]
pub(crate) struct LiveSession {
    /// Path of the segment.
    pub(crate) path: PathBuf,
    state: StateFile,
    /// `None`: its name was removed, because the report is about to be written.
    segment: Option<File>,
}

impl LiveSession {
    /// Opens the files of the session with this segment.
    ///
    /// # Errors
    /// `NotFound` if there is no state file. `PermissionDenied` if it is another user's.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let state_path = state_name(path);
        let state = StateFile::from_named(NamedFile::held(&state_path, open_own(&state_path)?.into()))?;
        let segment = match open_own(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            opened => Some(opened?),
        };
        Ok(Self { path: path.to_owned(), state, segment })
    }

    /// The state file, to which the collector still writes.
    pub(crate) fn state(&self) -> &StateFile {
        &self.state
    }

    /// Whether launcher and collector were both killed: no process has the state file locked. The lock is taken for a moment to see that.
    pub(crate) fn is_stale(&self) -> bool {
        let file = self.state.named().file();
        let is_stale = flock(file, FlockOperation::NonBlockingLockExclusive).is_ok();
        let _ = flock(file, FlockOperation::Unlock);
        is_stale
    }

    /// Copies the segment into memory of this process. `None`: its name was removed.
    ///
    /// Processes write and the collector reads meanwhile. The order of copying makes the copy whole all the same:
    ///
    /// 1. The overflow area. Each of its records names the ring position that it comes before. The ring's head is copied later, so it
    ///    is not before that position.
    /// 2. The header, with the head.
    /// 3. The ring. Each slot before that head is claimed by then. If the collector has freed a slot meanwhile, its record is in the
    ///    journal, which the caller must read after this call.
    ///
    /// # Errors
    /// If there is no memory, or no descriptor left.
    pub(crate) fn copy_segment(&self) -> io::Result<Option<NamedFile>> {
        let Some(segment) = &self.segment else { return Ok(None) };
        let (header, end) = (HEADER_SIZE as u64, FILE_SIZE as u64);
        let length = segment.metadata()?.len();
        let copy = File::from(in_memory()?);
        copy_range(segment, &copy, end.min(length)..length, MAX_OVERFLOW_BYTES)?;
        copy_range(segment, &copy, 0..header.min(length), header)?;
        copy_range(segment, &copy, header.min(length)..end.min(length), end)?;
        // The copy gets the length of the original, even if that ends in a hole, of which nothing was copied.
        copy.set_len(length)?;
        Ok(Some(NamedFile::held(&self.path, copy.into())))
    }
}

/// Opens a regular file of this user for reading. No link is followed. Any other file is `PermissionDenied`.
fn open_own(path: &Path) -> io::Result<File> {
    let (file, found) = open_regular(path, OFlags::RDONLY)?.ok_or(ErrorKind::PermissionDenied)?;
    let is_own = found.uid() == rustix::process::geteuid().as_raw();
    if is_own { Ok(file) } else { Err(ErrorKind::PermissionDenied.into()) }
}

/// Makes a file without a name: a memfd, or a file in /dev/shm if a filter of system calls forbids memfd_create(2).
fn in_memory() -> io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let unnamed = |_| rustix::fs::open("/dev/shm", flags, Mode::RUSR | Mode::WUSR);
    Ok(memfd_create("gpu-track-segment", MemfdFlags::CLOEXEC).or_else(unnamed)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, symlink};

    use super::*;

    fn content(file: &File) -> Vec<u8> {
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    // Requirement: RECORD-5
    #[test]
    fn copy_of_a_segment_is_the_same_with_holes_and_the_file_does_not_change() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("segment");
        let written = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        written.set_len(FILE_SIZE as u64 + 40_000).unwrap();
        for at in [7, HEADER_SIZE as u64 + 9, FILE_SIZE as u64 + 30_000] {
            written.write_all_at(b"record", at).unwrap();
        }
        StateFile::create(&state_name(&path)).unwrap();
        let before = content(&written);
        let session = LiveSession::open(&path).unwrap();
        let copy = session.copy_segment().unwrap().unwrap();
        let copy = File::from(copy.file().try_clone_to_owned().unwrap());
        assert_eq!((content(&copy), content(&written)), (before.clone(), before));
        copy.write_all_at(b"x", 0).unwrap();
        assert_eq!(content(&written)[0], 0, "the copy is this process's own");
        std::fs::remove_file(&path).unwrap();
        assert!(LiveSession::open(&path).unwrap().copy_segment().unwrap().is_none());
    }

    // Requirement: RECORD-5
    #[test]
    fn session_without_a_state_file_or_with_a_link_for_it_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("segment");
        assert_eq!(LiveSession::open(&path).unwrap_err().kind(), ErrorKind::NotFound);
        std::fs::write(directory.path().join("other"), "").unwrap();
        symlink(directory.path().join("other"), state_name(&path)).unwrap();
        assert!(LiveSession::open(&path).is_err());
    }
}
