//! Space on the file systems where the command may want to write: those of the working directory, the directory for temporary
//! files, and the reports.
//!
//! A network file system may not answer, so each file system is asked by a thread of its own. A thread that never gets an answer ends
//! with the collector.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::Duration;

use rustix::fs::StatVfsMountFlags;

use crate::model::observation::{FreeSpace, Observation};
use crate::model::report::{DiskFull, DiskRole};
use crate::model::sorting::Sorting;
use crate::sys::clock::Timer;

/// A file system with less space than this counts as full: a write that fails for lack of space may leave a part of it free.
const FULL_BYTES: u64 = 1 << 20;
/// The report waits this long for the next answer at most.
const LONGEST_WAIT: Duration = Duration::from_millis(200);
/// During the run, the file systems are asked once in this time at most, nanoseconds.
const PERIOD_NS: u64 = 1_000_000_000;
/// Time from the first sample to the first question, nanoseconds: each question takes a thread, and a shorter run has no use for the
/// answer.
const FIRST_ASK_NS: u64 = 50_000_000;

/// A directory where the command may want to write.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Directory {
    role: DiskRole,
    path: PathBuf,
}

/// The directories where the command may want to write. `reports`: the paths of the report files.
fn directories<'a>(reports: impl Iterator<Item = &'a Path>) -> Vec<Directory> {
    let working = std::env::current_dir().ok();
    let temporary = std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    let all = [(DiskRole::Working, working), (DiskRole::Temporary, Some(temporary))];
    let of_reports = reports.map(|path| (DiskRole::Report, path.parent().map(Path::to_owned)));
    let all = all.into_iter().chain(of_reports);
    all.filter_map(|(role, path)| Some(Directory { role, path: path? })).collect()
}

/// The full file systems among those where the command may want to write. A file system that does not answer in time is left out.
/// `reports`: the paths of the report files.
pub(crate) fn full<'a>(reports: impl Iterator<Item = &'a Path>) -> Vec<DiskFull> {
    let (sender, found) = mpsc::channel();
    for directory in directories(reports) {
        let sender = sender.clone();
        // Without a thread this disk stays unknown.
        let _ = std::thread::Builder::new().spawn(move || sender.send(full_disk(&directory)));
    }
    drop(sender);
    let mut full: Vec<DiskFull> = Vec::new();
    // Ends when all have answered, or none has for this time.
    while let Ok(disk) = found.recv_timeout(LONGEST_WAIT) {
        full.extend(disk);
    }
    full.order_by_key(|disk| disk.role as u8);
    full
}

/// The file system of a directory, if it may be written to and is full for this user. `None`: it is not full, or its space
/// is not known.
fn full_disk(directory: &Directory) -> Option<DiskFull> {
    let found = rustix::fs::statvfs(&directory.path).ok()?;
    let available_bytes = available_bytes(&found)?;
    let is_full = !found.f_flag.contains(StatVfsMountFlags::RDONLY) && available_bytes < FULL_BYTES;
    let path = directory.path.display().to_string();
    is_full.then_some(DiskFull { path, role: directory.role, available_bytes })
}

/// The space that this user may still fill, bytes. `None`: the file system has no blocks at all, as /proc.
fn available_bytes(found: &rustix::fs::StatVfs) -> Option<u64> {
    // `f_bavail` lacks the blocks that are reserved for root.
    let blocks = if rustix::process::geteuid().is_root() { found.f_bfree } else { found.f_bavail };
    (found.f_blocks > 0).then(|| blocks.saturating_mul(found.f_frsize))
}

/// Asks the file systems while the command runs.
#[derive(Debug)]
pub(crate) struct FreeSpaces {
    /// The first sample, CLOCK_MONOTONIC nanoseconds. `None`: there was none.
    first_ns: Option<u64>,
    timer: Timer,
    directories: Vec<(Directory, Asked)>,
}

/// What became of the last question to a file system.
#[derive(Debug)]
enum Asked {
    /// There was no question, or it is answered.
    Not,
    /// The question is not answered yet.
    Waiting(Receiver<Option<FreeSpace>>),
}

