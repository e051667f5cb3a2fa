//! Shims of other builds, in the directories where the launcher puts its own. They are removed when nothing has used them for
//! 30 days.
//!
//! Use is seen in two ways:
//!
//! - A run touches its shim at its start and once a day, so the file's mtime is its last use. That also counts for runs whose
//!   processes can't be seen: in another pid namespace, or on another machine with the same home directory.
//! - A process of an ended run can live on, as a daemon does, and its children load the shim. So an old shim that a
//!   process has mapped, or has in its environment, is touched instead of removed.
//!
//! A lock keeps two launchers apart: one that removes an old shim, and one that starts to use it. A shim that was touched
//! within a day needs no lock, because nothing removes it. Nor does a missing one: its link was removed before it.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use gpu_track_abi::preload::ANY_SHIM_PREFIX;
use rustix::fs::{FlockOperation, flock};

use crate::process::time_limit;
use gpu_track_collector::model::sorting::{InOrder, Sorting};
use gpu_track_collector::safe_path::User;

/// How often a run says that it uses its shim: often enough for a machine that is asleep most of the time.
const TOUCH_INTERVAL: Duration = Duration::from_secs(24 * 3600);
/// A shim that was not used for this long is removed.
const KEPT_UNUSED: Duration = Duration::from_secs(30 * 24 * 3600);
/// The lock is held for less than a millisecond. A launcher that was stopped meanwhile holds it longer.
const LOCK_PATIENCE: Duration = Duration::from_millis(100);
/// How often the lock is tried again.
const LOCK_INTERVAL: Duration = Duration::from_millis(1);

/// Whether a run has touched this shim within a day. A time in the future counts as now: the clock was set back.
pub(crate) fn was_used_today(shim: &Path) -> bool {
    age(shim).is_some_and(|age| age < TOUCH_INTERVAL)
}

/// Notes that this shim is used now. That fails on a read-only file system, where nothing can remove the shim.
pub(crate) fn touch(shim: &Path) {
    let _ = File::open(shim).and_then(|file| file.set_modified(SystemTime::now()));
}

/// The time since a file or link was last touched, 0 for a time in the future. `None`: there is no such file.
fn age(path: &Path) -> Option<Duration> {
    let modified = fs::symlink_metadata(path).and_then(|found| found.modified()).ok()?;
    Some(SystemTime::now().duration_since(modified).unwrap_or_default())
}

/// The lock of a directory of shims, by flock(2). It is held until this is dropped, or the process ends.
pub(crate) struct Lock {
    _file: OwnedFd,
}

impl Lock {
    /// Takes the lock. `None`: the directory is read-only, its file system has no locks, or a stopped launcher holds it.
    ///
    /// Only the directory's owner can open the file, so no other user can hold the lock.
    pub(crate) fn take(directory: &Path) -> Option<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let file: OwnedFd = options.open(directory.join(".lock")).ok()?.into();
        let deadline = Instant::now() + LOCK_PATIENCE;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Some(Self { _file: file }),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => {
                    thread::sleep(LOCK_INTERVAL)
                }
                Err(_) => return None,
            }
        }
    }
}

/// Keeps a run's shim from being removed, and removes others, once a day.
#[derive(Debug)]
pub(crate) struct Upkeep {
    /// The shim, or the link to it in the same directory.
    shim: PathBuf,
    due: Instant,
}

impl Upkeep {
    /// Prepares the upkeep of a shim; [`Self::attend`] does the work. On the first run of a day it is due at once, otherwise in a
    /// day.
    pub(crate) fn new(shim: PathBuf, is_first_today: bool) -> Self {
        let wait = if is_first_today { Duration::ZERO } else { TOUCH_INTERVAL };
        Self { shim, due: Instant::now() + wait }
    }

    /// If it is due, touches the shim and removes unused ones, in a thread: the file system may not answer. Returns the time until the
    /// work is due again.
    pub(crate) fn attend(&mut self) -> Duration {
        let now = Instant::now();
        if self.due <= now {
            self.due = now + TOUCH_INTERVAL;
            let shim = self.shim.clone();
            // At a limit of processes there is no thread. A run on another day tries again.
            let _ = time_limit::in_thread(move || {
                touch(&shim);
                if let Some(directory) = shim.parent() {
                    let _ = remove_unused(directory, User::this(), Path::new("/proc"));
                }
            });
        }
        self.due - now
    }
}

