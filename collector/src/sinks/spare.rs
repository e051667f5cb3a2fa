//! Writes a report that can't be written to its own place to a spare one. That is a directory of this user's, or else that of
//! temporary files. No other user can read it there, or put another file in its place.

use std::fs::{DirBuilder, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, openat};

use super::kept::directory;
use super::output::directory_of;
use crate::model::config::{Keep, SparePlaces};
use crate::sys::safe_path::User;

/// How long each place may take. It can be on a file system that does not answer, and the run must end.
const PATIENCE: Duration = Duration::from_secs(1);

/// Writes a report, and returns its path. `extension`: the end of its name. `None`: it can't be written to any of these places.
pub(super) fn write(places: &SparePlaces, text: &str, extension: &'static str) -> Option<PathBuf> {
    let in_state = || {
        let (keep, text) = (places.state.clone()?, text.to_owned());
        in_time(move || to_state(&keep, &text, extension))
    };
    let in_temporary = || {
        let (directory, text) = (places.temporary.clone(), text.to_owned());
        in_time(move || to_temporary(&directory, &text, extension).ok())
    };
    in_state().or_else(in_temporary)
}

/// Runs `make` in a thread, and returns its result if it ends within [`PATIENCE`].
fn in_time(make: impl FnOnce() -> Option<PathBuf> + Send + 'static) -> Option<PathBuf> {
    let (sender, made) = mpsc::sync_channel(1);
    thread::Builder::new().spawn(move || sender.send(make())).ok()?;
    made.recv_timeout(PATIENCE).ok()?
}

/// Writes the report to the user's directory, from which the oldest reports are removed.
fn to_state(keep: &Keep, text: &str, extension: &str) -> Option<PathBuf> {
    let directory = directory::open_or_create(keep)?;
    let name = directory::write(&mut text.as_bytes(), &directory, extension, keep.most).ok()?;
    Some(keep.directory.join(name))
}

/// Writes the report to a new directory in that of temporary files.
fn to_temporary(temporary: &Path, text: &str, extension: &str) -> io::Result<PathBuf> {
    let temporary = User::this().trusting_groups().resolve(temporary).map_err(io::Error::other)?;
    // Another user could have made a name that can be guessed.
    let random = RandomState::new().hash_one(std::process::id());
    let path = temporary.join(format!("gpu-track.{random:016x}/report.{extension}"));
    let directory = path.parent().unwrap_or(&temporary);
    DirBuilder::new().mode(0o700).create(directory)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made =
        openat(directory_of(&path)?, path.file_name().unwrap_or_default(), flags, Mode::RUSR | Mode::WUSR);
    match made.map_err(io::Error::from).and_then(|file| File::from(file).write_all(text.as_bytes())) {
        Ok(()) => Ok(path),
        Err(error) => {
            // A part of a report is of no use.
            let _ = std::fs::remove_dir_all(directory);
            Err(error)
        }
    }
}
