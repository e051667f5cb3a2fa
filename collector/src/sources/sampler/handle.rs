//! A live process's files, held open, and what decides whether they must be read again.

use std::fs::File;
use std::io::{self, ErrorKind};

use crate::model::ids::Target;
use crate::model::observation::{Mappings, PeakReading, ReadingState, SharingReading, Size, Vitals};
use crate::sys::proc_fs::{self, AddressSpace, ProcRoot, Stat, Statm, read_held};
use crate::sys::{clock, pidfd, rlimit};

/// A process that did not run since its last reading is read again after this time: the kernel may have reclaimed memory of
/// the process.
const LONGEST_REST_NS: u64 = 1_000_000_000;

/// From smaps, the anonymous part of the PSS is partly an estimate. If the estimate concerns at most one part in this many of the
/// RSS, smaps_rollup is not read.
const ESTIMATED_PART: u64 = 64;

/// Why a process's files can't be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenError {
    /// The process is gone, or another one has its pid.
    Gone,
    /// The files may not be read.
    Hidden,
}

/// Files of one process, and its last reading.
#[derive(Debug)]
pub(super) struct Handle {
    target: Target,
    /// Size of a page.
    page_bytes: u64,
    /// The length of a clock tick of its start time, microseconds.
    tick_us: u64,
    /// The thread whose files show the process's memory: another than the first once that has ended alone.
    memory_thread: u32,
    /// When stat and statm were last read, CLOCK_MONOTONIC nanoseconds.
    read_at_ns: u64,
    /// stat and statm, held open where the fd limit allows.
    files: Option<(File, File)>,
    /// The process's CPU clock when it was last read, nanoseconds.
    cpu_ns: Option<u64>,
}

/// What statm says.
enum Memory {
    /// The process has memory.
    Size(Size),
    /// The process is there without memory: it is about to end, or in the middle of an exec.
    None,
    /// The file can't be read any more.
    Gone,
}

impl Handle {
    /// Opens the files of a process. `page_bytes` and `tick_us` are as in the fields.
    pub(super) fn open(
        root: &ProcRoot,
        target: &Target,
        page_bytes: u64,
        tick_us: u64,
    ) -> Result<Self, OpenError> {
        let pid = target.pid;
        let files = match (root.open(pid, "stat"), root.open(pid, "statm")) {
            (Ok(stat), Ok(statm)) => Some((stat, statm)),
            // No fd is left: the files are opened and closed at every reading.
            (Err(error), _) | (_, Err(error)) if is_fd_limit(&error) => None,
            (Err(error), _) | (_, Err(error)) => {
                let is_gone = error.kind() == ErrorKind::NotFound && pidfd::is_gone(pid);
                return Err(if is_gone { OpenError::Gone } else { OpenError::Hidden });
            }
        };
        let handle = Self {
            target: *target,
            page_bytes,
            tick_us,
            memory_thread: pid,
            read_at_ns: 0,
            files,
            cpu_ns: None,
        };
        // The pid may have been given to another process before the files were opened.
        let is_process = handle.stat(root).is_some_and(|stat| handle.is_shown(&stat));
        if is_process { Ok(handle) } else { Err(OpenError::Gone) }
    }

    /// Whether this stat, read by the pid, shows the process, and not a later one that has got the pid.
    fn is_shown(&self, stat: &Stat) -> bool {
        let Target { pid, identity, .. } = self.target;
        identity.is_shown(stat.start_ns(self.tick_us), || pidfd::inode(pid).unwrap_or(0))
    }

    /// Reads stat, by the open file if there is one. `None`: the process is gone. Without an open file, a later process that has got
    /// its pid does not count.
    fn stat(&self, root: &ProcRoot) -> Option<Stat> {
        let mut buffer = [0; 1024];
        match &self.files {
            Some((stat, _)) => read_held(stat, &mut buffer).and_then(Stat::parse),
            None => root.stat(self.target.pid).filter(|stat| self.is_shown(stat)),
        }
    }

