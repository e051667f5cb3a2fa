//! The I/O of the launcher and of all processes that are not reaped, with that of the children that they waited for. The launcher of
//! a run that attached to a process has no child of the run, so it is left out.
//!
//! I/O by calls is that of the processes since the start of the run. So what the launcher did itself is taken off, and what its
//! children did before. Its first thread does all of its work while the command runs.
//!
//! A reading of a process takes 4 us where its file is held open, and 15 us otherwise (Linux 6.18). So processes are read once a
//! second, and more rarely if they are many. A process that has waited for children since the last reading takes three: the file of its
//! first thread, which has no children in it, is read before and after its own, 8 us each. A held file gives ESRCH after reaping, so two
//! processes of one pid are never mixed.
//! Processes of other users can't be read: their I/O counts when their parents have waited for them.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use rustc_hash::FxHashMap;
use rustix::process::{Resource, getrlimit};

use crate::model::io_calls::{CallsReading, IoCalls, IoTarget, NoIoCalls, ProcessCalls};
use crate::model::observation::Observation;
use crate::model::tree_sample::IoBytes;
use crate::sys::clock;
use crate::sys::proc_fs::{Io, ProcRoot, read_held};

/// The processes are read once in this time at most.
const PERIOD_NS: u64 = 1_000_000_000;
/// For each process there is at least this much time between two readings: that is 0.5% of a core.
const PERIOD_A_PROCESS_NS: u64 = 3_000_000;
/// In a run below this age, the file of the launcher's thread is not read, since that takes 15 us.
const YOUNG_NS: u64 = 50_000_000;

/// Reads I/O.
#[derive(Debug)]
pub(crate) struct IoUsage {
    root: ProcRoot,
    /// When the next reading is due, CLOCK_MONOTONIC nanoseconds.
    due_ns: u64,
    /// The launcher, the topmost process. `None`: the run attached to a process, whose parent is another program.
    launcher_pid: Option<u32>,
    /// What the launcher's children, and its threads beside the first one, had passed by calls before the session.
    calls_before: IoCalls,
    /// Nothing was read yet.
    is_first: bool,
    files: HeldFiles,
}

/// Which `io` file of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Whose {
    /// That of the process, with the children that it waited for.
    Process,
    /// That of its first thread alone.
    FirstThread,
}

/// Why an `io` file could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unread {
    /// The process is gone, or the kernel does not count I/O.
    Gone,
    /// It may not be read.
    Denied,
}

/// The `io` files of processes, held open from one reading to the next.
#[derive(Debug, Default)]
struct HeldFiles {
    /// By pid, each with the number of the last reading that read it.
    by_pid: FxHashMap<(u32, Whose), (File, u64)>,
    /// The number of this reading.
    reading: u64,
    /// A live process could not be read in this reading, for lack of permission.
    is_denied: bool,
}

impl HeldFiles {
    /// Reads the I/O of a process.
    fn read(&mut self, root: &ProcRoot, pid: u32, whose: Whose) -> Result<Io, Unread> {
        let mut buffer = [0; 512];
        if let Some((file, reading)) = self.by_pid.get_mut(&(pid, whose))
            && let Some(io) = read_held(file, &mut buffer).and_then(Io::parse)
        {
            *reading = self.reading;
            return Ok(io);
        }
        let file = match whose {
            Whose::Process => root.open(pid, "io"),
            Whose::FirstThread => root.open(pid, &format!("task/{pid}/io")),
        };
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => Unread::Denied,
            _ => Unread::Gone,
        });
        self.is_denied |= matches!(file, Err(Unread::Denied));
        let file = file?;
        let io = read_held(&file, &mut buffer).and_then(Io::parse).ok_or(Unread::Gone)?;
        if has_room_beyond(&file) {
            self.by_pid.insert((pid, whose), (file, self.reading));
        }
        Ok(io)
    }

    /// Reads the I/O of a process, and notes what it passed by calls. `None`: it could not be read.
    fn read_target(&mut self, root: &ProcRoot, target: &IoTarget, noted: &mut CallsReading) -> Option<Io> {
        let before = self.read_first_thread(root, target);
        let io = self.read(root, target.pid, Whose::Process);
        let after = self.read_first_thread(root, target);
        let first_thread = before.zip(after).map(|(before, after)| [before, after]);
        match (io, target.id) {
            (Ok(io), Some((id, waits))) => {
                noted.processes.push(ProcessCalls { id, waits, whole: io.calls, first_thread });
            }
            (Err(Unread::Gone), Some((id, _))) => noted.unread.push(id),
            _ => {}
        }
        io.ok()
    }

    /// Reads what the first thread of a process passed by calls, if that is needed. `None`: it is not, or it could not be read.
    fn read_first_thread(&mut self, root: &ProcRoot, target: &IoTarget) -> Option<IoCalls> {
        let io = target.needs_first_thread.then(|| self.read(root, target.pid, Whose::FirstThread));
        Some(io?.ok()?.calls)
    }

    /// Ends a reading: closes the files that it did not read. Returns whether a live process could not be read for lack of permission.
    fn end_reading(&mut self) -> bool {
        self.by_pid.retain(|_, (_, reading)| *reading == self.reading);
        self.reading += 1;
        std::mem::take(&mut self.is_denied)
    }
}

