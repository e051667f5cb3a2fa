//! The directory of the reports of all nodes. It should be on a file system that the nodes share. A node that does not see it leaves its
//! report in a directory of its own, from which the user can copy it.
//!
//! A file with the run's id marks the directory. An agent that finds another id, or no such file, sees another directory of this name.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gpu_track_collector::model::report::NodePart;
use gpu_track_collector::model::sorting::Sorting;
use gpu_track_collector::report::format;
use gpu_track_collector::safe_path::User;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// The file with the run's id, in hexadecimal.
const MARK: &str = "run";
/// Bytes of a mark: 16 digits and a newline.
const MARK_BYTES: u64 = 17;
/// A new mark is written under this name, and then renamed to [`MARK`]. So a mark is whole at any moment.
const NEW_MARK: &str = ".run";
/// The note of [how the report of all nodes is made](super::report_note).
pub(super) const NOTE: &str = ".report";
/// What begins the name of a file into which a task of a batch system writes what it says.
pub(super) const SAID: &str = ".said.";
/// The file that a run locks while it is in the directory.
const LOCK: &str = "lock";
/// What follows the name of a node on which no agent could run, as [`absence_script`] writes it.
const ABSENCES: [(&str, Absence); 2] = [(".missing", Absence::Missing), (".version", Absence::OtherVersion)];
/// How long a run waits for another process that makes or leaves the directory.
const LOCK_PATIENCE: Duration = Duration::from_millis(200);
/// How often the run tries to take the lock meanwhile.
const LOCK_INTERVAL: Duration = Duration::from_millis(2);

/// A directory of nodes' or ranks' reports, in which only this user can put files.
pub(super) struct NodeDirectory {
    path: PathBuf,
}

/// Why no agent could run on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Absence {
    /// The program is missing there.
    Missing,
    /// It is of another version.
    OtherVersion,
}

impl Absence {
    /// The absence whose mark ends this text, and the text before the mark.
    pub(super) fn at_end_of(text: &str) -> Option<(&str, Self)> {
        ABSENCES.iter().find_map(|(end, absence)| Some((text.strip_suffix(end)?, *absence)))
    }
}

/// Stands in scripts for the name of the node on which they run.
pub(super) const THIS_NODE: &str = "$(uname -n)";

/// A command of sh that writes the name of its node, and why `program` could not be an agent there.
pub(super) fn absence_script(node: &str, program: &str) -> String {
    format!("{node}$(test -x {program}&&echo .version||echo .missing)")
}

/// A command of sh that notes in this directory of a run why `program` could not be an agent on its node. It makes a directory,
/// since that neither follows a link nor replaces anything, whatever is at this path on that node. It prints nothing.
pub(super) fn note_absence_script(directory: &str, node: &str, program: &str) -> String {
    let absence = absence_script(node, program);
    format!("{{ test -O {directory}/{MARK}&&mkdir {directory}/{absence};}} 2>/dev/null")
}

/// The place of a node's report.
pub(super) struct CheckedIn {
    /// The report's file, empty so far.
    pub(super) file: PathBuf,
    /// What the report says of the node's part in the run.
    pub(super) part: NodePart,
}

/// A process's place in a directory. While it lasts, no other run empties the directory.
pub(super) struct Membership {
    /// A shared lock by flock(2). It is held as long as a process has this descriptor open: the launcher, or its collector.
    pub(super) lock: OwnedFd,
    /// This process made the directory for the run.
    pub(super) is_first: bool,
}

/// Gives a member's shared lock up, and tries to lock the directory for this process alone. `true`: that worked, so no other member
/// is left. Of members that leave at the same time, at least one gets `true`, after all of them have left.
pub(super) fn leave(lock: BorrowedFd) -> bool {
    let is_alone = || flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok();
    // A failed change of the lock's kind loses the lock, but not on every file system. So it is unlocked, and tried again.
    is_alone() || (flock(lock, FlockOperation::Unlock).is_ok() && is_alone())
}

/// Makes this process a member again, with a shared lock, after [`leave`] has given it the directory alone. `false`: another run
/// has locked the directory in between.
pub(super) fn share(lock: BorrowedFd) -> bool {
    flock(lock, FlockOperation::NonBlockingLockShared).is_ok()
}

