//! Which run may write a report file: a lock beside it.
//!
//! The lock is flock(2) on a file of its own, because each report replaces the previous one by a rename. Launcher and collectors
//! share the open file, so the lock lasts as long as one of them lives, however they end. A lock file that a killed run left behind
//! is not locked, and the next run uses it.
//!
//! If the directory is read-only, a report is written in place, and the lock is on the report file itself. If the file system has
//! no locks, a report has none.
//!
//! Any user that can open a file can lock it. So a lock file has mode 0600, and a lock file of another user than root is not
//! used. Otherwise, that user could keep commands from running in /tmp. A lock file of root is not used
//! if this user can't open it.

use std::fmt;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::sys::segment::named::NamedFile;

/// How often a lock file is opened again because its holder removed it in the meantime.
const TRIES: u32 = 100;

/// The lock of a report file, held by this process and those that inherited its descriptor.
#[derive(Debug)]
pub struct OutputLock {
    file: NamedFile,
    /// Whether `file` must not be removed with the lock: it is the report itself, or another user's.
    stays: bool,
}

/// Why a lock was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoLock {
    /// Another run, which has not ended, holds the lock.
    InUse,
    /// A file of another user has the lock file's name.
    Foreign {
        /// That file.
        path: PathBuf,
        /// Its owner.
        uid: u32,
    },
}

/// Says what the refused lock means for the report. [`NoLock::InUse`] gives a text to put after the report's name,
/// [`NoLock::Foreign`] a sentence.
impl fmt::Display for NoLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse => f.write_str("is the report of another run that has not ended"),
            Self::Foreign { path, uid } => write!(
                f,
                "{} is user {uid}'s, so it is no lock of this user's: another run can write to the same report file. \
                 Remove it, or write to a directory that only you can write to.",
                path.display()
            ),
        }
    }
}

impl OutputLock {
    /// Takes the lock of this report file. `None`: the file system has no locks, or no lock file can be made.
    ///
    /// # Errors
    /// If another run holds the lock, or a file of another user has the lock file's name. Root's is refused only if it can't be
    /// opened.
    pub fn take(report: &Path) -> Result<Option<Self>, NoLock> {
        let Some(path) = lock_path(report) else { return Ok(None) };
        let may_create = true;
        let mut result = Self::take_file(&path, may_create);
        let is_refused = matches!(result, Err(Errno::ACCESS | Errno::ROFS | Errno::PERM));
        // Checked after the open, to find another user's file that was there before or was put there since. A killed run of root
        // leaves a file that only root can open.
        let foreign = if is_refused { other_owner(&path) } else { other_owner_but_root(&path) };
        if let Some(uid) = foreign {
            return Err(NoLock::Foreign { path, uid });
        }
        if is_refused {
            // No lock file can be made in the directory, so the report will be written in place.
            let may_create = false;
            result = Self::take_file(report, may_create);
        }
        match result {
            Ok(lock) => Ok(lock),
            Err(Errno::WOULDBLOCK) => Err(NoLock::InUse),
            Err(_) => Ok(None),
        }
    }

    /// Takes the lock on the file at `path`. `may_create`: it is a lock file, which is created if it is missing; otherwise it is
    /// the report itself. Tries again if the earlier holder removes the lock file in the meantime.
    fn take_file(path: &Path, may_create: bool) -> Result<Option<Self>, Errno> {
        for _ in 0..TRIES {
            let fd = open(path, may_create)?;
            if let Err(error) = rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
                if matches!(error, Errno::NOTSUP | Errno::NOSYS) && may_create {
                    // Files can't be locked there, so a lock file is of no use. After another error, it can be another run's.
                    let _ = rustix::fs::unlink(path);
                }
                return Err(error);
            }
            let mut lock = Self { file: NamedFile::held(path, fd), stays: !may_create };
            if other_owner_but_root(path).is_some() {
                // The caller refuses this lock. Its drop must not remove another user's file.
                lock.stays = true;
            }
            // The earlier holder may have removed the file between open and lock.
            if lock.file.is_linked() {
                return Ok(Some(lock));
            }
        }
        Err(Errno::WOULDBLOCK)
    }

    /// Takes over a lock whose descriptor a collector has inherited. `None`: the report's path has no file name.
    pub fn inherited(report: &Path, fd: OwnedFd) -> Option<Self> {
        let beside = NamedFile::held(&lock_path(report)?, fd);
        // If the lock file beside the report is not this one, the lock is on the report.
        let stays = !beside.is_linked();
        Some(Self { file: beside, stays })
    }

    /// The locked file, whose descriptor a collector inherits.
    pub fn file(&self) -> &NamedFile {
        &self.file
    }
}

