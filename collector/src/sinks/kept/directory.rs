//! The directory of kept reports: one JSON file for each run, named by the time at which it was kept.

use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{AtFlags, CWD, Mode, statat, unlinkat};

use super::KEEPER;
use crate::model::config::Keep;
use crate::sinks::output::{TEMPORARY_PREFIX, replace};
use crate::sys::files::{names, open_directory};
use crate::sys::given_file::{self, MOST_OF_REPORT};
use crate::sys::proc_fs::ProcRoot;
use crate::sys::safe_path::{Unsafe, User};

/// How long a keeper (the process that writes a kept report) lives at most. An older temporary file was left by a killed keeper.
pub const KEEPER_LIFE: Duration = Duration::from_secs(60);
/// How long a reader waits for keepers that have not ended.
const READER_PATIENCE: Duration = Duration::from_secs(2);
/// How often a reader looks for keepers.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// A kept report.
#[derive(Debug)]
pub struct KeptReport {
    /// Its file.
    pub path: PathBuf,
    /// What is in it.
    pub json: String,
}

/// Opens the directory of kept reports, and creates it if the home directory exists.
///
/// `None`: the home directory is missing, another user could redirect the path or write to the directory, or it can't be opened.
pub(in crate::sinks) fn open_or_create(keep: &Keep) -> Option<OwnedFd> {
    if !keep.home.is_dir() {
        return None;
    }
    let path = resolve_or_create(&keep.directory).ok()?;
    let directory = open_directory(CWD, &path).ok()?;
    // Looks at the directory that was opened, whatever has its name by now. Only its owner may write to it.
    let found = directory.metadata().ok()?;
    (found.uid() == user().uid() && found.mode() & 0o022 == 0).then(|| directory.into())
}

/// Returns the path, without links, of the directory of kept reports or of one below it. Creates it if it is missing.
///
/// # Errors
/// If it can't be created, or another user could redirect its path.
pub fn resolve_or_create(directory: &Path) -> Result<PathBuf, Unsafe> {
    user().check_links(directory)?;
    user().resolve_or_create(directory, 0o700)
}

/// The user that this process runs as, for checks of paths. Groups may write to that user's directories, as they can to a
/// home directory under umask 002. They may not if the user is root.
fn user() -> User {
    User::this().trusting_groups()
}

/// Writes a report to a new file in the directory, for this user alone, and returns its name. Then removes the oldest reports, so that
/// `most` are left, and the files of killed keepers. `extension`: the end of the name.
///
/// # Errors
/// If it can't be written.
pub fn write(
    report: &mut impl Read,
    directory: &OwnedFd,
    extension: &str,
    most: usize,
) -> io::Result<String> {
    let now = SystemTime::now();
    let time = humantime::format_rfc3339_micros(now).to_string();
    let time: String = time.chars().filter(|c| !"-:Z".contains(*c)).collect();
    let name = format!("{time}-{}.{extension}", std::process::id());
    replace(directory.as_fd(), name.as_ref(), Mode::RUSR | Mode::WUSR, |file| {
        io::copy(report, file).map(drop)
    })?;
    // The names to remove. Reports come oldest first.
    let mut names = reports(directory)?;
    names.truncate(names.len().saturating_sub(most));
    names.extend(abandoned(directory, now)?);
    for name in names {
        // Another keeper may have removed it.
        let _ = unlinkat(directory, name.as_str(), AtFlags::empty());
    }
    Ok(name)
}

