//! The directory of bundles: a bundle gets its final name when it is whole, and the oldest bundles are removed.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Begin of a bundle's name. The time follows, so that names are in the order of time, then the pid of the maker.
const PREFIX: &str = "gpu-track.";
/// End of the name of a bundle that is not whole.
const UNFINISHED: &str = ".unfinished";
/// An unfinished bundle that has not changed for this time was left by a killed process.
const LONGEST_WRITING: Duration = Duration::from_secs(3600);

/// A bundle that is being written. If it is dropped before [`Self::finish`], nothing of it is left.
pub(super) struct Bundle {
    whole: PathBuf,
    unfinished: PathBuf,
    is_finished: bool,
}

impl Bundle {
    /// Makes the bundle's directory, which only its owner may read, and the directory of bundles where that is missing.
    pub(super) fn begin(directory: &Path) -> io::Result<Self> {
        make(directory)?;
        let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        let time: String = time.chars().filter(|c| !"-:Z".contains(*c)).collect();
        let name = format!("{PREFIX}{time}.{}", std::process::id());
        let unfinished = directory.join(format!("{name}{UNFINISHED}"));
        DirBuilder::new().mode(0o700).create(&unfinished)?;
        Ok(Self { whole: directory.join(name), unfinished, is_finished: false })
    }

    /// Adds a file, which must not exist.
    pub(super) fn add(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        let path = self.unfinished.join(name);
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(content)
    }

    /// Gives the bundle its final name, and returns its path.
    pub(super) fn finish(mut self) -> io::Result<PathBuf> {
        fs::rename(&self.unfinished, &self.whole)?;
        self.is_finished = true;
        Ok(self.whole.clone())
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = fs::remove_dir_all(&self.unfinished);
        }
    }
}

/// Makes the directory of bundles, where it is missing.
fn make(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).recursive(true).create(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Removes the oldest bundles until there are `most` at most, of `most_bytes` together at most, but never the newest. Also removes
/// unfinished bundles that killed processes left.
pub(super) fn remove_oldest(directory: &Path, most: usize, most_bytes: u64) -> io::Result<()> {
    let mut bundles: Vec<(PathBuf, u64)> = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        if !name.to_string_lossy().starts_with(PREFIX) || !entry.file_type()?.is_dir() {
            continue;
        }
        if !name.to_string_lossy().ends_with(UNFINISHED) {
            bundles.push((path.clone(), size(&path)));
        } else if age(&entry).is_some_and(|age| age > LONGEST_WRITING) {
            remove(&path)?;
        }
    }
    bundles.sort();
    let mut count = bundles.len();
    let mut bytes: u64 = bundles.iter().map(|(_, bytes)| bytes).sum();
    for (path, size) in bundles {
        if count <= 1 || (count <= most && bytes <= most_bytes) {
            break;
        }
        remove(&path)?;
        count -= 1;
        bytes -= size;
    }
    Ok(())
}

/// Removes a bundle, unless another run has done so meanwhile.
fn remove(bundle: &Path) -> io::Result<()> {
    match fs::remove_dir_all(bundle) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Gives how long ago an entry was changed. `None`: it is gone, or its time is in the future.
fn age(entry: &fs::DirEntry) -> Option<Duration> {
    entry.metadata().ok()?.modified().ok()?.elapsed().ok()
}

/// Adds up the lengths of the files of a bundle.
fn size(bundle: &Path) -> u64 {
    let files = fs::read_dir(bundle).into_iter().flatten().flatten();
    files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn bundle_of(directory: &Path, name: &str, bytes: usize) {
        fs::create_dir(directory.join(name)).unwrap();
        fs::write(directory.join(name).join("x"), vec![b'x'; bytes]).unwrap();
    }

    // Requirement: RECORD-2
    #[test]
    fn oldest_bundles_are_removed_but_never_the_newest_or_what_is_no_bundle() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        for name in ["gpu-track.1.1", "gpu-track.2.1", "gpu-track.3.1", "notes"] {
            bundle_of(path, name, 100);
        }
        fs::write(path.join("gpu-track.0.1"), "a file").unwrap();
        remove_oldest(path, 2, 1000).unwrap();
        assert_eq!(names(path), ["gpu-track.0.1", "gpu-track.2.1", "gpu-track.3.1", "notes"]);
        remove_oldest(path, 2, 50).unwrap();
        assert_eq!(names(path), ["gpu-track.0.1", "gpu-track.3.1", "notes"]);
    }

    // Requirement: RECORD-2
    #[test]
    fn bundle_is_there_as_a_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/er");
        let mut bundle = Bundle::begin(&path).unwrap();
        bundle.add("a", b"b").unwrap();
        assert!(names(&path)[0].ends_with(UNFINISHED));
        assert!(bundle.add("a", b"c").is_err(), "nothing is replaced");
        drop(bundle);
        assert!(names(&path).is_empty());
        let mut bundle = Bundle::begin(&path).unwrap();
        bundle.add("a", b"b").unwrap();
        bundle.finish().unwrap();
        assert!(names(&path).len() == 1 && !names(&path)[0].ends_with(UNFINISHED));
    }
}
