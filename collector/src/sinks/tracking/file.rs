//! The file of `--tf`, or of `--trace-gpu`: the launcher creates it before the command starts, and collectors open it by its path.
//!
//! Root may track another user's command, and that user may own the directory. So the launcher creates a new file, in the
//! directory that was found at the start. A collector writes only to that inode, which the launcher holds open.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, fcntl_lock, openat, statat, unlinkat};
use rustix::io::Errno;
use thiserror::Error;

use crate::database::{self, ForeignJournal};
use crate::model::style::StreamFile;
use crate::sinks::output::{FOR_ALL, check_same, directory_of, replace, stream_file};
use crate::sys::safe_path::{Unsafe, User};

/// The bit in a mode that lets all users write. A database must not have it, because SQLite would act on what they write into it.
const OTHERS_WRITE: u32 = 0o002;

/// Why there is no tracking file.
#[derive(Debug, Error)]
pub enum NoTrackingFile {
    /// Its name says another form, or none.
    #[error("has a form that can't be written: name a file that ends in {}", super::extensions())]
    Form,
    /// It exists, and is not to be replaced.
    #[error("exists: give --overwrite to replace it, or another name")]
    Exists,
    /// Another user could put a file or link of theirs where SQLite opens the database.
    #[error("is no place for SQLite, which finds its files by name: {0}. Name a file that ends in .csv")]
    Unsafe(#[from] Unsafe),
    /// Another user's file is where SQLite would put its journal.
    #[error("is no place for SQLite: {0}")]
    Journal(#[from] ForeignJournal),
    /// The file system has no locks.
    #[error("is on a file system without the locks that SQLite needs ({0}): name a file that ends in .csv")]
    NoLocks(Errno),
    /// The kernel refused.
    #[error("cannot be made: {0}")]
    Io(#[from] io::Error),
}

/// A tracking file as the launcher holds it. When dropped, it removes the file if that is empty.
#[derive(Debug)]
pub struct TrackingFile {
    file: File,
    directory: OwnedFd,
    target: StreamFile,
    /// SQLite writes it, and has a journal beside it.
    is_database: bool,
}

impl TrackingFile {
    /// Creates an empty file at a path that [`output_at`](crate::sinks::output::output_at) found. `overwrite`: an existing file
    /// is replaced.
    ///
    /// # Errors
    /// If the extension names no form, a file exists and `overwrite` is false, or the file can't be created. The same if SQLite is
    /// to write the file and can't do so safely there.
    pub fn create(path: PathBuf, overwrite: bool) -> Result<Self, NoTrackingFile> {
        let form = super::form_of(&path).ok_or(NoTrackingFile::Form)?;
        Self::create_as(path, overwrite, form.is_database)
    }

    /// Creates an empty file of lines as [`Self::create`] does, but with any extension.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn create_lines(path: PathBuf, overwrite: bool) -> Result<Self, NoTrackingFile> {
        let is_database = false;
        Self::create_as(path, overwrite, is_database)
    }

    /// Creates the file. `is_database`: SQLite will write it. So no other user may be able to replace files in its directory, or to
    /// write to it, its journal must be this user's, and the file system must have locks.
    fn create_as(path: PathBuf, overwrite: bool, is_database: bool) -> Result<Self, NoTrackingFile> {
        if let Some(directory) = path.parent().filter(|_| is_database) {
            User::this().trusting_groups().resolve(directory)?;
        }
        let check = |file: &File| -> Result<(), NoTrackingFile> {
            if is_database {
                database::check_journal(&path)?;
                check_locks(file)?;
            }
            Ok(())
        };
        let name = path.file_name().ok_or(io::ErrorKind::IsADirectory).map_err(io::Error::from)?;
        let directory = directory_of(&path)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let forbidden = if is_database { OTHERS_WRITE } else { 0 };
        let file = match openat(&directory, name, flags, Mode::from_raw_mode(0o666 & !forbidden)) {
            Ok(file) => File::from(file),
            Err(Errno::EXIST) if !overwrite => return Err(NoTrackingFile::Exists),
            Err(Errno::EXIST) => replace_checked(&directory, name, check)?,
            Err(error) => return Err(io::Error::from(error).into()),
        };
        let found = file.metadata()?;
        // A replaced file has the mode of the old one.
        if found.mode() & forbidden != 0 {
            file.set_permissions(Permissions::from_mode(found.mode() & !forbidden))?;
        }
        let target = stream_file(&path, &found);
        let made = Self { file, directory, target, is_database };
        // If the check fails, the drop of `made` removes the empty file.
        check(&made.file)?;
        if is_database {
            database::make_journal(&path)?;
        }
        Ok(made)
    }

    /// The path by which collectors open the file, and the inode that they must find there.
    pub fn target(&self) -> StreamFile {
        self.target.clone()
    }
}

/// Replaces the file `name` with a new empty one, which it returns, if that passes `check`. Otherwise the old file stays.
fn replace_checked(
    directory: &OwnedFd,
    name: &OsStr,
    check: impl Fn(&File) -> Result<(), NoTrackingFile>,
) -> Result<File, NoTrackingFile> {
    // `replace` can return I/O errors only, so `checked` keeps the error of the check.
    let (mut made, mut checked) = (None, Ok(()));
    let replaced = replace(directory.as_fd(), name, FOR_ALL, |file| {
        checked = check(file);
        made = Some(file.try_clone()?);
        match &checked {
            Ok(()) => Ok(()),
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    });
    checked?;
    replaced?;
    Ok(made.ok_or(io::ErrorKind::NotFound).map_err(io::Error::from)?)
}

/// Checks that a new file can be locked as SQLite locks (fcntl(2), F_SETLK).
fn check_locks(file: &File) -> Result<(), NoTrackingFile> {
    for operation in [FlockOperation::NonBlockingLockExclusive, FlockOperation::NonBlockingUnlock] {
        fcntl_lock(file, operation).map_err(NoTrackingFile::NoLocks)?;
    }
    Ok(())
}

impl Drop for TrackingFile {
    /// Removes the file if it is empty: a run that was not tracked has no rows.
    fn drop(&mut self) {
        let is_empty = self.file.metadata().is_ok_and(|found| found.len() == 0);
        let Some(name) = self.target.path.file_name().filter(|_| is_empty) else { return };
        let found = statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(|found| (found.st_dev, found.st_ino) == (self.target.device, self.target.inode)) {
            // An empty file that can't be removed does no harm.
            let _ = unlinkat(&self.directory, name, AtFlags::empty());
            if self.is_database {
                database::remove_journal(&self.target.path);
            }
        }
    }
}

/// Opens the file that the launcher made, for a collector to write it.
///
/// # Errors
/// If it can't be opened, or another file has its name by now.
pub(super) fn open(target: &StreamFile) -> io::Result<File> {
    let name = target.path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    let directory = directory_of(&target.path)?;
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(openat(&directory, name, flags, Mode::empty())?);
    check_same(target, &file.metadata()?)?;
    Ok(file)
}
