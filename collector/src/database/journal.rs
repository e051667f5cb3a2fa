//! The rollback journal beside a database that is written. Its pages may have secrets, such as arguments of processes, and SQLite may
//! copy them back into the database. So it must be this user's alone: made here, mode 0600, one hard link.
//!
//! In a sticky directory such as /tmp, another user can make a file of the journal's name first, but can't replace this user's. So the
//! launcher makes the journal before the command starts, and refuses the run if another file is there.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use thiserror::Error;

/// What SQLite appends to the database's name (sqlite.org/tempfiles.html).
pub(super) const SUFFIX: &str = "-journal";
/// The bits of a mode for the group and other users.
const OTHERS: u32 = 0o077;

/// A file that SQLite would take for the database's journal, and which is not this user's.
#[derive(Debug, Error)]
#[error(
    "{path} is there, of user {uid} and mode {mode:03o}, and SQLite would use it as its journal: remove it, or name another file"
)]
pub struct ForeignJournal {
    path: String,
    uid: u32,
    mode: u32,
}

/// The path of a database's journal.
fn path_of(database: &Path) -> PathBuf {
    let mut path = OsString::from(database);
    path.push(SUFFIX);
    path.into()
}

/// Whether a file with this metadata can be a journal that [`open`] made.
fn is_own(found: &Metadata) -> bool {
    found.is_file()
        && found.uid() == rustix::process::geteuid().as_raw()
        && found.nlink() == 1
        && found.mode() & OTHERS == 0
}

/// The size of the journal at `path`; 0: there is none, or it is not this user's alone.
pub(super) fn size(path: &Path) -> u64 {
    fs::symlink_metadata(path).ok().filter(is_own).map_or(0, |found| found.len())
}

/// Opens the journal at `path`. `creates`: makes it if there is none.
///
/// # Errors
/// If it is not this user's alone, or can't be opened or made.
pub(super) fn open(path: &Path, creates: bool) -> io::Result<File> {
    // Another user can have put a link or a fifo there: no link is followed, and no process at the other end is waited for.
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match openat(CWD, path, flags, Mode::empty()) {
        Err(Errno::NOENT) if creates => {
            let new = flags | OFlags::CREATE | OFlags::EXCL;
            Ok(openat(CWD, path, new, Mode::RUSR | Mode::WUSR)?.into())
        }
        found => {
            let file = File::from(found?);
            let is_own = is_own(&file.metadata()?);
            if is_own { Ok(file) } else { Err(io::ErrorKind::PermissionDenied.into()) }
        }
    }
}

/// Deletes the journal at `path`.
///
/// # Errors
/// If there is none, it is not this user's alone, or can't be deleted.
pub(super) fn delete(path: &Path) -> io::Result<()> {
    if !is_own(&fs::symlink_metadata(path)?) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    fs::remove_file(path)
}

/// Checks that no other user's file has the name of the database's journal.
///
/// # Errors
/// If one has.
pub(crate) fn check(database: &Path) -> Result<(), ForeignJournal> {
    let path = path_of(database);
    match fs::symlink_metadata(&path) {
        // A journal of this user passes even if others can read it: an older version or another program left it.
        Ok(found) if !found.is_file() || found.uid() != rustix::process::geteuid().as_raw() => {
            Err(ForeignJournal {
                path: path.display().to_string(),
                uid: found.uid(),
                mode: found.mode() & 0o777,
            })
        }
        _ => Ok(()),
    }
}

/// Makes the empty journal of a new database. A journal of this user is of an earlier database of this name, and is replaced.
///
/// # Errors
/// If another user's file has the name, or it can't be made.
pub(crate) fn make(database: &Path) -> io::Result<()> {
    check(database).map_err(io::Error::other)?;
    let path = path_of(database);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    open(&path, true).map(drop)
}

/// Removes the journal of a database without content, in which there is nothing to roll back.
pub(crate) fn remove(database: &Path) {
    // A journal that can't be removed does no harm.
    let _ = delete(&path_of(database));
}
