//! The two directories of a run with `--containers`. One is in shared memory. Only the run's user can enter it, so the session's files in it
//! may be open to all: containers, which get the segment by a mount, can run programs as any user.
//!
//! The other, of the same name, is not in shared memory, which a container can have in common with the host (`--ipc=host`): a container that
//! reaches docker's daemon owns the machine. It has what the clients of containers are told to use in place of the usual: [`DOCKER_SOCKET`]
//! and [`PODMAN_CONFIGURATION`]. Beside each lies what takes its place when nothing serves or edits it any more
//! ([`RunDirectory::stand_back`]). So a process that outlives the run finds docker and podman as they are without a run.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FlockOperation, flock, unlinkat};

use super::session_name;
use crate::sys::files::open_directory;
use crate::sys::proc_fs::ProcRoot;
use crate::sys::safe_path::User;

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
    /// The one in shared memory.
    path: PathBuf,
    /// The one with the files for clients.
    clients: PathBuf,
    /// Held locked, so that no other run takes the directory for left behind. `None`: another process has the lock.
    lock: Option<File>,
}

impl RunDirectory {
    /// Creates the directories for a segment that would be at this path, and locks the first. Returns them with the path of the segment.
    ///
    /// # Errors
    /// If one can't be created or locked.
    pub fn create(segment: &Path) -> io::Result<(Self, PathBuf)> {
        Self::create_in(segment, &places(|name| std::env::var_os(name), User::this()))
    }

    fn create_in(segment: &Path, places: &[PathBuf]) -> io::Result<(Self, PathBuf)> {
        let named = |suffix: &str| -> PathBuf {
            let mut name = OsString::from(segment);
            name.push(suffix);
            name.into()
        };
        let (path, new) = (named(SUFFIX), named(NEW));
        let clients = create_for_clients(path.file_name().unwrap_or_default(), places)?;
        let begin = || {
            DirBuilder::new().mode(0o700).create(&new)?;
            let lock = open_directory(CWD, &new)?;
            flock(&lock, FlockOperation::NonBlockingLockShared)?;
            // Nothing is replaced but an empty directory of this user.
            fs::rename(&new, &path)?;
            Ok(lock)
        };
        let lock = begin().inspect_err(|_: &io::Error| {
            let _ = fs::remove_dir(&new);
            let _ = fs::remove_dir(&clients);
        })?;
        let segment = path.join(segment.file_name().unwrap_or_default());
        Ok((Self { path, clients, lock: Some(lock) }, segment))
    }

    /// The directories of the run with this segment. `None`: its files are in no directory of their own.
    pub fn of_segment(segment: &Path) -> Option<Self> {
        let path = segment.parent()?;
        let name = path.file_name()?.as_bytes().strip_suffix(SUFFIX.as_bytes())?;
        (name == segment.file_name()?.as_bytes()).then(|| Self::at(path.to_owned(), None))
    }

    /// The directories of which the first is at this path. The path of the second one is computed, because the first can be written to by
    /// containers. Without a second one, no file is found.
    fn at(path: PathBuf, places: Option<&[PathBuf]>) -> Self {
        let user = User::this();
        let usual = || self::places(|name| std::env::var_os(name), user);
        let places = places.map_or_else(usual, <[PathBuf]>::to_vec);
        let name = path.file_name().unwrap_or_default();
        let mut found = places.iter().map(|place| place.join(name)).filter(|path| is_own(path, user.uid()));
        let clients = found.next().unwrap_or_else(|| Path::new("/dev/null").join(name));
        Self { path, clients, lock: None }
    }

    /// The path of a file for clients, or about them.
    pub fn file(&self, name: &str) -> PathBuf {
        self.clients.join(name)
    }

    /// The path of what takes the place of this file when the run is over.
    pub fn without_run(&self, name: &str) -> PathBuf {
        self.clients.join(format!("{WITHOUT_RUN}{name}"))
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

    /// Ends the use of the directories, and removes them. While a process has the path of the second in its environment, what that process
    /// may use stays: another run, which finds the first one, removes it later.
    pub fn leave(&self, root: &ProcRoot) {
        self.stand_back();
        // The lock of another process, such as the proxy that still serves, does not show here: it may use the directory, too.
        let is_used = self.is_used(root);
        let _ = fs::remove_dir_all(self.file(HOOKS));
        for entry in fs::read_dir(&self.clients).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if !is_used || !(name == DOCKER_SOCKET || name == PODMAN_CONFIGURATION) {
                let _ = fs::remove_file(entry.path());
            }
        }
        let _ = fs::remove_dir(&self.clients);
        let _ = remove_files(&self.path);
        if !self.clients.exists() {
            let _ = fs::remove_dir(&self.path);
        }
    }

