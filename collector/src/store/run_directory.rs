//! The directory of a run with `--containers`, in shared memory. Only the run's user can enter it, so the session's files in it may be open
//! to all: containers, which get the segment by a mount, can run programs as any user.
//!
//! It also has what the clients of containers are told to use in place of the usual: [`DOCKER_SOCKET`] and [`PODMAN_CONFIGURATION`]. Beside
//! each lies what takes its place when nothing serves or edits it any more ([`RunDirectory::stand_back`]). So a process that outlives the
//! run finds docker and podman as they are without a run.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};

use super::stale;
use crate::sys::proc_fs::ProcRoot;

/// The end of its name. The rest is the name that the segment has in it.
const SUFFIX: &str = ".d";
/// The end of its name until it is locked.
const NEW: &str = ".new";

/// The socket at which the proxy of docker's daemon listens.
pub const DOCKER_SOCKET: &str = "docker.sock";
/// The file of CONTAINERS_CONF_OVERRIDE.
pub const PODMAN_CONFIGURATION: &str = "containers.conf";
/// The directory of podman's hook.
pub const HOOKS: &str = "hooks.d";
/// A line of JSON for each container that was to be created.
pub const NOTES: &str = "containers.jsonl";
/// Start of the names of what takes the place of the files above.
const WITHOUT_RUN: &str = "plain.";

/// See the module.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    /// Held locked, so that no other run takes the directory for left behind. `None`: another process has the lock.
    lock: Option<OwnedFd>,
}

impl RunDirectory {
    /// Creates the directory for a segment that would be at this path, and locks it. Returns it with the path of the segment in it.
    ///
    /// # Errors
    /// If it can't be created or locked.
    pub fn create(segment: &Path) -> io::Result<(Self, PathBuf)> {
        let named = |suffix: &str| -> PathBuf {
            let mut name = OsString::from(segment);
            name.push(suffix);
            name.into()
        };
        let (path, new) = (named(SUFFIX), named(NEW));
        DirBuilder::new().mode(0o700).create(&new)?;
        let begin = || {
            let lock = open_directory(&new)?;
            flock(&lock, FlockOperation::NonBlockingLockShared)?;
            // Nothing is replaced but an empty directory of this user.
            fs::rename(&new, &path)?;
            Ok(lock)
        };
        let lock = begin().inspect_err(|_: &io::Error| _ = fs::remove_dir(&new))?;
        let segment = path.join(segment.file_name().unwrap_or_default());
        Ok((Self { path, lock: Some(lock) }, segment))
    }

    /// The directory of the run with this segment. `None`: its files are in no directory of their own.
    pub fn of_segment(segment: &Path) -> Option<Self> {
        let path = segment.parent()?;
        let name = path.file_name()?.as_bytes().strip_suffix(SUFFIX.as_bytes())?;
        (name == segment.file_name()?.as_bytes()).then(|| Self { path: path.to_owned(), lock: None })
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The path of what takes the place of this file when the run is over.
    pub fn without_run(&self, name: &str) -> PathBuf {
        self.path.join(format!("{WITHOUT_RUN}{name}"))
    }

    /// What holds the lock, for a process that is to hold it, too.
    pub fn lock(&self) -> Option<BorrowedFd<'_>> {
        self.lock.as_ref().map(AsFd::as_fd)
    }

    /// Has docker's clients find its daemon's own socket, and podman the user's own configuration.
    pub fn stand_back(&self) {
        for name in [DOCKER_SOCKET, PODMAN_CONFIGURATION] {
            // An error means that this was done before, or that the file was never made.
            let _ = fs::rename(self.without_run(name), self.file(name));
        }
    }

    /// Ends the use of the directory, and removes it. While a process has its path in its environment, what that process may use stays:
    /// another run removes it later.
    pub fn leave(&self, root: &ProcRoot) {
        self.stand_back();
        // The lock of another process, such as the proxy that still serves, does not show here: it may use the directory, too.
        let is_used = self.is_used(root);
        let _ = fs::remove_dir_all(self.file(HOOKS));
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if !is_used || !(name == DOCKER_SOCKET || name == PODMAN_CONFIGURATION) {
                let _ = fs::remove_file(entry.path());
            }
        }
        let _ = fs::remove_dir(&self.path);
    }

    /// Whether a process names the directory in its environment.
    fn is_used(&self, root: &ProcRoot) -> bool {
        let path = self.path.as_os_str().as_bytes();
        let names_it = |pid| {
            root.environ(pid).is_some_and(|environ| environ.windows(path.len()).any(|part| part == path))
        };
        root.pids().into_iter().any(names_it)
    }
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// The directories in which sessions of a user can have their files: this one, and those of runs with `--containers`.
pub fn of_sessions(directory: &Path, uid: u32) -> Vec<PathBuf> {
    let names = fs::read_dir(directory).into_iter().flatten().flatten();
    let names: Vec<String> = names.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    std::iter::once(directory.to_owned()).chain(among(directory, &names, uid)).collect()
}