impl FreeSpaces {
    /// Prepares the questions. Of several reports, only the first one's directory is asked for.
    pub(crate) fn new<'a>(reports: impl Iterator<Item = &'a Path>) -> Self {
        let directories = directories(reports.take(1)).into_iter().map(|directory| (directory, Asked::Not));
        Self { first_ns: None, timer: Timer::default(), directories: directories.collect() }
    }

    /// The answers that came since the last call. If it is time, asks again each file system that has answered. `now_ns`:
    /// CLOCK_MONOTONIC. `None`: no answer came.
    pub(crate) fn read(&mut self, now_ns: u64) -> Option<Observation> {
        let age_ns = now_ns.saturating_sub(*self.first_ns.get_or_insert(now_ns));
        let is_due = age_ns >= FIRST_ASK_NS && self.timer.is_due(now_ns, PERIOD_NS);
        let mut answers = Vec::new();
        for (directory, asked) in &mut self.directories {
            if let Asked::Waiting(answer) = asked {
                match answer.try_recv() {
                    Ok(answer) => answers.extend(answer),
                    Err(TryRecvError::Empty) => continue,
                    Err(TryRecvError::Disconnected) => {}
                }
                *asked = Asked::Not;
            }
            if is_due {
                *asked = ask(directory.clone());
            }
        }
        (!answers.is_empty()).then_some(Observation::FreeSpace(answers))
    }
}

/// Asks the file system of a directory in a thread of its own. Without a thread nothing is asked.
fn ask(directory: Directory) -> Asked {
    let (sender, answer) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().spawn(move || sender.send(free_space(&directory)));
    thread.map_or(Asked::Not, |_| Asked::Waiting(answer))
}

/// Asks the file system of a directory. `None`: there is no such directory, or it has no blocks.
fn free_space(directory: &Directory) -> Option<FreeSpace> {
    let device = rustix::fs::stat(&directory.path).ok()?.st_dev;
    let free_bytes = available_bytes(&rustix::fs::statvfs(&directory.path).ok()?)?;
    Some(FreeSpace { role: directory.role, path: directory.path.display().to_string(), device, free_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(path: &Path) -> Directory {
        Directory { role: DiskRole::Working, path: path.to_owned() }
    }

    #[test]
    fn file_system_with_space_or_without_blocks_is_not_full() {
        let dir = tempfile::tempdir().unwrap();
        for path in [dir.path(), Path::new("/proc"), &dir.path().join("absent")] {
            assert_eq!(full_disk(&directory(path)), None);
        }
    }

    #[test]
    fn space_of_each_directory_comes_once_a_period() {
        let dir = tempfile::tempdir().unwrap();
        let report = dir.path().join("report.json");
        let mut spaces = FreeSpaces::new([report.as_path()].into_iter());
        for age_ns in [0, FIRST_ASK_NS - 1] {
            assert_eq!(spaces.read(age_ns).map(drop), None);
            assert!(spaces.directories.iter().all(|(_, asked)| matches!(asked, Asked::Not)), "it is young");
        }
        assert_eq!(spaces.read(FIRST_ASK_NS).map(drop), None, "nothing was asked before");
        let mut answers: Vec<FreeSpace> = Vec::new();
        // The answers may come one by one.
        while answers.len() < spaces.directories.len() {
            if let Some(Observation::FreeSpace(some)) = spaces.read(FIRST_ASK_NS + 1) {
                answers.extend(some);
            }
            std::thread::yield_now();
        }
        let last = answers.iter().find(|answer| answer.role == DiskRole::Report).unwrap();
        let found = rustix::fs::stat(dir.path()).unwrap();
        assert_eq!((last.path.as_str(), last.device), (dir.path().to_str().unwrap(), found.st_dev));
        assert!(spaces.directories.iter().all(|(_, asked)| matches!(asked, Asked::Not)));
        spaces.read(FIRST_ASK_NS + PERIOD_NS);
        assert!(spaces.directories.iter().all(|(_, asked)| matches!(asked, Asked::Waiting(_))));
    }

    #[test]
    fn directory_without_blocks_or_that_is_not_there_has_no_space() {
        for path in ["/proc", "/nonexistent"] {
            assert_eq!(free_space(&directory(Path::new(path))), None);
        }
    }
}