    /// As [`Self::leave`], if no other process uses the directories for the run or its session.
    pub fn leave_if_left(self) {
        let uid = rustix::process::geteuid().as_raw();
        let lock = open_directory(CWD, &self.path).ok();
        let is_left = lock.is_some_and(|lock| flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok());
        // Without a launcher, a collector holds the locks of its session's files.
        let has_session = || {
            let mut names = fs::read_dir(&self.path).into_iter().flatten().flatten();
            names.any(|entry| {
                // A daemon can have made a directory in place of a segment that was gone.
                let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
                is_file && entry.file_name().as_bytes().starts_with(session_name::prefix(uid).as_bytes())
            })
        };
        if is_left && !has_session() {
            self.leave(&ProcRoot::default());
        }
    }

    /// Whether a process names the directory in its environment.
    fn is_used(&self, root: &ProcRoot) -> bool {
        let path = self.clients.as_os_str().as_bytes();
        let names_it = |pid| {
            root.environ(pid).is_some_and(|environ| environ.windows(path.len()).any(|part| part == path))
        };
        root.pids().into_iter().any(names_it)
    }
}

/// The directories in which files for clients can be, the best first. As root, none that a variable names.
fn places(variable: impl Fn(&str) -> Option<OsString>, user: User) -> Vec<PathBuf> {
    let of_root = ["/run/gpu-track", "/var/cache/gpu-track"].map(PathBuf::from);
    let below = |name: &str, rest: &str| Some(PathBuf::from(variable(name)?).join(rest));
    let of_user = [
        below("XDG_RUNTIME_DIR", "gpu-track"),
        below("XDG_CACHE_HOME", "gpu-track"),
        below("HOME", ".cache/gpu-track"),
    ];
    let of_root = of_root.into_iter().filter(|_| user.uid() == 0);
    let of_user = of_user.into_iter().flatten().filter(|path| path.is_absolute() && !user.is_root());
    of_root.chain(of_user).collect()
}