/// Whether this file may stay open: its descriptor is in the first eighth of the limit. The rest is for the files that sampling holds
/// open.
fn has_room_beyond(file: &File) -> bool {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    u64::from(file.as_raw_fd().unsigned_abs()) < limit / 8
}

impl IoUsage {
    /// Prepares the first reading. `launcher_pid` and `calls_before` are as in the fields.
    pub(crate) fn new(root: ProcRoot, launcher_pid: Option<u32>, calls_before: IoCalls) -> Self {
        Self { root, due_ns: 0, launcher_pid, calls_before, is_first: true, files: HeldFiles::default() }
    }

    /// Reads the sum of the I/O, if a reading is due at `now_ns` (CLOCK_MONOTONIC), and sets when the next one is. `age_ns`: how
    /// long the run has lasted. `is_last`: reads in any case, for the last sample of the run. `targets` lists the processes, parents before
    /// their children.
    pub(crate) fn read(
        &mut self,
        now_ns: u64,
        age_ns: u64,
        is_last: bool,
        targets: impl FnOnce() -> Vec<IoTarget>,
    ) -> Option<Observation> {
        if now_ns < self.due_ns && !is_last {
            return None;
        }
        let targets = targets();
        let files: u64 = targets.iter().map(|target| if target.needs_first_thread { 3 } else { 1 }).sum();
        self.due_ns = now_ns + PERIOD_NS.max(files * PERIOD_A_PROCESS_NS);
        let is_first = std::mem::take(&mut self.is_first);
        let mut by_process = CallsReading { began_ns: clock::monotonic_ns(), ..CallsReading::default() };
        let sum = self.sum(&targets, &mut by_process);
        let is_denied = self.files.end_reading();
        let is_young = age_ns < YOUNG_NS;
        let calls = if is_young { Err(NoIoCalls::Early) } else { self.calls(sum, is_denied) };
        let cancelled = sum.and_then(|sum| sum.cancelled);
        let sum = sum.map(|sum| IoBytes { read: sum.read, written: sum.written });
        Some(Observation::Io { sum, cancelled, calls, by_process, is_first })
    }

    /// What the processes of the run have passed by calls, from the `sum` of a reading. `is_denied`: it lacks a live process.
    fn calls(&self, sum: Option<Io>, is_denied: bool) -> Result<IoCalls, NoIoCalls> {
        let launcher = self.launcher_pid.ok_or(NoIoCalls::Attached)?;
        let sum = sum.ok_or(NoIoCalls::Unreadable)?;
        if is_denied {
            return Err(NoIoCalls::Denied);
        }
        let of_launcher = self.root.io_calls_of_first_thread(launcher).ok_or(NoIoCalls::Unreadable)?;
        Ok(sum.calls.without(of_launcher).without(self.calls_before))
    }