/// Reads the newest report, after a short wait for this user's keepers to end. `None`: there is no report.
///
/// # Errors
/// If the directory or the report can't be read.
pub fn newest(keep: &Keep) -> io::Result<Option<KeptReport>> {
    await_keepers();
    user().check_links(&keep.directory).map_err(io::Error::other)?;
    let path = match user().resolve(&keep.directory) {
        Err(Unsafe::Io(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        resolved => resolved.map_err(io::Error::other)?,
    };
    let directory = open_directory(CWD, &path)?.into();
    let Some(name) = reports(&directory)?.pop() else { return Ok(None) };
    let path = path.join(name);
    let json = given_file::read_text(&path, MOST_OF_REPORT).map_err(io::Error::other)?;
    Ok(Some(KeptReport { path, json }))
}

/// Waits at most [`READER_PATIENCE`] while this user has keepers. The keeper of a run that ended just now may still write.
fn await_keepers() {
    let end = Instant::now() + READER_PATIENCE;
    while Instant::now() < end && is_any_keeper() {
        thread::sleep(LOOK_INTERVAL);
    }
}

/// Whether this user has a keeper. /proc shows a user's own processes even where it hides others (hidepid).
fn is_any_keeper() -> bool {
    let (root, uid) = (ProcRoot::default(), user().uid());
    root.pids().into_iter().any(|pid| {
        let is_own = fs::metadata(root.path(pid, "")).is_ok_and(|found| found.uid() == uid);
        let is_keeper = |words: Vec<u8>| words.split(|byte| *byte == 0).next() == Some(KEEPER.as_bytes());
        is_own && root.read(pid, "cmdline").is_some_and(is_keeper)
    })
}

/// The names of the reports, oldest first.
fn reports(directory: &OwnedFd) -> io::Result<Vec<String>> {
    let mut names = names(directory)?;
    names.retain(|name| is_kept_name(name));
    names.sort();
    Ok(names)
}

/// Whether a name has the form of those of [`write`]: `20261123T224500.123456-PID.json`, or with another extension.
fn is_kept_name(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some((time, pid)) = name.rsplit_once('.').and_then(|(stem, _)| stem.split_once('-')) else {
        return false;
    };
    is_number(pid) && time.split(['T', '.']).count() == 3 && time.split(['T', '.']).all(is_number)
}

/// The names of the temporary files that killed keepers left: those older than [`KEEPER_LIFE`].
fn abandoned(directory: &OwnedFd, now: SystemTime) -> io::Result<Vec<String>> {
    let now_s = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let is_old = |name: &str| {
        let Ok(found) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { return false };
        let written_s = u64::try_from(found.st_mtime).unwrap_or_default();
        written_s.saturating_add(KEEPER_LIFE.as_secs()) < now_s
    };
    let mut names = names(directory)?;
    names.retain(|name| name.starts_with(TEMPORARY_PREFIX) && is_old(name));
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::fs::{File, Permissions};
    use std::io::{Seek, Write};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn keep(home: &Path) -> Keep {
        Keep { home: home.to_owned(), directory: home.join(".local/state/gpu-track"), most: 2 }
    }

    fn kept(directory: &OwnedFd, text: &str, most: usize) {
        let mut report = tempfile::tempfile().unwrap();
        report.write_all(text.as_bytes()).unwrap();
        report.rewind().unwrap();
        write(&mut report, directory, "json", most).unwrap();
    }

    // Requirement: OUT-28
    #[test]
    fn newest_are_kept_and_what_a_killed_keeper_left_is_removed() {
        let home = tempfile::tempdir().unwrap();
        let keep = keep(home.path());
        assert!(newest(&keep).unwrap().is_none());
        let directory = open_or_create(&keep).unwrap();
        assert_eq!(fs::metadata(&keep.directory).unwrap().mode() & 0o777, 0o700);
        let [old, young] = ["1", "2"].map(|end| keep.directory.join(format!("{TEMPORARY_PREFIX}{end}")));
        fs::write(&young, "").unwrap();
        File::create(&old).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        fs::write(keep.directory.join("notes.json"), "").unwrap();
        for text in ["first", "second", "third"] {
            kept(&directory, text, keep.most);
            assert_eq!(newest(&keep).unwrap().unwrap().json, text);
        }
        assert_eq!(reports(&directory).unwrap().len(), 2);
        assert!(young.exists() && !old.exists() && keep.directory.join("notes.json").exists());
    }

    // Requirement: OUT-28
    #[test]
    fn directory_is_of_this_user_and_no_other_wrote_its_path() {
        let home = tempfile::tempdir().unwrap();
        let keep = keep(home.path());
        fs::create_dir_all(&keep.directory).unwrap();
        for (mode, is_fit) in [(0o700, true), (0o755, true), (0o770, false), (0o777, false)] {
            fs::set_permissions(&keep.directory, Permissions::from_mode(mode)).unwrap();
            assert_eq!(open_or_create(&keep).is_some(), is_fit, "{mode:o}");
            assert_eq!(fs::metadata(&keep.directory).unwrap().mode() & 0o777, mode, "it is left as it is");
        }
        let no_home = Keep { home: home.path().join("absent"), ..keep.clone() };
        assert!(open_or_create(&no_home).is_none());
        if user().uid() != 0 {
            println!("skipped: needs root, for a directory of another user");
            return;
        }
        fs::set_permissions(&keep.directory, Permissions::from_mode(0o700)).unwrap();
        // Another user's home, as in the environment of `sudo -E`.
        chown(home.path(), Some(12345), None).unwrap();
        assert!(open_or_create(&keep).is_none());
        chown(home.path(), Some(0), None).unwrap();
        // Another user's link to a directory of this one.
        let other = tempfile::tempdir().unwrap();
        fs::set_permissions(other.path(), Permissions::from_mode(0o700)).unwrap();
        fs::remove_dir(&keep.directory).unwrap();
        symlink(other.path(), &keep.directory).unwrap();
        assert!(open_or_create(&keep).is_some(), "a link of this user");
        std::os::unix::fs::lchown(&keep.directory, Some(12345), None).unwrap();
        assert!(open_or_create(&keep).is_none());
        assert!(newest(&keep).is_err());
    }
}