    /// Reads clock, stat and statm. `now_ns`: CLOCK_MONOTONIC.
    ///
    /// A process `is_alone` if it shares its memory with no other. If such a process has used no CPU time since its last reading,
    /// its memory is as it was, and it has not ended. The clock alone shows that, at a tenth of the cost.
    pub(super) fn read(&mut self, root: &ProcRoot, is_alone: bool, now_ns: u64) -> ReadingState {
        // The clock comes first. If the process was reaped, it may be another process's, but then reading the held stat fails.
        let clock_ns = pidfd::cpu_clock_ns(self.target.pid);
        let has_rested = clock_ns.is_some() && clock_ns == self.cpu_ns;
        if has_rested && is_alone && now_ns.saturating_sub(self.read_at_ns) < LONGEST_REST_NS {
            return ReadingState::Rested;
        }
        // This is set again once all is read. After a reading that ends early, the next one must not count as rested.
        self.read_at_ns = 0;
        let Some(stat) = self.stat(root) else { return ReadingState::Gone(clock::monotonic_ns()) };
        self.cpu_ns = clock_ns.or(self.cpu_ns);
        let vitals = Vitals {
            cpu_ns: self.cpu_ns,
            counts: stat.counts,
            threads: stat.threads,
            virtual_bytes: stat.virtual_bytes,
            start_stack: stat.start_stack,
            letter: stat.state,
        };
        if stat.is_over() {
            let remains = proc_fs::remains_if_over(self.target.pid, &stat);
            let at_ns = clock::monotonic_ns();
            return remains.map_or(ReadingState::Gone(at_ns), |remains| ReadingState::Zombie(at_ns, remains));
        }
        let size = match self.memory(root) {
            Memory::Size(size) => Some(size),
            none => {
                let is_gone = matches!(none, Memory::Gone);
                match self.explain_no_memory(root, &stat, vitals, is_gone) {
                    Ok(size) => size,
                    Err(end) => return end,
                }
            }
        };
        self.read_at_ns = now_ns;
        ReadingState::Alive(vitals, size)
    }

    /// Finds out why statm shows no memory. Returns the memory that another thread shows, or `None` if the process is in the middle
    /// of an exec. If the process is ending or gone, that is returned as the error. `stat` and `vitals` were just read. `is_gone`:
    /// statm can't be read any more.
    fn explain_no_memory(
        &mut self,
        root: &ProcRoot,
        stat: &Stat,
        vitals: Vitals,
        is_gone: bool,
    ) -> Result<Option<Size>, ReadingState> {
        let was_elsewhere = self.memory_thread != self.target.pid;
        // The process is being torn down: its memory is gone, and it is not yet a zombie. That may have begun since stat was
        // read.
        let is_ending = stat.is_ending() || self.stat(root).is_none_or(|stat| stat.is_ending());
        // The thread that showed the memory has ended alone, or has exec'd: then it is the process's only thread, and has its pid
        // now.
        if was_elsewhere || (is_ending && stat.threads > 1) {
            let of_thread = self.memory_of_thread(root);
            if of_thread.is_some() {
                return Ok(of_thread);
            }
        }
        let at_ns = clock::monotonic_ns();
        if !is_ending {
            return if is_gone && !was_elsewhere { Err(ReadingState::Gone(at_ns)) } else { Ok(None) };
        }
        // A thread whose file can't be read any more may have ended alone, too.
        Err(if is_gone && !was_elsewhere {
            ReadingState::Gone(at_ns)
        } else {
            ReadingState::Ending(at_ns, vitals)
        })
    }

    /// Looks for a thread whose files show the process's memory. Memory is read there from now on, since /proc shows none for a
    /// main thread that has ended. `None`: no thread shows any, or the process is gone.
    fn memory_of_thread(&mut self, root: &ProcRoot) -> Option<Size> {
        root.threads(self.target.pid).into_iter().find_map(|thread| {
            let statm = root.open(thread, "statm").ok()?;
            // As long as the process is there, its pid and those of its threads are not used again: the file is the thread's.
            self.stat(root)?;
            self.memory_thread = thread;
            if let Some((_, held_statm)) = &mut self.files {
                *held_statm = statm;
            }
            self.size(root)
        })
    }

    /// Reads the size of the memory, by the open file if there is one.
    fn memory(&self, root: &ProcRoot) -> Memory {
        let mut buffer = [0; 256];
        let statm = match &self.files {
            Some((_, statm)) => read_held(statm, &mut buffer).and_then(Statm::parse),
            None => root.read(self.memory_thread, "statm").as_deref().and_then(Statm::parse),
        };
        match statm {
            None => Memory::Gone,
            Some(statm) if statm.size == 0 => Memory::None,
            Some(statm) => {
                let rss_bytes = statm.resident.saturating_mul(self.page_bytes);
                let shared_bytes = statm.shared.saturating_mul(self.page_bytes).min(rss_bytes);
                Memory::Size(Size { rss_bytes, shared_bytes })
            }
        }
    }

    /// Reads the size of the process's memory. `None`: it has no memory any more.
    pub(super) fn size(&self, root: &ProcRoot) -> Option<Size> {
        if let Memory::Size(size) = self.memory(root) { Some(size) } else { None }
    }

    /// Reads the process's peak so far, and its limits.
    pub(super) fn peak(&self, root: &ProcRoot) -> PeakReading {
        let status = root.status(self.memory_thread);
        PeakReading {
            id: self.target.id,
            vm_hwm_bytes: status.as_ref().and_then(|status| status.hwm),
            hugetlb_bytes: status.as_ref().map(|status| status.hugetlb),
            swap_bytes: status.map(|status| status.swap),
            limits: rlimit::of_process(self.target.pid),
        }
    }

