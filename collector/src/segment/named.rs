//! A file in shared memory with a name: made so that nobody ever sees it half-made, follows a link to it, or takes
//! one that is in use for one that was left behind.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags};

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

    /// Give it its name. Never replaces what is there, be it a link.
    ///
    /// # Errors
    /// If the name is taken.
    pub fn link(&self) -> io::Result<()> {
        // /proc is the way that needs no privilege.
        let unnamed = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        Ok(rustix::fs::linkat(CWD, unnamed, CWD, &self.path, AtFlags::SYMLINK_FOLLOW)?)
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