impl NodeDirectory {
    /// Makes the directory for a run, or empties it of an earlier run's reports, and joins it. There is no membership if its file
    /// system has no locks.
    ///
    /// # Errors
    /// If the directory can't be made, is another user's, others can write to it, or another run is in it.
    pub(super) fn make(path: &Path, id: u64) -> io::Result<(Self, Option<Membership>)> {
        let has_no_locks = |error: &io::Error| {
            matches!(
                error.raw_os_error(),
                Some(libc::ENOLCK | libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL)
            )
        };
        // The id is new, so no mark with it is an earlier run's, however old.
        match Self::join(path, id, SystemTime::UNIX_EPOCH) {
            Ok((directory, membership)) => Ok((directory, Some(membership))),
            Err(error) if has_no_locks(&error) => Ok((Self::emptied(path, id)?, None)),
            Err(error) => Err(error),
        }
    }

    /// Makes the directory for a run if it is missing, removes the reports in it, and marks it with `id`.
    ///
    /// # Errors
    /// If that is not possible, or no run made the directory.
    fn emptied(path: &Path, id: u64) -> io::Result<Self> {
        let directory = Self::local(path)?;
        for entry in entries_of_runs(path)?.iter().filter(|entry| is_report(&entry.path())) {
            fs::remove_file(entry.path())?;
        }
        directory.remove_notes();
        let new = path.join(NEW_MARK);
        fs::write(&new, format!("{id:016x}\n"))?;
        fs::rename(new, path.join(MARK))?;
        Ok(directory)
    }

    /// Joins the directory of the run `id`, as all members of that run do. The first one makes or empties it. If no process is in the
    /// directory, a mark from before `begun_at` counts as that of an earlier run with the same id.
    ///
    /// # Errors
    /// If the directory can't be made or locked, is another user's, others can write to it, no run made it, or another run is in it.
    pub(super) fn join(path: &Path, id: u64, begun_at: SystemTime) -> io::Result<(Self, Membership)> {
        let directory = Self::local(path)?;
        // Checked first, so that no lock's file is made in a directory that no run made.
        entries_of_runs(path)?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        // A pipe or device of this name must keep nobody waiting.
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let lock = options.open(path.join(LOCK))?;
        if !lock.metadata()?.is_file() {
            return Err(io::Error::other("its lock is no file"));
        }
        let lock = OwnedFd::from(lock);
        let is_earlier = || {
            let marked_at = fs::metadata(path.join(MARK)).and_then(|mark| mark.modified());
            marked_at.is_ok_and(|marked_at| marked_at < begun_at)
        };
        let mut is_first = false;
        let deadline = Instant::now() + LOCK_PATIENCE;
        loop {
            if try_lock(&lock, FlockOperation::NonBlockingLockExclusive)?
                && (Self::open(path, id).is_err() || is_earlier())
            {
                Self::emptied(path, id)?;
                is_first = true;
            }
            // The mark is read before the shared lock is taken: members of another run must not take this process for one of theirs.
            // It is read again after that: the kernel gives an exclusive lock up before it makes it a shared one, and another run can
            // come in between.
            if Self::open(path, id).is_ok() && try_lock(&lock, FlockOperation::NonBlockingLockShared)? {
                Self::open(path, id)?;
                return Ok((directory, Membership { lock, is_first }));
            }
            if Instant::now() > deadline {
                return Err(io::Error::other("another run is in it"));
            }
            thread::sleep(LOCK_INTERVAL);
        }
    }

    /// Opens the directory of a run as an agent sees it.
    ///
    /// # Errors
    /// If the directory is not there, or is not of this run and this user.
    pub(super) fn open(path: &Path, id: u64) -> io::Result<Self> {
        let directory = Self::checked(path)?;
        match marked_id(path) {
            Some(found) if found == id => Ok(directory),
            _ => Err(io::Error::other("it is that of another run")),
        }
    }

    /// Takes the directory at this path, whatever run it is of, or makes it. An agent that does not see the nodes' directory leaves
    /// its report in such a directory.
    ///
    /// # Errors
    /// If the directory can't be made, is another user's, or others can write to it or replace it.
    pub(super) fn local(path: &Path) -> io::Result<Self> {
        user().resolve_or_create(path, 0o700).map_err(io::Error::other)?;
        Self::checked(path)
    }

    /// Takes the directory at this path, after a check that no other user can put files there, or another directory in its place.
    fn checked(path: &Path) -> io::Result<Self> {
        let found = fs::symlink_metadata(path)?;
        if !found.is_dir() || found.uid() != user().uid() || found.mode() & 0o022 != 0 {
            return Err(io::Error::other(
                "it is not a directory of this user that only this user can write to",
            ));
        }
        Ok(Self { path: user().resolve(path).map_err(io::Error::other)? })
    }