    /// Reads how the process's memory is shared, and its size right after that: both figures must be of one time. The process may
    /// have exec'd or begun to end since its last reading.
    pub(super) fn sharing(&self, root: &ProcRoot, with_mappings: bool) -> SharingReading {
        let mappings = with_mappings.then(|| root.mappings(self.memory_thread)).flatten();
        // smaps has the same sums as smaps_rollup, so one of the two files is enough: each takes milliseconds for a large process.
        let exact =
            |mappings: &&Mappings| mappings.estimated_bytes <= mappings.rollup.rss_bytes / ESTIMATED_PART;
        if let Some(rollup) = mappings.as_ref().filter(exact).map(|mappings| mappings.rollup) {
            return SharingReading::Read { rollup, mappings, size: self.size(root) };
        }
        match root.rollup(self.memory_thread) {
            Ok(Some(rollup)) => SharingReading::Read { rollup, mappings, size: self.size(root) },
            Ok(None) => SharingReading::NoMemory,
            Err(_) => SharingReading::Denied,
        }
    }

    /// Opens its pagemap, to count its pages.
    pub(super) fn pages(&self, root: &ProcRoot, with_anonymous: bool) -> io::Result<AddressSpace> {
        let size = self.size(root).ok_or(ErrorKind::NotFound)?;
        AddressSpace::open(root, self.memory_thread, size.rss_bytes, with_anonymous)
    }
}

/// Whether the process's or the machine's limit of open files is reached.
fn is_fd_limit(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::{Identity, ProcessId};

    const TICK_US: u64 = 10_000;
    /// Above the kernel's largest pid (PID_MAX_LIMIT): no real process is ever asked.
    const PID: u32 = 5_000_002;

    #[test]
    fn later_process_of_the_same_pid_is_not_read_where_no_fd_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let root = ProcRoot::new(dir.path());
        std::fs::create_dir_all(dir.path().join(PID.to_string())).unwrap();
        let runs_since = |second: i128| {
            let start = (second * 1_000_000_000 + clock::boot_offset_ns()) / 10_000_000;
            let stat = format!("7 (x) R 1 1 1 0 -1 0 9 0 0 0 5 6 0 0 20 0 1 0 {start} 1 1 1 1 1 77\n");
            std::fs::write(root.path(PID, "stat"), stat).unwrap();
            std::fs::write(root.path(PID, "statm"), "200 100 0 1 0 1 0\n").unwrap();
        };
        let latest_start_ns = 1_000_000_000;
        let identity =
            Identity { pidfd_inode: 0, latest_start_ns, is_start_rough: false, is_pid_held: false };
        let target = Target { id: ProcessId(1), pid: PID, identity };
        runs_since(1);
        let opened = Handle::open(&root, &target, 4096, TICK_US).unwrap();
        let mut handle = Handle { files: None, ..opened };
        assert!(matches!(handle.read(&root, true, 2), ReadingState::Alive(..)));
        // It was reaped, and another process has its pid.
        runs_since(2);
        assert!(matches!(handle.read(&root, true, 3), ReadingState::Gone(_)));
    }

    #[test]
    fn program_that_another_thread_execs_is_read_though_the_first_thread_had_ended() {
        let dir = tempfile::tempdir().unwrap();
        let root = ProcRoot::new(dir.path());
        let thread = PID + 1;
        for directory in [format!("{PID}/task/{PID}"), format!("{PID}/task/{thread}"), thread.to_string()] {
            std::fs::create_dir_all(dir.path().join(directory)).unwrap();
        }
        let shows = |pid: u32, flags: u32, threads: u32, pages: u32| {
            let stat =
                format!("{PID} (x) S 1 1 1 0 -1 {flags} 9 0 0 0 5 6 0 0 20 0 {threads} 0 9 1 1 1 1 1 77\n");
            std::fs::write(root.path(PID, "stat"), stat).unwrap();
            std::fs::write(root.path(pid, "statm"), format!("{pages} {pages} 0 1 0 1 0\n")).unwrap();
        };
        let rss_bytes = |reading| match reading {
            ReadingState::Alive(_, Some(size)) => size.rss_bytes,
            other => panic!("{other:?}"),
        };
        shows(PID, 0, 2, 100);
        let identity =
            Identity { pidfd_inode: 0, latest_start_ns: u64::MAX, is_start_rough: true, is_pid_held: false };
        let target = Target { id: ProcessId(1), pid: PID, identity };
        let opened = Handle::open(&root, &target, 1, TICK_US).unwrap();
        let mut handle = Handle { files: None, ..opened };
        assert_eq!(rss_bytes(handle.read(&root, true, 2)), 100);
        // The first thread ends alone.
        const PF_EXITING: u32 = 4;
        shows(thread, 0, 2, 200);
        shows(PID, PF_EXITING, 2, 0);
        assert_eq!(rss_bytes(handle.read(&root, true, 3)), 200);
        // The other one execs.
        for directory in [format!("{PID}/task/{thread}"), thread.to_string()] {
            std::fs::remove_dir_all(dir.path().join(directory)).unwrap();
        }
        shows(PID, 0, 1, 300);
        assert_eq!(rss_bytes(handle.read(&root, true, 4)), 300);
    }
}
