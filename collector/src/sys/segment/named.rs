//! A file in shared memory with a name: made so that nobody ever sees it half-made, follows a link to it, or takes
//! one that is in use for one that was left behind.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags};

/// An open file and its name. Holds a shared lock as long as any process has it open by this description: that tells
/// a file in use from one that was left behind.
#[derive(Debug)]
pub struct NamedFile {
    path: PathBuf,
    file: OwnedFd,
}

impl NamedFile {
    /// A new file of this user alone, which will have this name after [`NamedFile::link`].
    ///
    /// # Errors
    /// If it can't be made.
    pub fn unnamed(path: &Path) -> io::Result<Self> {
        let dir = path.parent().unwrap_or(Path::new("/"));
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        Self::opened(path, rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR)?)
    }

    /// The file that this descriptor is open on.
    ///
    /// # Errors
    /// If it can't be locked.
    pub fn opened(path: &Path, file: OwnedFd) -> io::Result<Self> {
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared)?;
        Ok(Self { path: path.into(), file })
    }

    /// The file of this name, if it is this user's and nobody uses it; nobody will take it for stale while this lives.
    ///
    /// # Errors
    /// `NotFound` if there is none. Anything else means: leave it alone.
    pub fn left_behind(path: &Path, uid: u32) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::open(path, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_uid != uid {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let left = Self { path: path.into(), file };
        // Who used it may have ended, and removed it, since it was opened.
        if left.is_linked() { Ok(left) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// Hold a record lock (fcntl(2)) on it until this process ends: whoever asks for it is told this process's pid as the
    /// asker's own pid namespace has it, and so where it is itself. It is gone as soon as this process closes any
    /// descriptor of the file.
    pub fn mark(&self) {
        // Who finds none asks in another way.
        let _ = rustix::fs::fcntl_lock(&self.file, FlockOperation::NonBlockingLockShared);
    }

    /// Give it its name. Never replaces what is there, be it a link.
    ///
    /// # Errors
    /// If the name is taken.
    pub fn link(&self) -> io::Result<()> {
        // /proc is the way that needs no privilege.
        let unnamed = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        Ok(rustix::fs::linkat(CWD, unnamed, CWD, &self.path, AtFlags::SYMLINK_FOLLOW)?)
    }

    /// Another descriptor of it, with the same lock.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { path: self.path.clone(), file: self.file.try_clone()? })
    }

    /// Its name.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its descriptor.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Its length, bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        rustix::fs::fstat(&self.file).map_or(0, |stat| stat.st_size.unsigned_abs())
    }

    /// Whether its name still leads to it.
    #[must_use]
    pub fn is_linked(&self) -> bool {
        let (Ok(ours), Ok(named)) = (rustix::fs::fstat(&self.file), rustix::fs::stat(&self.path)) else {
            return false;
        };
        (ours.st_dev, ours.st_ino) == (named.st_dev, named.st_ino)
    }

    /// Remove the name, unless somebody has made another file under it.
    ///
    /// # Errors
    /// If it can't be removed.
    pub fn unlink(&self) -> io::Result<()> {
        if self.is_linked() {
            rustix::fs::unlink(&self.path)?;
        }
        Ok(())
    }
}
