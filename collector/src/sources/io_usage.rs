//! The block I/O of the launcher and of all processes that are not reaped, that of the children they waited for included. The
//! launcher of a run that attached to a process has no child of the run, so it is left out.
//!
//! A reading of a process takes 15 us (Linux 6.18). So they are read once a second, and more rarely if they are many. Those of
//! other users can't be read: their I/O counts when their parents have waited for them.

use crate::model::observation::Observation;
use crate::model::tree_sample::IoBytes;
use crate::sys::proc_fs::ProcRoot;

/// They are read this often at most.
const PERIOD_NS: u64 = 1_000_000_000;
/// For each process there is at least this much time between two readings: that is 0.5% of a core.
const PERIOD_A_PROCESS_NS: u64 = 3_000_000;

/// Reads block I/O.
#[derive(Debug)]
pub(crate) struct IoUsage {
    root: ProcRoot,
    /// When the next reading is due, CLOCK_MONOTONIC nanoseconds.
    due_ns: u64,
    /// The parent of all. `None`: the run attached to a process, whose parent is another program.
    launcher_pid: Option<u32>,
    is_first: bool,
}

impl IoUsage {
    /// Reads nothing yet.
    pub(crate) fn new(root: ProcRoot, launcher_pid: Option<u32>) -> Self {
        Self { root, due_ns: 0, launcher_pid, is_first: true }
    }

    /// Reads the sum, if it is due. The last sample of a run has it in any case. `pids` gives the processes, parents before
    /// their children.
    pub(crate) fn read(
        &mut self,
        now_ns: u64,
        is_last: bool,
        pids: impl FnOnce() -> Vec<u32>,
    ) -> Option<Observation> {
        if now_ns < self.due_ns && !is_last {
            return None;
        }
        let pids = pids();
        self.due_ns = now_ns + PERIOD_NS.max(pids.len() as u64 * PERIOD_A_PROCESS_NS);
        let is_first = std::mem::take(&mut self.is_first);
        // The launcher first, as the parent of all: what is reaped during the reading is in the next one, and never twice in this.
        let launcher = self.launcher_pid.map(|pid| self.bytes(pid));
        let is_unread = launcher == Some(None);
        let others = pids.into_iter().map(|pid| self.bytes(pid));
        let all = launcher.into_iter().chain(others).flatten();
        let sum = all.filter(|_| !is_unread).reduce(|sum, one| IoBytes {
            read: sum.read.saturating_add(one.read),
            written: sum.written.saturating_add(one.written),
        });
        Some(Observation::Io { sum, is_first })
    }

    fn bytes(&self, pid: u32) -> Option<IoBytes> {
        self.root.io_bytes(pid).map(|(read, written)| IoBytes { read, written })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

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

    fn sum(observation: Option<Observation>) -> Option<(Option<IoBytes>, bool)> {
        let Observation::Io { sum, is_first } = observation? else { panic!("another observation") };
        Some((sum, is_first))
    }

    #[test]
    fn sum_has_the_launcher_and_all_that_can_be_read() {
        let dir = proc_with(&[(1, 10, 20), (2, 100, 200)]);
        let mut usage = IoUsage::new(ProcRoot::new(dir.path()), Some(1));
        let all = IoBytes { read: 110, written: 220 };
        assert_eq!(sum(usage.read(0, false, || vec![2, 3])), Some((Some(all), true)));
        assert_eq!(sum(usage.read(PERIOD_NS, false, || vec![2, 3])), Some((Some(all), false)));
    }

    #[test]
    fn kernel_without_io_accounting_has_no_sum() {
        let dir = proc_with(&[(2, 100, 200)]);
        let mut usage = IoUsage::new(ProcRoot::new(dir.path()), Some(1));
        assert_eq!(sum(usage.read(0, false, || vec![2])), Some((None, true)));
    }

    // Requirement: ATTACH-2
    #[test]
    fn run_that_attached_has_the_sum_of_its_processes_alone() {
        let dir = proc_with(&[(1, 10, 20), (2, 100, 200), (3, 1, 2)]);
        let mut usage = IoUsage::new(ProcRoot::new(dir.path()), None);
        let all = IoBytes { read: 101, written: 202 };
        assert_eq!(sum(usage.read(0, false, || vec![2, 3])), Some((Some(all), true)));
        assert_eq!(sum(usage.read(PERIOD_NS, false, || vec![4])), Some((None, false)));
    }

    // Requirement: IO-53
    #[test]
    fn many_processes_are_read_more_rarely_and_at_the_end_in_any_case() {
        let dir = proc_with(&[(1, 10, 20)]);
        let mut usage = IoUsage::new(ProcRoot::new(dir.path()), Some(1));
        let many = || vec![9; 1000];
        let times = [(0, false), (PERIOD_NS, false), (PERIOD_NS + 1, true), (5 * PERIOD_NS, false)];
        let is_read = times.map(|(now_ns, is_last)| usage.read(now_ns, is_last, many).is_some());
        assert_eq!(is_read, [true, false, true, true]);
    }
}
