//! A named file in shared memory.
//!
//! The file gets its name when it is complete, so that no process sees it before. No symbolic link is followed. A lock tells a file
//! in use from a stale one.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags};

use crate::sys::files::open_regular;

/// An open file and its name.
///
/// The open file holds a lock (flock(2)), which lasts as long as any process has a descriptor of it. A file that nobody has locked
/// is stale.
#[derive(Debug)]
pub struct NamedFile {
    path: PathBuf,
    file: OwnedFd,
}

/// What tells a file from others, whatever its name: its device and its inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId {
    /// Major and minor number of the device.
    pub device: (u32, u32),
    /// The inode's number.
    pub inode: u64,
}

/// A file that another process can't replace by one of the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownFile {
    /// The name that it was created with.
    pub path: PathBuf,
    /// The file itself.
    pub id: FileId,
}

impl NamedFile {
    /// Creates a file with mode 0600 and without a name, and locks it. [`NamedFile::link`] gives it the name `path`.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub(crate) fn unnamed(path: &Path) -> io::Result<Self> {
        let dir = path.parent().unwrap_or(Path::new("/"));
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        Self::opened(path, rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR)?)
    }

    /// Takes the file behind this open descriptor, whose name is `path`, and a shared lock on it.
    ///
    /// # Errors
    /// If the file cannot be locked.
    pub fn opened(path: &Path, file: OwnedFd) -> io::Result<Self> {
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared)?;
        Ok(Self { path: path.into(), file })
    }

    /// Takes the file behind this open descriptor, whose name is `path`. Does not lock it: the caller has done so, or only reads
    /// it.
    pub(crate) fn held(path: &Path, file: OwnedFd) -> Self {
        Self { path: path.into(), file }
    }

    /// Opens the stale file at `path` for reading: a regular file of user `uid` that no process has locked. Locks it exclusively,
    /// so that no other process takes it for stale.
    ///
    /// # Errors
    /// `NotFound` if there is no such file. After any other error the file must be left alone.
    pub fn left_behind(path: &Path, uid: u32) -> io::Result<Self> {
        let (file, found) = open_regular(path, OFlags::RDONLY)?.ok_or(io::ErrorKind::PermissionDenied)?;
        if found.uid() != uid {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let left = Self { path: path.into(), file: file.into() };
        // The last user may have removed the file between open and lock.
        if left.is_linked() { Ok(left) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// Takes a record lock (fcntl(2)) on the file until this process ends.
    ///
    /// The lock tells a tracked process which pid namespace it is in: F_GETLK gives the holder's pid in the caller's namespace.
    /// The kernel drops the lock once this process closes any descriptor of the file.
    pub(crate) fn hold_record_lock(&self) {
        // Without the lock, tracked processes ask the kernel for their namespace, which takes longer.
        let _ = rustix::fs::fcntl_lock(&self.file, FlockOperation::NonBlockingLockShared);
    }

    /// Gives the file its name. Never replaces an existing file or link.
    ///
    /// # Errors
    /// If the name exists, or can't be created.
    pub(crate) fn link(&self) -> io::Result<()> {
        // linkat with AT_EMPTY_PATH would need CAP_DAC_READ_SEARCH; the link in /proc does not.
        let unnamed = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        Ok(rustix::fs::linkat(CWD, unnamed, CWD, &self.path, AtFlags::SYMLINK_FOLLOW)?)
    }

    /// A duplicate of the descriptor, which shares the lock.
    ///
    /// # Errors
    /// If the process has no descriptors left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { path: self.path.clone(), file: self.file.try_clone()? })
    }

    /// The descriptor alone.
    #[cfg(test)]
    pub(crate) fn into_fd(self) -> OwnedFd {
        self.file
    }

    /// The name of the file, which it may not have yet or any more.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The descriptor of the file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The name of the file, and the file itself, for a process that does not have it open. `None`: the kernel does not tell.
    pub fn known(&self) -> Option<KnownFile> {
        let found = rustix::fs::fstat(&self.file).ok()?;
        let device = (rustix::fs::major(found.st_dev), rustix::fs::minor(found.st_dev));
        Some(KnownFile { path: self.path.clone(), id: FileId { device, inode: found.st_ino } })
    }

    /// The length of the file, bytes.
    pub(crate) fn length(&self) -> u64 {
        rustix::fs::fstat(&self.file).map_or(0, |stat| stat.st_size.unsigned_abs())
    }

    /// Whether the name still refers to this file.
    pub(crate) fn is_linked(&self) -> bool {
        let (Ok(ours), Ok(named)) = (rustix::fs::fstat(&self.file), rustix::fs::stat(&self.path)) else {
            return false;
        };
        (ours.st_dev, ours.st_ino) == (named.st_dev, named.st_ino)
    }

    /// Removes the name, unless it refers to another file by now.
    ///
    /// # Errors
    /// If the name cannot be removed.
    pub fn unlink(&self) -> io::Result<()> {
        if self.is_linked() {
            rustix::fs::unlink(&self.path)?;
        }
        Ok(())
    }
}