/// Removes this user's shims that nothing has used for [`KEPT_UNUSED`], and their links. The incomplete files of killed launchers go with
/// the shim of their build.
/// Shims that a process of this user still uses are touched instead. If the lock can't be taken, nothing is removed.
fn remove_unused(directory: &Path, user: User, proc_root: &Path) -> io::Result<()> {
    let unused = |file: &&OldFile| file.is_unused(user);
    let files = shim_files(directory)?;
    let old: Vec<_> = files.iter().filter(unused).collect();
    if old.is_empty() {
        return Ok(());
    }
    let used = used_shims(old.iter().map(|file| file.shim.as_os_str()), proc_root)?;
    for shim in &used {
        touch(&directory.join(shim));
    }
    let Some(_lock) = Lock::take(directory) else { return Ok(()) };
    // A launcher that has started since then, or the lines above, have touched what is in use.
    for file in old.into_iter().filter(unused) {
        fs::remove_file(&file.path)?;
    }
    Ok(())
}

/// A shim, or a file that goes with one.
struct OldFile {
    path: PathBuf,
    /// The name of the shim's file.
    shim: OsString,
}

impl OldFile {
    /// Finds which shim a file belongs to, by the name: `PREFIX.HASH.so`, the link `PREFIX.HASH.not-libasan.so`, or a new
    /// file that is not complete, `.PREFIX.HASH.so.PID.NANOS`.
    fn parse(path: PathBuf) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let name = name.strip_prefix('.').unwrap_or(name);
        let rest = name.strip_prefix(ANY_SHIM_PREFIX)?;
        let (version, rest) = rest.split_once('.')?;
        let (hash, _) = rest.split_once('.')?;
        let shim = format!("{ANY_SHIM_PREFIX}{version}.{hash}.so").into();
        Some(Self { path, shim })
    }

    /// Whether the file is this user's, and neither the file nor its shim was touched within [`KEPT_UNUSED`].
    fn is_unused(&self, user: User) -> bool {
        // A shim that is missing counts as old.
        let is_old = |path: &Path| age(path).is_none_or(|age| age > KEPT_UNUSED);
        let is_ours = fs::symlink_metadata(&self.path).is_ok_and(|found| found.uid() == user.uid());
        is_ours && is_old(&self.path) && is_old(&self.path.with_file_name(&self.shim))
    }
}

/// Lists all files of shims in a directory, in the order in which they may be removed: a link before its shim, so that no process
/// finds a link that leads nowhere.
fn shim_files(directory: &Path) -> io::Result<Vec<OldFile>> {
    let mut paths =
        fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    // By name: `PREFIX.HASH.not-libasan.so`, the link, is before `PREFIX.HASH.so`.
    paths.order_by(Ord::cmp);
    Ok(paths.into_iter().filter_map(OldFile::parse).collect())
}

/// Finds which of these shims, given by the names of their files, some process has mapped or names in its environment. The hash in the
/// name tells shims apart, in any directory. A process that this user may not read counts as using none.
fn used_shims<'a>(
    shims: impl Iterator<Item = &'a OsStr>,
    proc_root: &Path,
) -> io::Result<BTreeSet<&'a OsStr>> {
    let shims = shims.ordered_set();
    let mut used = BTreeSet::new();
    for process in fs::read_dir(proc_root)? {
        let process = process?;
        if !process.file_name().as_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        for file in ["maps", "environ"] {
            let content = fs::read(process.path().join(file)).unwrap_or_default();
            used.extend(shims.iter().filter(|shim| is_named(shim, &content)));
        }
    }
    Ok(used)
}

