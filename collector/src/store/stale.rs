//! Sessions that were left behind: launcher and collector were killed at once. Their two files stay in shared memory,
//! where nobody holds their locks any more, in whatever pid namespace.
//!
//! They can be turned into a report (see [`crate::recover`]) until the next run of the same user removes them: they take
//! up memory.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::sys::segment::named::NamedFile;

const STATE_SUFFIX: &str = ".state";

fn prefix(uid: u32) -> String {
    format!("gpu-track.{uid}.")
}

/// Names for the segment and the state file of a new session.
#[must_use]
pub fn new_names(dir: &Path, uid: u32, launcher_pid: u32, random: u64) -> (PathBuf, PathBuf) {
    let name = format!("{}{launcher_pid}.{random:016x}", prefix(uid));
    (dir.join(&name), dir.join(name + STATE_SUFFIX))
}

/// A session that was left behind. Nobody else will take it while this lives.
#[derive(Debug)]
pub struct Stale {
    /// The segment's name, be it there or not.
    pub path: PathBuf,
    /// The segment.
    pub segment: Option<NamedFile>,
    /// The state file.
    pub state: Option<NamedFile>,
    /// When it was last written to.
    pub written_at: SystemTime,
}

impl Stale {
    /// All of this user's, the oldest first.
    #[must_use]
    pub fn all(dir: &Path, uid: u32) -> Vec<Self> {
        let prefix = prefix(uid);
        let names: BTreeSet<String> = std::fs::read_dir(dir)
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name.starts_with(&prefix))
            .map(|name| name.strip_suffix(STATE_SUFFIX).map(str::to_owned).unwrap_or(name))
            .collect();
        let mut all: Vec<Self> = names.iter().filter_map(|name| Self::at(dir, name, uid).ok()).collect();
        all.sort_by_key(|stale| stale.written_at);
        all
    }

    fn at(dir: &Path, name: &str, uid: u32) -> io::Result<Self> {
        let path = dir.join(name);
        let left = |path: &Path| match NamedFile::left_behind(path, uid) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        let (segment, state) = (left(&path)?, left(&dir.join(format!("{name}{STATE_SUFFIX}")))?);
        // The segment is written through its mapping, which dates nothing.
        let dated = state.as_ref().or(segment.as_ref()).ok_or(io::ErrorKind::NotFound)?;
        let written_at = std::fs::File::from(dated.file().try_clone_to_owned()?).metadata()?.modified()?;
        Ok(Self { path, segment, state, written_at })
    }

    /// The pid of the launcher, as its name tells it.
    #[must_use]
    pub fn launcher_pid(&self) -> Option<u32> {
        self.path.file_name()?.to_str()?.rsplit('.').nth(1)?.parse().ok()
    }

    /// Remove its files.
    pub fn remove(&self) {
        for file in [&self.segment, &self.state].into_iter().flatten() {
            // It is gone, or somebody else's.
            let _ = file.unlink();
        }
    }
}

/// Remove all of this user's.
pub fn remove_all(dir: &Path, uid: u32) {
    Stale::all(dir, uid).iter().for_each(Stale::remove);
}

/// For tests: asks until there is an answer. A child of another test has a copy of each lock until its exec.
#[cfg(test)]
pub fn once_unlocked<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = std::time::Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begun.elapsed().as_secs() < 60, "what is left is not found");
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::store::state_file::StateFile;

    /// A session of the user whose tests these are.
    fn session(dir: &Path, random: u64) -> (PathBuf, StateFile) {
        let (segment, state) = new_names(dir, uid(), 4321, random);
        File::create(&segment).unwrap();
        let state = StateFile::create(&state).unwrap();
        state.save_run(b"known").unwrap();
        (segment, state)
    }

    fn uid() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn names(dir: &Path) -> Vec<PathBuf> {
        Stale::all(dir, uid()).into_iter().map(|stale| stale.path).collect()
    }

    #[test]
    fn only_what_nobody_uses_is_stale() {
        let dir = tempfile::tempdir().unwrap();
        let (used, lock) = session(dir.path(), 1);
        let (left, _) = session(dir.path(), 2);
        File::create(dir.path().join("other")).unwrap();
        File::create(dir.path().join(format!("gpu-track.{}.4321.1", uid() + 1))).unwrap();
        // Not even where the lock is on one of the two only.
        drop(once_unlocked(|| NamedFile::left_behind(&used, uid()).ok()));
        let all =
            |count| once_unlocked(|| Some(Stale::all(dir.path(), uid())).filter(|all| all.len() == count));
        let only = all(1).remove(0);
        assert_eq!((&only.path, only.launcher_pid()), (&left, Some(4321)));
        drop((only, lock));
        // Who has it keeps others away.
        let held = all(2);
        assert!(names(dir.path()).is_empty());
        drop(held);
        let here = || std::fs::read_dir(dir.path()).unwrap().count();
        once_unlocked(|| {
            remove_all(dir.path(), uid());
            (here() <= 2).then_some(())
        });
        assert_eq!(here(), 2, "the others' stay");
    }

    #[test]
    fn links_and_other_users_files_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (segment, state) = new_names(dir.path(), uid(), 1, 1);
        File::create(dir.path().join("target")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("target"), &state).unwrap();
        File::create(&segment).unwrap();
        assert!(names(dir.path()).is_empty());
        assert_eq!(
            NamedFile::left_behind(&segment, uid() + 1).unwrap_err().kind(),
            io::ErrorKind::PermissionDenied
        );
    }
}