    /// Joins the run in this directory. `None`: the directory has no locks, or a run has it alone.
    pub(super) fn member(&self) -> Option<OwnedFd> {
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let lock = OwnedFd::from(options.open(self.path.join(LOCK)).ok()?);
        share(lock.as_fd()).then_some(lock)
    }

    /// The directory's path, without links.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the empty file of this node's report. `host`: the name by which ssh was called to reach the node. Finds out how far this
    /// node's clock is ahead of the file server's, by which the clocks of nodes can be compared.
    ///
    /// # Errors
    /// If the file can't be made.
    pub(super) fn check_in(&self, is_agent: bool, host: Option<&str>) -> io::Result<CheckedIn> {
        let prefix = host.map(prefix_of_host).unwrap_or_default();
        let file = self.path.join(prefix + &report_name());
        let before = SystemTime::now();
        let mut made = File::create_new(&file)?;
        // A write gives the file the time of the server's clock. The time of its creation can be the client's.
        made.write_all(b" ")?;
        made.sync_all()?;
        let after = SystemTime::now();
        made.set_len(0)?;
        let written = made.metadata()?.modified()?;
        let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).map(|time| time.as_secs_f64());
        let clock_ahead_s = match (seconds(before), seconds(after), seconds(written)) {
            (Ok(before_s), Ok(after_s), Ok(written_s)) => Some((before_s + after_s) / 2.0 - written_s),
            _ => None,
        };
        let directory = Some(self.path.to_string_lossy().into_owned());
        Ok(CheckedIn { file, part: NodePart { is_agent, clock_ahead_s, ready_s: None, directory } })
    }

    /// Makes the empty file of a rank's report. Returns the file, and the prefix that the names of all reports of its run have: the run's
    /// number. If a job starts several commands, each is a run. The first run of a rank has number 0.
    ///
    /// # Errors
    /// If the file can't be made.
    pub(super) fn check_in_rank(&self, rank: u32) -> io::Result<(PathBuf, String)> {
        let rank = rank.to_string();
        // A report's name is RUN.RANK.HOST.PID.json.
        let is_of_rank = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.split('.').nth(1) == Some(&rank)
        };
        let number = self.reports()?.iter().filter(|path| is_of_rank(path)).count();
        let prefix = format!("{number}.");
        let name = format!("{prefix}{rank}.{}.{}.{}", host(), std::process::id(), format::JSON_NAME);
        let file = self.path.join(name);
        File::create_new(&file)?;
        Ok((file, prefix))
    }

    /// Lists the reports in the directory. First a file is made and removed, so that a client of a network file system asks the
    /// server for the directory's content.
    ///
    /// # Errors
    /// If the directory can't be read.
    pub(super) fn reports(&self) -> io::Result<Vec<PathBuf>> {
        let probe = self.path.join(format!(".{}.{}", host(), std::process::id()));
        if File::create_new(&probe).is_ok() {
            // An error leaves an empty file with a hidden name.
            let _ = fs::remove_file(&probe);
        }
        let mut reports =
            fs::read_dir(&self.path)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        reports.retain(|path| is_report(path));
        reports.order_by(Ord::cmp);
        Ok(reports)
    }

    /// The nodes on which no agent could run, as those that see the directory say.
    pub(super) fn absences(&self) -> Vec<(String, Absence)> {
        let names = fs::read_dir(&self.path).into_iter().flatten().flatten().map(|entry| entry.file_name());
        names
            .filter_map(|name| {
                let name = name.to_string_lossy();
                let (node, absence) = Absence::at_end_of(&name)?;
                Some((node.to_owned(), absence))
            })
            .collect()
    }

    /// Removes what [`Self::absences`] reads, and what tasks have said. A directory that is not empty stays.
    fn remove_notes(&self) {
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if Absence::at_end_of(&name.to_string_lossy()).is_some() {
                let _ = fs::remove_dir(entry.path());
            } else if name.as_encoded_bytes().starts_with(SAID.as_bytes()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Removes the reports in the directory and the files of this module; then the directory, if it is empty.
    pub(super) fn remove(self) {
        let reports = self.reports().unwrap_or_default();
        let names = [MARK, LOCK, NOTE].map(|name| self.path.join(name));
        for path in reports.into_iter().chain(names) {
            // A file that can't be removed keeps the directory, too, so the user finds it there.
            let _ = fs::remove_file(path);
        }
        self.remove_notes();
        let _ = fs::remove_dir(&self.path);
    }
}

/// What the names of reports begin with whose agents ssh has started on the host of this name.
pub(super) fn prefix_of_host(host: &str) -> String {
    format!("{host}@")
}

/// The name of this node's report.
pub(super) fn report_name() -> String {
    format!("{}.{}.{}", host(), std::process::id(), format::JSON_NAME)
}

/// Reads the id of the run from the mark of a directory of nodes' reports. `None`: there is no file [`MARK`], or it is no mark.
fn marked_id(path: &Path) -> Option<u64> {
    let mark = path.join(MARK);
    let found = fs::symlink_metadata(&mark).ok()?;
    if !found.is_file() || found.len() != MARK_BYTES {
        return None;
    }
    u64::from_str_radix(fs::read_to_string(mark).ok()?.trim_end(), 16).ok()
}

/// Lists a directory of nodes' reports.
///
/// # Errors
/// If it can't be read, or it has files and no mark, so that no run made it.
fn entries_of_runs(path: &Path) -> io::Result<Vec<fs::DirEntry>> {
    let entries = fs::read_dir(path)?.collect::<io::Result<Vec<_>>>()?;
    // A run makes these before its mark.
    let is_earlier = |entry: &fs::DirEntry| [LOCK, NEW_MARK].iter().any(|name| entry.file_name() == *name);
    if marked_id(path).is_none() && !entries.iter().all(is_earlier) {
        return Err(io::Error::other("it is there, and no run over several nodes made it"));
    }
    Ok(entries)
}

/// This user, with trust in its groups: these may write to the directories above, because many users have the umask 002.
fn user() -> User {
    User::this().trusting_groups()
}

/// Tries to take this lock, in the way that `operation` says. `false`: another process holds it.
fn try_lock(lock: &OwnedFd, operation: FlockOperation) -> io::Result<bool> {
    match flock(lock, operation) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The name of this node, with `_` for characters that a file's name should not have.
pub(super) fn host() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect()
}

/// Whether a file can be a node's report, by its name.
fn is_report(path: &Path) -> bool {
    let name = path.file_name().map(OsStr::as_encoded_bytes);
    path.extension() == Some(OsStr::new(format::JSON_NAME))
        && name.is_some_and(|name| !name.starts_with(b"."))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::Command;
    use std::sync::Barrier;

    use super::*;

    // Requirement: NODE-11
    #[test]
    fn only_the_directory_of_this_run_and_user_is_used() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a.json.d");
        let (made, place) = NodeDirectory::make(&path, 7).unwrap();
        let own = made.check_in(false, None).unwrap();
        let agent = NodeDirectory::open(&path, 7).unwrap();
        assert!(NodeDirectory::open(&path, 8).is_err(), "that of another run");
        assert_eq!(agent.reports().unwrap(), [own.file.as_path()]);
        // The file system's clock is this kernel's.
        assert!(own.part.clock_ahead_s.unwrap().abs() < 1.0, "{:?}", own.part);
        // The next run begins with none.
        assert!(NodeDirectory::make(&path, 9).is_err(), "the run is in it");
        drop(place);
        let (again, _place) = NodeDirectory::make(&path, 9).unwrap();
        assert_eq!(again.reports().unwrap(), [] as [PathBuf; 0]);
        symlink(&path, parent.path().join("link")).unwrap();
        assert!(NodeDirectory::open(&parent.path().join("link"), 9).is_err(), "a link");
        let set_mode =
            |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        set_mode(&path, 0o777);
        assert!(NodeDirectory::open(&path, 9).is_err(), "others can write to it");
        set_mode(&path, 0o700);
        set_mode(parent.path(), 0o757);
        assert!(NodeDirectory::open(&path, 9).is_err(), "others can replace it");
        set_mode(parent.path(), 0o700);
        again.remove();
        assert!(!path.exists());
        // A pipe with the lock's name keeps nobody waiting.
        fs::create_dir(&path).unwrap();
        fs::write(path.join(MARK), "0000000000000009\n").unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, path.join(LOCK), rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        assert!(NodeDirectory::make(&path, 1).is_err());
        assert!(NodeDirectory::open(&path, 9).unwrap().member().is_none());
        let users = parent.path().join("users.d");
        fs::create_dir(&users).unwrap();
        fs::write(users.join("thesis.json"), "").unwrap();
        // A program of the user can have the mark's name.
        for mark in [None, Some("#!/bin/sh\n"), Some("exec echo gpu-trk\n")] {
            mark.iter().for_each(|text| fs::write(users.join(MARK), text).unwrap());
            assert!(NodeDirectory::make(&users, 1).is_err(), "files of the user");
            assert!(NodeDirectory::join(&users, 1, LONG_AGO).is_err());
            let mut names: Vec<_> =
                fs::read_dir(&users).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            assert_eq!(names.len(), 1 + usize::from(mark.is_some()), "{names:?}");
        }
    }

    // Requirement: NODE-38
    #[test]
    fn node_without_the_program_notes_it_in_the_directory_of_its_user() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a.json.d");
        let (directory, _place) = NodeDirectory::make(&path, 7).unwrap();
        let run = |directory: &Path, program: &str| {
            let script = note_absence_script(directory.to_str().unwrap(), THIS_NODE, program);
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
        };
        run(&path, "/nonexistent");
        assert_eq!(directory.absences(), [(host(), Absence::Missing)]);
        directory.remove_notes();
        run(&path, "/bin/sh");
        assert_eq!(directory.absences(), [(host(), Absence::OtherVersion)]);
        // Neither is there a directory of the run, nor does a link lead to another place.
        let other = parent.path().join("other");
        run(&other, "/nonexistent");
        fs::create_dir(&other).unwrap();
        run(&other, "/nonexistent");
        assert_eq!(fs::read_dir(&other).unwrap().count(), 0, "it is not marked");
        drop(directory);
        assert_eq!(NodeDirectory::make(&path, 8).ok().map(|_| ()), None, "the run is in it");
    }

    /// Nothing is from before this time.
    const LONG_AGO: SystemTime = SystemTime::UNIX_EPOCH;

    // Requirement: NODE-18
    #[test]
    fn last_rank_to_leave_has_the_directory_alone() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a.json.d");
        let (directory, first) = NodeDirectory::join(&path, 7, LONG_AGO).unwrap();
        let (own, _) = directory.check_in_rank(0).unwrap();
        // Its mark is older than this, and a member is in it.
        let later = SystemTime::now() + Duration::from_secs(9);
        let (directory, second) = NodeDirectory::join(&path, 7, later).unwrap();
        assert_eq!((first.is_first, second.is_first), (true, false));
        assert_eq!(directory.reports().unwrap(), [own.as_path()], "the second empties nothing");
        assert!(NodeDirectory::join(&path, 8, LONG_AGO).is_err(), "ranks of another run are in it");
        assert!(NodeDirectory::make(&path, 8).is_err(), "so it is for a run over nodes");
        assert!(!leave(first.lock.as_fd()), "another is in it");
        assert!(leave(second.lock.as_fd()));
        assert!(share(second.lock.as_fd()));
        drop((first, second));
        // Another run begins with none, and so does one of this id that began later than the mark was made.
        for (id, begun_at) in [(7, later), (8, LONG_AGO)] {
            let (directory, next) = NodeDirectory::join(&path, id, begun_at).unwrap();
            assert_eq!((next.is_first, directory.reports().unwrap().len()), (true, 0));
            directory.check_in_rank(0).unwrap();
        }
    }

    // Requirement: NODE-18
    #[test]
    fn commands_of_a_job_have_names_of_their_own_for_their_reports() {
        let parent = tempfile::tempdir().unwrap();
        let (directory, _first) = NodeDirectory::join(&parent.path().join("d"), 7, LONG_AGO).unwrap();
        let prefix = |rank| directory.check_in_rank(rank).unwrap().1;
        assert_eq!([prefix(1), prefix(11), prefix(1), prefix(0)], ["0.", "0.", "1.", "0."]);
    }

    // Requirement: NODE-18
    #[test]
    fn ranks_that_come_and_leave_at_once_have_one_first_and_at_least_one_last() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a.json.d");
        for id in 0..50 {
            let meet = Barrier::new(4);
            let rank = || {
                let (_, place) = NodeDirectory::join(&path, id, LONG_AGO).unwrap();
                meet.wait();
                (place.is_first, leave(place.lock.as_fd()))
            };
            let ranks: Vec<(bool, bool)> = thread::scope(|scope| {
                let ranks: Vec<_> = (0..4).map(|_| scope.spawn(rank)).collect();
                ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
            });
            assert_eq!(ranks.iter().filter(|(is_first, _)| *is_first).count(), 1, "{ranks:?}");
            assert!(ranks.iter().any(|(_, is_last)| *is_last), "{ranks:?}");
        }
    }
}