/// Whether a text names the shim or its link.
fn is_named(shim: &OsStr, text: &[u8]) -> bool {
    // The names of the shim and of its link begin with `PREFIX.HASH.`.
    let stem = shim.as_bytes().strip_suffix(b"so").unwrap_or(shim.as_bytes());
    text.windows(stem.len()).any(|found| found == stem)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const DAY: Duration = TOUCH_INTERVAL;
    const OLD: &str = "libgpu_track_shim.v2.0123456789abcdef";

    /// Makes a shim and its link in a directory, last used this long ago.
    fn shim(directory: &Path, stem: &str, age: Duration) -> PathBuf {
        let shim = directory.join(format!("{stem}.so"));
        fs::write(&shim, "").unwrap();
        let link = directory.join(format!("{stem}.not-libasan.so"));
        symlink(&shim, &link).unwrap();
        set_age(&shim, age);
        set_age(&link, age);
        shim
    }

    /// Sets the mtime of a file or link.
    fn set_age(path: &Path, age: Duration) {
        let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() - age;
        let time = rustix::fs::Timespec { tv_sec: seconds.as_secs().cast_signed(), tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }

    /// The names in a directory, without the lock.
    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
        names.retain(|name| name != ".lock");
        names.sort();
        names
    }

    /// A /proc with one process: its file has this content.
    fn proc_with(file: &str, content: &str) -> tempfile::TempDir {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir_all(top.path().join("17")).unwrap();
        fs::write(top.path().join("17").join(file), content).unwrap();
        top
    }

    // Requirement: FAULT-97
    #[test]
    fn only_shims_that_nothing_used_for_long_are_removed() {
        let top = tempfile::tempdir().unwrap();
        shim(top.path(), OLD, 31 * DAY);
        let partial = top.path().join(format!(".{OLD}.so.7.99"));
        let other = top.path().join("libgpu_track_shim.txt");
        for file in [&partial, &other] {
            fs::write(file, "").unwrap();
            set_age(file, 31 * DAY);
        }
        shim(top.path(), "libgpu_track_shim.v3.aa", 29 * DAY);
        remove_unused(top.path(), User::this(), proc_with("environ", "HOME=/").path()).unwrap();
        let kept =
            ["libgpu_track_shim.txt", "libgpu_track_shim.v3.aa.not-libasan.so", "libgpu_track_shim.v3.aa.so"];
        assert_eq!(names(top.path()), kept);
    }

    // Requirement: FAULT-97
    #[test]
    fn shim_of_a_living_process_is_kept_and_touched() {
        let mapped = format!("7f00-7f01 r-xp 0 fe:00 99 /elsewhere/{OLD}.so\n");
        let named = format!("HOME=/\0LD_PRELOAD=/elsewhere/{OLD}.not-libasan.so\0");
        for (file, content) in [("maps", mapped), ("environ", named)] {
            let top = tempfile::tempdir().unwrap();
            let used = shim(top.path(), OLD, 31 * DAY);
            shim(top.path(), "libgpu_track_shim.v2.bb", 31 * DAY);
            remove_unused(top.path(), User::this(), proc_with(file, &content).path()).unwrap();
            assert_eq!(names(top.path()), [format!("{OLD}.not-libasan.so"), format!("{OLD}.so")], "{file}");
            assert!(was_used_today(&used));
        }
        let top = tempfile::tempdir().unwrap();
        shim(top.path(), OLD, 31 * DAY);
        remove_unused(top.path(), User::this(), Path::new("/no/such")).unwrap_err();
        assert_eq!(names(top.path()).len(), 2, "without /proc it is not known which processes live");
    }

    // Requirement: FAULT-97
    #[test]
    fn file_of_another_user_is_left_alone() {
        let top = tempfile::tempdir().unwrap();
        shim(top.path(), OLD, 31 * DAY);
        let other = User::new(User::this().uid() + 1, 0);
        remove_unused(top.path(), other, proc_with("environ", "").path()).unwrap();
        assert_eq!(names(top.path()).len(), 2);
    }

    // Requirement: FAULT-97
    #[test]
    fn nothing_is_removed_while_another_launcher_has_the_lock() {
        let top = tempfile::tempdir().unwrap();
        shim(top.path(), OLD, 31 * DAY);
        let proc_root = proc_with("environ", "");
        let lock = Lock::take(top.path()).unwrap();
        remove_unused(top.path(), User::this(), proc_root.path()).unwrap();
        assert_eq!(names(top.path()).len(), 2);
        drop(lock);
        remove_unused(top.path(), User::this(), proc_root.path()).unwrap();
        assert_eq!(names(top.path()).len(), 0);
    }

    // Requirement: FAULT-97
    #[test]
    fn long_run_touches_its_shim_each_day() {
        let top = tempfile::tempdir().unwrap();
        let used = shim(top.path(), OLD, 2 * DAY);
        let mut upkeep = Upkeep { shim: used.clone(), due: Instant::now() };
        assert!(upkeep.attend() > DAY - Duration::from_secs(60));
        let given_up = Instant::now() + Duration::from_secs(60);
        while !was_used_today(&used) {
            assert!(Instant::now() < given_up, "it is not touched");
            thread::yield_now();
        }
        let later = upkeep.due;
        upkeep.attend();
        assert_eq!(upkeep.due, later, "it is not due again");
    }
}