impl Drop for OutputLock {
    /// Removes the lock file, unless another run has made a new file of that name. The lock itself lasts until the last holder of the
    /// descriptor ends.
    fn drop(&mut self) {
        if !self.stays {
            // If the file can't be removed, it stays and does no harm: it is not locked.
            let _ = self.file.unlink();
        }
    }
}

/// The path `.NAME.gpu-track-lock` beside the report. `None`: the report's path has no file name.
fn lock_path(report: &Path) -> Option<PathBuf> {
    let mut name = std::ffi::OsString::from(".");
    name.push(report.file_name()?);
    name.push(".gpu-track-lock");
    Some(report.with_file_name(name))
}

/// The owner of the file or link at `path`. `None`: it is this user's or root's, or there is none.
fn other_owner_but_root(path: &Path) -> Option<u32> {
    other_owner(path).filter(|owner| *owner != 0)
}

/// The owner of the file or link at `path`. `None`: it is this user's, or there is none.
fn other_owner(path: &Path) -> Option<u32> {
    let owner = std::fs::symlink_metadata(path).ok()?.uid();
    (owner != rustix::process::geteuid().as_raw()).then_some(owner)
}

/// Opens a file to lock it, and creates a missing one if `may_create`. Nothing is written to the file, so a link that another user
/// made in its place does no harm.
fn open(path: &Path, may_create: bool) -> Result<OwnedFd, Errno> {
    let flags = OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let create = if may_create { OFlags::CREATE } else { OFlags::empty() };
    // NFS gives an exclusive lock on files that are open for writing only.
    rustix::fs::open(path, flags | create | OFlags::RDWR, Mode::RUSR | Mode::WUSR)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn names_in(directory: &Path) -> Vec<String> {
        let names = fs::read_dir(directory).unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    // Requirement: OUT-12
    #[test]
    fn second_run_is_refused_until_the_first_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let report = directory.path().join("r.json");
        let first = OutputLock::take(&report).unwrap().unwrap();
        assert_eq!(names_in(directory.path()), [".r.json.gpu-track-lock"]);
        assert_eq!(OutputLock::take(&report).unwrap_err(), NoLock::InUse);
        assert!(OutputLock::take(&directory.path().join("other.json")).unwrap().is_some());
        drop(first);
        assert_eq!(names_in(directory.path()), [""; 0]);
        let second = OutputLock::take(&report).unwrap().unwrap();
        let shared = second.file().try_clone().unwrap().into_fd();
        let of_collector = OutputLock::inherited(&report, shared).unwrap();
        drop(second);
        let third = OutputLock::take(&report).unwrap().unwrap();
        // The name is the third run's by now.
        drop(of_collector);
        assert_eq!(OutputLock::take(&report).unwrap_err(), NoLock::InUse);
        drop(third);
        assert_eq!(names_in(directory.path()), [""; 0]);
    }

    // Requirement: OUT-12
    #[test]
    fn lock_of_a_killed_run_lasts_as_long_as_its_collector() {
        let directory = tempfile::tempdir().unwrap();
        let report = directory.path().join("r");
        let lock = || {
            let fd = open(&lock_path(&report).unwrap(), true).unwrap();
            rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive).unwrap();
            fd
        };
        let launcher = lock();
        let collector = launcher.try_clone().unwrap();
        drop(launcher);
        assert_eq!(OutputLock::take(&report).unwrap_err(), NoLock::InUse);
        drop(collector);
        assert_eq!(names_in(directory.path()), [".r.gpu-track-lock"], "it was left behind");
        drop(OutputLock::take(&report).unwrap().unwrap());
        assert_eq!(names_in(directory.path()), [""; 0]);
    }

    // Requirement: OUT-12
    #[test]
    fn links_are_not_followed_and_name_no_lock() {
        let directory = tempfile::tempdir().unwrap();
        let report = directory.path().join("r");
        let other = directory.path().join("other");
        symlink(&other, lock_path(&report).unwrap()).unwrap();
        assert!(OutputLock::take(&report).unwrap().is_none());
        assert_eq!(fs::metadata(&other).unwrap_err().kind(), ErrorKind::NotFound);
        let long = directory.path().join("x".repeat(250));
        assert!(OutputLock::take(&long).unwrap().is_none(), "the lock's name would be too long");
    }

    // Requirement: OUT-22
    #[test]
    fn file_of_another_user_is_no_lock() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: needs root, for a file of another user");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let report = directory.path().join("r");
        let path = lock_path(&report).unwrap();
        fs::write(&path, "").unwrap();
        std::os::unix::fs::chown(&path, Some(64002), None).unwrap();
        let held = open(&path, false).unwrap();
        rustix::fs::flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        let foreign = NoLock::Foreign { path: path.clone(), uid: 64002 };
        assert_eq!(OutputLock::take(&report).unwrap_err(), foreign);
        drop(held);
        assert_eq!(OutputLock::take(&report).unwrap_err(), foreign, "an unlocked one that is not ours");
        assert!(path.exists(), "another user's file stays");
        fs::remove_file(&path).unwrap();
        let own = OutputLock::take(&report).unwrap().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(own);
    }

    /// Runs `test` in a thread that is no root: root may write anywhere, and the kernel keeps credentials per thread.
    fn without_root(test: impl FnOnce() + Send) {
        let as_nobody = || {
            if rustix::process::geteuid().is_root() {
                let nobody = rustix::process::Uid::from_raw(65534);
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            }
            test();
        };
        std::thread::scope(|scope| {
            scope.spawn(as_nobody);
        });
    }

    // Requirement: OUT-22
    #[test]
    fn lock_file_that_roots_killed_run_left_behind_is_no_lock_of_another_users_run() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: needs root, for a file of root");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let report = directory.path().join("r");
        let path = lock_path(&report).unwrap();
        drop(open(&path, true).unwrap());
        let foreign = NoLock::Foreign { path: path.clone(), uid: 0 };
        without_root(|| assert_eq!(OutputLock::take(&report).unwrap_err(), foreign, "no report yet"));
        fs::write(&report, "old").unwrap();
        without_root(|| assert_eq!(OutputLock::take(&report).unwrap_err(), foreign, "with a report"));
        assert!(path.exists() && OutputLock::take(&report).unwrap().is_some(), "root uses it again");
    }

    // Requirement: OUT-12
    #[test]
    fn report_in_a_read_only_directory_is_locked_itself() {
        let directory = tempfile::tempdir().unwrap();
        let report = directory.path().join("r");
        fs::write(&report, "old").unwrap();
        fs::set_permissions(&report, fs::Permissions::from_mode(0o666)).unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o555)).unwrap();
        without_root(|| {
            let first = OutputLock::take(&report).unwrap().unwrap();
            assert_eq!(OutputLock::take(&report).unwrap_err(), NoLock::InUse);
            let fd = first.file().try_clone().unwrap().into_fd();
            drop(OutputLock::inherited(&report, fd).unwrap());
            drop(first);
            assert_eq!(names_in(directory.path()), ["r"], "the report stays");
            assert!(OutputLock::take(&report).unwrap().is_some());
        });
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    }
}
