//! Stale sessions: launcher and collector were both killed, and the session's files remain in shared memory.
//!
//! The files of a live session are locked, and a lock shows in all pid namespaces. A report can be made of a stale session (see
//! [`crate::recover`]). The next run of its user removes it, since it takes up memory.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use gpu_track_abi::live;

use super::run_directory::{self, RunDirectory};
use super::session_name::{STATE_SUFFIX, prefix};
use crate::model::sorting::{InOrder, Sorting};
use crate::sys::proc_fs::ProcRoot;
use crate::sys::segment::named::NamedFile;

/// A stale session. Its files are locked, so that no other process takes it for stale.
#[derive(Debug)]
pub struct Stale {
    /// Path of the segment, which may not exist.
    pub path: PathBuf,
    /// The segment, if it exists.
    pub segment: Option<NamedFile>,
    /// The state file, if it exists.
    pub state: Option<NamedFile>,
    /// The live file, if it exists.
    live: Option<NamedFile>,
    /// When the state file was last written to; without one, the segment or the live file.
    pub written_at: SystemTime,
}

impl Stale {
    /// Finds all stale sessions of this user in `dir`, and in directories of runs there. Locks them. They are sorted by when they were last
    /// written to, oldest first.
    pub fn all(dir: &Path, uid: u32) -> Vec<Self> {
        Self::all_and_directories(dir, uid).0
    }

    /// As [`Self::all`], with the directories of this user's runs in `dir`.
    fn all_and_directories(dir: &Path, uid: u32) -> (Vec<Self>, Vec<PathBuf>) {
        let names = own_names(dir, uid);
        let directories: Vec<PathBuf> = run_directory::among(dir, &names, uid).collect();
        let mut all = Self::all_in(dir, names, uid);
        all.extend(directories.iter().flat_map(|dir| Self::all_in(dir, own_names(dir, uid), uid)));
        all.order_by_key(|stale| stale.written_at);
        (all, directories)
    }

    /// Finds all stale sessions of this user in `dir`, in which these names are the user's, and locks them.
    fn all_in(dir: &Path, names: Vec<String>, uid: u32) -> Vec<Self> {
        // A session has up to three files: the segment, and state file and live file, whose names have a suffix.
        let session = |name: String| {
            let session = name.strip_suffix(STATE_SUFFIX).or(name.strip_suffix(live::SUFFIX));
            session.map_or(name.clone(), str::to_owned)
        };
        let sessions = names.into_iter().map(session).ordered_set();
        sessions.iter().filter_map(|name| Self::at(dir, name, uid).ok()).collect()
    }

    /// Opens and locks the files of the session whose segment is `dir`/`name`. Fails if there is none, or a process has one of them
    /// locked.
    fn at(dir: &Path, name: &str, uid: u32) -> io::Result<Self> {
        let path = dir.join(name);
        let left = |path: &Path| match NamedFile::left_behind(path, uid) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        let beside = |suffix| left(&dir.join(format!("{name}{suffix}")));
        let (segment, state, live) = (left(&path)?, beside(STATE_SUFFIX)?, beside(live::SUFFIX)?);
        // The state file comes first: writes through a mapping, as those to the segment, need not change a file's time.
        let dated = state.as_ref().or(segment.as_ref()).or(live.as_ref()).ok_or(io::ErrorKind::NotFound)?;
        let written_at = std::fs::File::from(dated.file().try_clone_to_owned()?).metadata()?.modified()?;
        Ok(Self { path, segment, state, live, written_at })
    }

    /// The pid of the launcher, from the file name. `None`: the name has none.
    pub fn launcher_pid(&self) -> Option<u32> {
        self.path.file_name()?.to_str()?.rsplit('.').nth(1)?.parse().ok()
    }

    /// Removes the session's files, and the directory of its run.
    pub fn remove(&self) {
        for file in [&self.live, &self.segment, &self.state].into_iter().flatten() {
            // An error means that the file is gone or may not be removed.
            let _ = file.unlink();
        }
        if let Some(directory) = RunDirectory::of_segment(&self.path) {
            directory.leave(&ProcRoot::default());
        }
    }
}

/// The names in `dir` that are those of this user's sessions and runs.
fn own_names(dir: &Path, uid: u32) -> Vec<String> {
    let prefix = prefix(uid);
    let names = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&prefix)).collect()
}

/// Removes the files of all stale sessions of this user in `dir`, even if no report was made of them, and directories that runs left.
pub fn remove_all(dir: &Path, uid: u32) {
    let (all, directories) = Stale::all_and_directories(dir, uid);
    all.iter().for_each(Stale::remove);
    run_directory::remove_left(directories);
}

/// For tests: repeats `ask` until it answers. A child of another test holds a copy of each lock until its exec.
#[cfg(test)]
pub(crate) fn once_unlocked<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = std::time::Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begun.elapsed().as_secs() < 60, "the stale session is not found");
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::store::session_name::{new_name, state_name};
    use crate::store::state_file::StateFile;
    use crate::sys::segment::live::{LiveFile, path_of};

    /// A session of the current user.
    fn session(dir: &Path, random: u64) -> (PathBuf, StateFile) {
        let segment = new_name(dir, uid(), 4321, random);
        let state = state_name(&segment);
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

    // Requirement: FAULT-4
    #[test]
    fn only_sessions_without_locks_are_stale() {
        let dir = tempfile::tempdir().unwrap();
        let (used, lock) = session(dir.path(), 1);
        let (left, _) = session(dir.path(), 2);
        File::create(dir.path().join("other")).unwrap();
        File::create(dir.path().join(format!("gpu-track.{}.4321.1", uid() + 1))).unwrap();
        // A lock on one of the two files is enough.
        drop(once_unlocked(|| NamedFile::left_behind(&used, uid()).ok()));
        let all =
            |count| once_unlocked(|| Some(Stale::all(dir.path(), uid())).filter(|all| all.len() == count));
        let only = all(1).remove(0);
        assert_eq!((&only.path, only.launcher_pid()), (&left, Some(4321)));
        drop((only, lock));
        // A stale session that is held is not found again.
        let held = all(2);
        assert!(names(dir.path()).is_empty());
        drop(held);
        let here = || std::fs::read_dir(dir.path()).unwrap().count();
        once_unlocked(|| {
            remove_all(dir.path(), uid());
            (here() <= 2).then_some(())
        });
        assert_eq!(here(), 2, "other files stay");
    }

    // Requirement: FAULT-4
    #[test]
    fn session_whose_live_file_is_open_in_a_reader_is_stale() {
        let dir = tempfile::tempdir().unwrap();
        let (segment, state) = session(dir.path(), 1);
        let live = path_of(&segment);
        drop((state, LiveFile::create(&live, 1).unwrap()));
        let reader = LiveFile::open(&live).unwrap();
        let found = once_unlocked(|| Stale::all(dir.path(), uid()).pop());
        assert!(found.live.is_some() && LiveFile::open(&live).is_ok(), "a session that is being recovered");
        found.remove();
        assert_eq!((std::fs::read_dir(dir.path()).unwrap().count(), reader.count()), (0, 0));
    }

    // Requirement: FAULT-11
    #[test]
    fn links_and_files_of_other_users_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let segment = new_name(dir.path(), uid(), 1, 1);
        let state = state_name(&segment);
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