    /// Adds up the I/O of the launcher and of these processes, parents before their children, and notes what each passed by calls. `None`:
    /// the launcher's I/O can't be read, or no process's can.
    fn sum(&mut self, targets: &[IoTarget], by_process: &mut CallsReading) -> Option<Io> {
        // The launcher comes first, as the parent of all. A process that is reaped during the reading is then missing, and the
        // next reading has it in its parent's I/O. In the other order it would count twice.
        let Self { root, files, .. } = self;
        let launcher = self.launcher_pid.map(|pid| files.read(root, pid, Whose::Process)).transpose().ok()?;
        let others = targets.iter().filter_map(|target| files.read_target(root, target, by_process));
        launcher.into_iter().chain(others).reduce(|sum, one| Io {
            read: sum.read.saturating_add(one.read),
            written: sum.written.saturating_add(one.written),
            cancelled: sum.cancelled.zip(one.cancelled).map(|(sum, one)| sum.saturating_add(one)),
            calls: sum.calls.plus(one.calls),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use rustix::process::{Uid, geteuid};
    use rustix::thread::set_thread_uid;

    use super::*;
    use crate::model::ids::ProcessId;

    /// A /proc where these processes have read and written so many bytes.
    fn proc_with(processes: &[(u32, u64, u64)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (pid, read, written) in processes {
            let path = dir.path().join(pid.to_string());
            fs::create_dir_all(&path).unwrap();
            let text = format!("rchar: 9\nwchar: 9\nread_bytes: {read}\nwrite_bytes: {written}\n");
            fs::write(path.join("io"), text).unwrap();
        }
        dir
    }

    /// These processes, with ids that are their pids.
    fn targets(pids: &[u32]) -> Vec<IoTarget> {
        let target = |pid: &u32| IoTarget {
            pid: *pid,
            id: Some((ProcessId(u64::from(*pid)), 0)),
            needs_first_thread: false,
        };
        pids.iter().map(target).collect()
    }

    fn sum(observation: Option<Observation>) -> Option<(Option<IoBytes>, bool)> {
        let Observation::Io { sum, is_first, .. } = observation? else { panic!("another observation") };
        Some((sum, is_first))
    }

    #[test]
    fn sum_has_the_launcher_and_all_that_can_be_read() {
        let dir = proc_with(&[(1, 10, 20), (2, 100, 200)]);
        let mut usage = IoUsage::new(ProcRoot::new(dir.path()), Some(1), IoCalls::default());
        let all = IoBytes { read: 110, written: 220 };
        assert_eq!(sum(usage.read(0, 0, false, || targets(&[2, 3]))), Some((Some(all), true)));
        assert_eq!(sum(usage.read(PERIOD_NS, 0, false, || targets(&[2, 3]))), Some((Some(all), false)));
    }

    // Requirement: IO-5
    #[test]
    fn calls_are_those_of_the_run_alone() {
        let dir = tempfile::tempdir().unwrap();
        let put = |file: &str, [rchar, wchar, syscr, syscw]: [u64; 4]| {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let text = format!("rchar: {rchar}\nwchar: {wchar}\nsyscr: {syscr}\nsyscw: {syscw}\n");
            fs::write(path, text + "read_bytes: 0\nwrite_bytes: 0\n").unwrap();
        };
        // The launcher has reaped a child before the run, and one since.
        put("1/io", [10_000, 1000, 100, 10]);
        put("1/task/1/io", [300, 30, 3, 2]);
        put("2/io", [5, 6, 7, 8]);
        let before = IoCalls { read_bytes: 1000, write_bytes: 100, reads: 10, writes: 1 };
        let mut usage = IoUsage::new(ProcRoot::new(dir.path()), Some(1), before);
        let mut calls = |age_ns, pid| match usage.read(age_ns, age_ns, true, || targets(&[pid])) {
            Some(Observation::Io { calls, .. }) => calls,
            other => panic!("{other:?}"),
        };
        assert_eq!(calls(YOUNG_NS - 1, 2), Err(NoIoCalls::Early));
        let of_run = IoCalls { read_bytes: 8705, write_bytes: 876, reads: 94, writes: 15 };
        assert_eq!(calls(YOUNG_NS, 2), Ok(of_run));
        let without_2 = IoCalls { read_bytes: 8700, write_bytes: 870, reads: 87, writes: 7 };
        assert_eq!(calls(YOUNG_NS, 3), Ok(without_2), "it is gone");
        fs::write(dir.path().join("1/io"), "").unwrap();
        fs::remove_file(dir.path().join("1/io")).unwrap();
        assert_eq!(calls(YOUNG_NS, 2), Err(NoIoCalls::Unreadable));
    }

    // Requirement: IO-7
    #[test]
    fn first_thread_of_a_process_is_read_before_and_after_it_where_that_is_needed() {
        let dir = proc_with(&[(1, 0, 0), (2, 0, 0), (3, 0, 0)]);
        let thread = dir.path().join("3/task/3");
        fs::create_dir_all(&thread).unwrap();
        fs::write(thread.join("io"), "rchar: 5\nread_bytes: 0\nwrite_bytes: 0\n").unwrap();
        let mut usage = IoUsage::new(ProcRoot::new(dir.path()), Some(1), IoCalls::default());
        let mut all = targets(&[2, 3, 4]);
        all[1].needs_first_thread = true;
        let read = usage.read(0, 0, false, || all);
        let Some(Observation::Io { by_process, .. }) = read else { panic!("{read:?}") };
        let whole = IoCalls { read_bytes: 9, write_bytes: 9, ..IoCalls::default() };
        let own = IoCalls { read_bytes: 5, ..IoCalls::default() };
        let calls = |pid, first_thread| ProcessCalls { id: ProcessId(pid), waits: 0, whole, first_thread };
        assert_eq!(by_process.processes, [calls(2, None), calls(3, Some([own; 2]))]);
        assert_eq!(by_process.unread, [ProcessId(4)]);
    }

    #[test]
    fn kernel_without_io_accounting_has_no_sum() {
        let dir = proc_with(&[(2, 100, 200)]);
        let mut usage = IoUsage::new(ProcRoot::new(dir.path()), Some(1), IoCalls::default());
        assert_eq!(sum(usage.read(0, 0, false, || targets(&[2]))), Some((None, true)));
    }

    #[test]
    fn file_is_held_as_long_as_its_process_is_read() {
        let dir = proc_with(&[(1, 10, 20), (2, 100, 200)]);
        let mut usage = IoUsage::new(ProcRoot::new(dir.path()), Some(1), IoCalls::default());
        let held = |usage: &IoUsage| usage.files.by_pid.len();
        usage.read(0, 0, true, || targets(&[2]));
        assert_eq!(held(&usage), 2);
        // A file that says nothing any more, as after reaping, is opened again: the pid can be another process's.
        for pid in ["1", "2"] {
            fs::write(dir.path().join(pid).join("io"), "").unwrap();
        }
        fs::remove_file(dir.path().join("1/io")).unwrap();
        fs::write(dir.path().join("1/io"), "read_bytes: 7\nwrite_bytes: 8\n").unwrap();
        let sum = sum(usage.read(1, 0, true, || targets(&[2])));
        assert_eq!(sum, Some((Some(IoBytes { read: 7, written: 8 }), false)));
        assert_eq!(held(&usage), 1);
    }

    // Requirement: ATTACH-2
    #[test]
    fn run_that_attached_has_the_sum_of_its_processes_alone() {
        let dir = proc_with(&[(1, 10, 20), (2, 100, 200), (3, 1, 2)]);
        let mut usage = IoUsage::new(ProcRoot::new(dir.path()), None, IoCalls::default());
        let all = IoBytes { read: 101, written: 202 };
        assert_eq!(sum(usage.read(0, 0, false, || targets(&[2, 3]))), Some((Some(all), true)));
        assert_eq!(sum(usage.read(PERIOD_NS, 0, false, || targets(&[4]))), Some((None, false)));
    }

    // Requirement: IO-53
    #[test]
    fn many_processes_are_read_more_rarely_and_at_the_end_in_any_case() {
        let dir = proc_with(&[(1, 10, 20)]);
        let mut usage = IoUsage::new(ProcRoot::new(dir.path()), Some(1), IoCalls::default());
        let many = || targets(&[9; 1000]);
        let times = [(0, false), (PERIOD_NS, false), (PERIOD_NS + 1, true), (5 * PERIOD_NS, false)];
        let is_read = times.map(|(now_ns, is_last)| usage.read(now_ns, 0, is_last, many).is_some());
        assert_eq!(is_read, [true, false, true, true]);
    }

    // Requirement: IO-7
    #[test]
    fn process_that_may_not_be_read_is_not_taken_for_one_that_is_gone() {
        let dir = proc_with(&[(1, 0, 0), (2, 0, 0), (3, 0, 0)]);
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for pid in ["2", "3"] {
            fs::set_permissions(dir.path().join(pid).join("io"), fs::Permissions::from_mode(0o000)).unwrap();
        }
        let mut usage = IoUsage::new(ProcRoot::new(dir.path()), Some(1), IoCalls::default());
        let read = std::thread::spawn(move || {
            // Root may read all files, so this thread becomes another user.
            if geteuid().is_root() {
                set_thread_uid(Uid::from_raw(65_534)).unwrap();
            }
            usage.read(0, YOUNG_NS, false, || targets(&[2, 3, 4]))
        });
        let read = read.join().unwrap();
        let Some(Observation::Io { calls, by_process, .. }) = read else { panic!("{read:?}") };
        assert_eq!((calls, by_process.unread), (Err(NoIoCalls::Denied), vec![ProcessId(4)]));
    }
}