/// Creates a directory of this name in the first place that no other user can write to, and that is not in shared memory. Other users can
/// enter it, and read what is open to all: a program of the tree can become another user.
fn create_for_clients(name: &OsStr, places: &[PathBuf]) -> io::Result<PathBuf> {
    const SHARED: &str = "/dev/shm";
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no directory for them is outside of /dev/shm");
    for place in places.iter().filter(|place| !place.starts_with(SHARED)) {
        let resolved = User::this().resolve_or_create(place, 0o755).map_err(io::Error::other);
        let made = resolved.and_then(|resolved| {
            // By a link.
            if resolved.starts_with(SHARED) {
                return Err(io::Error::other(format!("{} is in shared memory", resolved.display())));
            }
            let path = resolved.join(name);
            DirBuilder::new().mode(0o711).create(&path)?;
            Ok(path)
        });
        match made {
            Ok(path) => return Ok(path),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Removes the files in a directory in shared memory. A container can put a link in its place at any time.
fn remove_files(path: &Path) -> io::Result<()> {
    let directory = open_directory(CWD, path)?;
    for entry in Dir::read_from(&directory)?.flatten() {
        let _ = unlinkat(&directory, entry.file_name(), AtFlags::empty());
    }
    Ok(())
}

/// Whether this is a directory of this user. Anybody can make one with this user's id in its name, or a link.
fn is_own(path: &Path, uid: u32) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir() && found.uid() == uid)
}

/// The directories in which sessions of a user can have their files: this one, and those of runs with `--containers`.
pub fn of_sessions(directory: &Path, uid: u32) -> Vec<PathBuf> {
    let names = fs::read_dir(directory).into_iter().flatten().flatten();
    let names: Vec<String> = names.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    std::iter::once(directory.to_owned()).chain(among(directory, &names, uid)).collect()
}

/// The directories of this user's runs among these names in `directory`.
pub(super) fn among(directory: &Path, names: &[String], uid: u32) -> impl Iterator<Item = PathBuf> {
    let prefix = session_name::prefix(uid);
    let names = names.iter().filter(move |name| name.starts_with(&prefix) && name.ends_with(SUFFIX));
    names.map(|name| directory.join(name)).filter(move |path| is_own(path, uid))
}

/// Removes those of these directories of runs of this user that no run uses.
pub(super) fn remove_left(directories: Vec<PathBuf>) {
    for path in directories {
        RunDirectory::at(path, None).leave_if_left();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::store::stale;

    fn uid() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    /// A run's directory with both files, and with what takes their places.
    fn made(top: &Path, random: u64) -> (RunDirectory, PathBuf) {
        let (made, segment) =
            RunDirectory::create_in(&session_name::new_name(top, uid(), 7, random), &[top.join("clients")])
                .unwrap();
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
        assert_eq!(RunDirectory::of_segment(&segment).unwrap().path, made.path);
        let of_segment = RunDirectory::at(made.path.clone(), Some(&[top.path().join("clients")]));
        assert_eq!(of_segment.file("x"), made.file("x"));
        let (_proc, used) =
            with_process(&format!("A=1\0DOCKER_HOST=unix://{}\0", made.file(DOCKER_SOCKET).display()));
        of_segment.leave(&used);
        assert!(segment.parent().unwrap().exists(), "a later run has to find the other one");
        let mut left: Vec<_> =
            fs::read_dir(&made.clients).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [PODMAN_CONFIGURATION, DOCKER_SOCKET]);
        assert_eq!(fs::read_link(made.file(DOCKER_SOCKET)).unwrap(), Path::new("/plain"));
        let (_proc, unused) = with_process("A=1\0");
        of_segment.leave(&unused);
        assert!(!segment.parent().unwrap().exists() && !made.clients.exists());
    }

    // Requirement: FAULT-11
    #[test]
    fn files_for_clients_are_where_containers_do_not_share_them() {
        let user = |name: &str| Some(format!("/{name}").into());
        let of_user = places(user, User::new(7, 0));
        let expected = ["/XDG_RUNTIME_DIR/gpu-track", "/XDG_CACHE_HOME/gpu-track", "/HOME/.cache/gpu-track"];
        assert_eq!(of_user, expected.map(PathBuf::from));
        assert_eq!(
            places(user, User::new(0, 0)),
            ["/run/gpu-track", "/var/cache/gpu-track"].map(PathBuf::from)
        );
        let shared = tempfile::tempdir_in("/dev/shm").unwrap();
        let (top, name) = (tempfile::tempdir().unwrap(), OsStr::new("x.d"));
        let shared_place = shared.path().join("gpu-track");
        assert!(create_for_clients(name, std::slice::from_ref(&shared_place)).is_err());
        assert!(!shared_place.exists());
        let link = top.path().join("link");
        symlink(shared.path(), &link).unwrap();
        assert!(create_for_clients(name, &[link]).is_err());
        let made = create_for_clients(name, &[shared_place, top.path().to_owned()]).unwrap();
        assert_eq!(made, top.path().canonicalize().unwrap().join("x.d"));
        // A name that is taken is not used.
        assert!(create_for_clients(name, &[top.path().to_owned()]).is_err());
    }

    // Requirement: FAULT-11
    #[test]
    fn link_in_place_of_the_directory_is_not_followed() {
        let top = tempfile::tempdir().unwrap();
        let (made, _) = made(top.path(), 1);
        let other = top.path().join("other");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("kept"), "").unwrap();
        fs::remove_dir(&made.path).unwrap();
        symlink(&other, &made.path).unwrap();
        made.leave(&with_process("").1);
        assert!(other.join("kept").exists());
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
        let (left_path, left_clients) = (left.path.clone(), left.clients.clone());
        drop(left);
        // As the next run would have it: it finds the files for clients.
        fs::remove_dir_all(left_clients).unwrap();
        // A child of another test holds a copy of each lock until its exec.
        stale::once_unlocked(|| {
            remove_left(of_sessions(top.path(), uid()).split_off(1));
            (!left_path.exists()).then_some(())
        });
        assert!(locked.path.exists() && with_session.exists());
        assert_eq!(of_sessions(top.path(), uid()).len(), 3);
        assert!(RunDirectory::of_segment(&top.path().join("gpu-track.0.7.1")).is_none());
    }
}
