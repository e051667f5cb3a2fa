//! The directory of bundles: a bundle gets its name when it is whole, and the oldest are removed.
//!
//! Root may track another user's command, and that user may own the directory. So each directory is opened once, without a
//! symbolic link, and what is made or removed in it is named by its descriptor.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, mkdirat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::MANIFEST;
use crate::model::sorting::Sorting;
use crate::sinks::output::directory_of;
use crate::sys::files::{names, open_directory};

/// Beginning of a bundle's name. The time follows, so that names sort by time, and then the pid of the maker.
const PREFIX: &str = "gpu-track.";
/// End of the name of a bundle that is not whole.
const UNFINISHED: &str = ".unfinished";
/// An unfinished bundle that has not changed for this time was left by a killed process.
const LONGEST_WRITING: Duration = Duration::from_secs(3600);

/// A bundle that is being written. If it is dropped before [`Self::finish`], nothing of it is left.
pub(super) struct Bundle {
    /// The path of the directory of bundles.
    directory: PathBuf,
    /// That directory, open.
    parent: OwnedFd,
    /// The name of the whole bundle.
    name: String,
    /// The bundle's own directory, whatever name it has by now.
    own: File,
    is_finished: bool,
}

impl Bundle {
    /// Makes the directory of a new bundle, whose name ends in [`UNFINISHED`] for now. Only its owner may read it. `directory`:
    /// that of all bundles, as [`make`] returns it.
    ///
    /// # Errors
    /// If it can't be made, or the path has a symbolic link by now.
    pub(super) fn begin(directory: &Path) -> io::Result<Self> {
        let parent = open(directory)?;
        let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        let time: String = time.chars().filter(|c| !"-:Z".contains(*c)).collect();
        let name = format!("{PREFIX}{time}.{}", std::process::id());
        let unfinished = unfinished(&name);
        mkdirat(&parent, unfinished.as_str(), Mode::RWXU)?;
        let own = open_directory(&parent, &unfinished).inspect_err(|_| {
            let _ = unlinkat(&parent, unfinished.as_str(), AtFlags::REMOVEDIR);
        })?;
        Ok(Self { directory: directory.to_owned(), parent, name, own, is_finished: false })
    }

    /// Writes a new file into the bundle.
    ///
    /// # Errors
    /// If it can't be written, or exists.
    pub(super) fn write_file(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        File::from(openat(&self.own, name, flags, Mode::RUSR | Mode::WUSR)?).write_all(content)
    }

    /// Renames the bundle to its final name, and returns its path. Then removes the oldest others, until at most `most` bundles of
    /// `most_bytes` together are left.
    ///
    /// # Errors
    /// If it can't be renamed. Bundles that can't be removed stay, which is no error.
    pub(super) fn finish(mut self, most: usize, most_bytes: u64) -> io::Result<PathBuf> {
        renameat(&self.parent, unfinished(&self.name).as_str(), &self.parent, self.name.as_str())?;
        self.is_finished = true;
        let _ = remove_oldest(&self.parent, &self.name, most, most_bytes);
        Ok(self.directory.join(&self.name))
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = remove(&self.parent, &unfinished(&self.name), &self.own);
        }
    }
}

/// Makes the directory of bundles if it is missing. Returns its path with every symbolic link resolved. Links in the path are the
/// user's own choice; from here on no link is followed.
///
/// # Errors
/// If it can't be made, or something else has its name.
pub(super) fn make(directory: &Path) -> io::Result<PathBuf> {
    DirBuilder::new().mode(0o700).recursive(true).create(directory)?;
    fs::canonicalize(directory)
}