/// The directories of this user's runs among these names in `directory`.
pub(super) fn among(directory: &Path, names: &[String], uid: u32) -> impl Iterator<Item = PathBuf> {
    let prefix = stale::prefix(uid);
    // Anybody can make a directory with this user's id in its name, or a link.
    let is_own = move |path: &PathBuf| {
        fs::symlink_metadata(path).is_ok_and(|found| found.is_dir() && found.uid() == uid)
    };
    let names = names.iter().filter(move |name| name.starts_with(&prefix) && name.ends_with(SUFFIX));
    names.map(|name| directory.join(name)).filter(is_own)
}

/// Removes those of these directories of this user that no run uses.
pub(super) fn remove_left(directories: Vec<PathBuf>, uid: u32) {
    for path in directories {
        let lock = open_directory(&path).ok();
        let is_left = lock.is_some_and(|lock| flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok());
        // Without a launcher, a collector holds the locks of its session's files.
        let has_session = || {
            let mut names = fs::read_dir(&path).into_iter().flatten().flatten();
            names.any(|entry| entry.file_name().as_bytes().starts_with(stale::prefix(uid).as_bytes()))
        };
        if is_left && !has_session() {
            RunDirectory { path, lock: None }.leave(&ProcRoot::default());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn uid() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    /// A run's directory with both files, and with what takes their places.
    fn made(top: &Path, random: u64) -> (RunDirectory, PathBuf) {
        let (made, segment) = RunDirectory::create(&stale::new_name(top, uid(), 7, random)).unwrap();
        for name in [DOCKER_SOCKET, PODMAN_CONFIGURATION] {
            fs::write(made.file(name), "of the run").unwrap();
            symlink("/plain", made.without_run(name)).unwrap();
        }
        fs::write(made.file(NOTES), "").unwrap();
        (made, segment)
    }

    /// A /proc with one process, which has this environment.
    fn with_process(environ: &str) -> (tempfile::TempDir, ProcRoot) {
        let proc = tempfile::tempdir().unwrap();
        fs::create_dir(proc.path().join("8")).unwrap();
        fs::write(proc.path().join("8/environ"), environ).unwrap();
        let root = ProcRoot::new(proc.path());
        (proc, root)
    }

    // Requirement: SEE-138
    #[test]
    fn what_survives_a_run_finds_docker_and_podman_as_without_it() {
        let top = tempfile::tempdir().unwrap();
        let (made, segment) = made(top.path(), 1);
        let of_segment = RunDirectory::of_segment(&segment).unwrap();
        assert_eq!(of_segment.file("x"), made.file("x"));
        let (_proc, used) =
            with_process(&format!("A=1\0DOCKER_HOST=unix://{}\0", made.file(DOCKER_SOCKET).display()));
        of_segment.leave(&used);
        let mut left: Vec<_> = fs::read_dir(segment.parent().unwrap())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, [PODMAN_CONFIGURATION, DOCKER_SOCKET]);
        assert_eq!(fs::read_link(made.file(DOCKER_SOCKET)).unwrap(), Path::new("/plain"));
        let (_proc, unused) = with_process("A=1\0");
        of_segment.leave(&unused);
        assert!(!segment.parent().unwrap().exists());
    }

    // Requirement: SEE-138
    #[test]
    fn directory_of_a_run_that_goes_on_is_not_removed() {
        let top = tempfile::tempdir().unwrap();
        let (locked, _) = made(top.path(), 1);
        let (unlocked, with_session) = made(top.path(), 2);
        fs::write(&with_session, "").unwrap();
        let (left, _) = made(top.path(), 3);
        drop(unlocked);
        let left_path = left.path.clone();
        drop(left);
        // A child of another test holds a copy of each lock until its exec.
        stale::once_unlocked(|| {
            remove_left(of_sessions(top.path(), uid()).split_off(1), uid());
            (!left_path.exists()).then_some(())
        });
        assert!(locked.path.exists() && with_session.exists());
        assert_eq!(of_sessions(top.path(), uid()).len(), 3);
        assert!(RunDirectory::of_segment(&top.path().join("gpu-track.0.7.1")).is_none());
    }
}