/// Opens the directory of bundles by the path that [`make`] returned. If it was removed since, makes it again.
fn open(directory: &Path) -> io::Result<OwnedFd> {
    // `directory_of` opens the directory above a path, so any name below this one will do.
    let opened = || directory_of(&directory.join(PREFIX));
    match (opened(), directory.file_name()) {
        (Err(error), Some(name)) if error.kind() == ErrorKind::NotFound => {
            match mkdirat(directory_of(directory)?, name, Mode::RWXU) {
                // Another run has just made it.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            opened()
        }
        (opened, _) => opened,
    }
}

/// The name of a bundle until it is whole.
fn unfinished(name: &str) -> String {
    format!("{name}{UNFINISHED}")
}

/// Removes the unfinished bundles that killed processes left. Then removes the oldest bundles until there are at most `most`, of at
/// most `most_bytes` together, but not the one named `newest`.
fn remove_oldest(parent: &OwnedFd, newest: &str, most: usize, most_bytes: u64) -> io::Result<()> {
    let (mut count, mut bytes) = (0, 0);
    let mut others = Vec::new();
    for name in names(&open_directory(parent, ".")?)? {
        let Some(found) = recognize(parent, &name) else { continue };
        if name.ends_with(UNFINISHED) {
            let _ = remove(parent, &name, &found.own);
            continue;
        }
        (count, bytes) = (count + 1, bytes + found.bytes);
        if name != newest {
            others.push((name, found.bytes));
        }
    }
    others.order_by(Ord::cmp);
    for (name, length) in others {
        if count <= most && bytes <= most_bytes {
            break;
        }
        (count, bytes) = (count - 1, bytes - length);
        // A reader finds the whole bundle or none, because it loses its name before its files.
        let hidden = unfinished(&name);
        if renameat(parent, name.as_str(), parent, hidden.as_str()).is_ok()
            && let Ok(own) = open_directory(parent, &hidden)
        {
            let _ = remove(parent, &hidden, &own);
        }
    }
    Ok(())
}

/// A bundle in the directory.
struct Found {
    own: File,
    /// Length of all its files.
    bytes: u64,
}

/// Opens the directory `name` and adds up its bytes, if it is a bundle of this user. The bundle can be whole, or one that a killed
/// process left unfinished. `None`: its name, owner, age or files are those of something else, or it can't be read.
fn recognize(parent: &OwnedFd, name: &str) -> Option<Found> {
    let is_unfinished = name.ends_with(UNFINISHED);
    if !has_form(name.strip_suffix(UNFINISHED).unwrap_or(name)) {
        return None;
    }
    let own = open_directory(parent, name).ok()?;
    let found = own.metadata().ok()?;
    let is_old = || found.modified().ok()?.elapsed().ok().map(|age| age > LONGEST_WRITING);
    let files = names(&own).ok()?;
    let is_bundle =
        if is_unfinished { is_old() == Some(true) } else { files.iter().any(|file| file == MANIFEST) };
    if !is_bundle || found.uid() != rustix::process::geteuid().as_raw() {
        return None;
    }
    let mut bytes = 0;
    for file in files {
        let file = statat(&own, file.as_str(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
        // A bundle has no directories.
        if FileType::from_raw_mode(file.st_mode) != FileType::RegularFile {
            return None;
        }
        bytes += file.st_size.unsigned_abs();
    }
    Some(Found { own, bytes })
}

/// Whether a name has the form of those of [`Bundle::begin`]: `gpu-track.20261126T224500.123.PID`.
fn has_form(name: &str) -> bool {
    let is_number =
        |text: &str, length: usize| text.len() == length && text.bytes().all(|b| b.is_ascii_digit());
    let parts: Vec<&str> = name.strip_prefix(PREFIX).unwrap_or_default().split(['T', '.']).collect();
    let [date, time, millis, pid] = parts[..] else { return false };
    is_number(date, 8) && is_number(time, 6) && is_number(millis, 3) && pid.parse::<u32>().is_ok()
}

/// Removes the files of a bundle, and then the bundle.
fn remove(parent: &OwnedFd, name: &str, own: &File) -> io::Result<()> {
    for file in names(own)? {
        unlinkat(own, file.as_str(), AtFlags::empty())?;
    }
    Ok(unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let mut names = crate::sys::files::names(File::open(directory).unwrap()).unwrap();
        names.sort();
        names
    }

    /// The name of a bundle of this second.
    fn name(second: u32) -> String {
        format!("gpu-track.20261126T2245{second:02}.123.7")
    }

    fn bundle_of(directory: &Path, name: &str, bytes: usize) {
        fs::create_dir(directory.join(name)).unwrap();
        fs::write(directory.join(name).join(MANIFEST), vec![b'x'; bytes]).unwrap();
    }

    fn pruned(path: &Path, newest: &str, most: usize, most_bytes: u64) -> Vec<String> {
        remove_oldest(&open(path).unwrap(), newest, most, most_bytes).unwrap();
        names(path)
    }

    // Requirement: RECORD-2
    #[test]
    fn oldest_bundles_are_removed_but_never_the_newest() {
        let directory = tempfile::tempdir().unwrap();
        let path = &make(directory.path()).unwrap();
        let all = [1, 2, 3].map(name);
        all.iter().for_each(|name| bundle_of(path, name, 100));
        assert_eq!(pruned(path, &all[2], 2, 1000), all[1..]);
        assert_eq!(pruned(path, &all[2], 2, 50), all[2..]);
        bundle_of(path, &all[1], 100);
        // The clock was set back before the newest was made.
        assert_eq!(pruned(path, &all[1], 1, 1000), all[1..2]);
    }

    // Requirement: RECORD-2
    #[test]
    fn what_is_no_bundle_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = &make(directory.path()).unwrap();
        let [of_user, without_manifest, with_directory, file, link, newest] = [1, 2, 3, 4, 5, 6].map(name);
        let others = [
            "gpu-track.abcdefgh",
            "gpu-track.1.1",
            "gpu-track.20261126T2245.123.7",
            "gpu-track.20261126T224500.123.x",
            "notes",
        ];
        others.iter().for_each(|name| bundle_of(path, name, 1));
        for name in [&of_user, &with_directory, &newest] {
            bundle_of(path, name, 1);
        }
        fs::create_dir(path.join(&without_manifest)).unwrap();
        fs::create_dir(path.join(&with_directory).join("more")).unwrap();
        fs::write(path.join(&file), "a file").unwrap();
        symlink("notes", path.join(&link)).unwrap();
        let before = names(path);
        let is_removed = if rustix::process::geteuid().is_root() {
            chown(path.join(&of_user), Some(12345), None).unwrap();
            vec![]
        } else {
            println!("skipped in part: needs root, for a bundle of another user");
            vec![of_user]
        };
        let left: Vec<String> = before.into_iter().filter(|name| !is_removed.contains(name)).collect();
        assert_eq!(pruned(path, &newest, 1, 1), left);
    }

    // Requirement: RECORD-2
    #[test]
    fn what_a_killed_collector_left_is_removed_after_an_hour() {
        let directory = tempfile::tempdir().unwrap();
        let path = &make(directory.path()).unwrap();
        let [old, young] = [1, 2].map(|second| unfinished(&name(second)));
        [&old, &young].iter().for_each(|name| fs::create_dir(path.join(name)).unwrap());
        fs::write(path.join(&old).join("report.json"), "x").unwrap();
        File::open(path.join(&old)).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        bundle_of(path, &name(3), 1);
        assert_eq!(pruned(path, &name(3), 1, 1), [young, name(3)]);
    }

    // Requirement: RECORD-2
    #[test]
    fn bundle_is_there_as_a_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = make(&directory.path().join("deep/er")).unwrap();
        let mut bundle = Bundle::begin(&path).unwrap();
        bundle.write_file("a", b"b").unwrap();
        assert!(has_form(names(&path)[0].strip_suffix(UNFINISHED).unwrap()));
        assert!(bundle.write_file("a", b"c").is_err(), "nothing is replaced");
        drop(bundle);
        assert!(names(&path).is_empty());
        // The directory was removed during the run.
        fs::remove_dir(&path).unwrap();
        let mut bundle = Bundle::begin(&path).unwrap();
        bundle.write_file("a", b"b").unwrap();
        let whole = bundle.finish(1, 0).unwrap();
        assert!(has_form(&names(&path)[0]) && whole == path.join(&names(&path)[0]));
    }

    /// Root tracks another user's command, and that user owns the directory of bundles.
    // Requirement: RECORD-3
    #[test]
    fn links_that_are_put_in_the_place_of_a_directory_are_not_followed() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let (ours, theirs) = (make(&top.join("ours")).unwrap(), make(&top.join("theirs")).unwrap());
        let mut bundle = Bundle::begin(&ours).unwrap();
        let unfinished = ours.join(&names(&ours)[0]);
        fs::rename(&unfinished, ours.join("away")).unwrap();
        symlink(&theirs, &unfinished).unwrap();
        bundle.write_file("a", b"b").unwrap();
        assert_eq!((names(&theirs), names(&ours.join("away"))), (vec![], vec!["a".to_owned()]));
        fs::write(theirs.join("a"), "").unwrap();
        drop(bundle);
        assert_eq!(names(&theirs), ["a"], "nothing is removed behind the link");
        fs::rename(&ours, top.join("gone")).unwrap();
        symlink(&theirs, &ours).unwrap();
        assert!(Bundle::begin(&ours).is_err());
        assert_eq!(names(&theirs), ["a"]);
    }
}
