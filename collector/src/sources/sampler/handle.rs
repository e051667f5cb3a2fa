//! A live process's files, held open, and what they said last.

use crate::model::finding::Remains;
use std::fs::File;
use std::io::ErrorKind;

use crate::run::tree::Process;
use crate::run::tree::process::rss_noise;
use crate::sys::pidfd;
use crate::sys::proc_fs::{ProcRoot, Rollup, Stat, Statm, read_held};

/// What a reading found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// It runs.
    Alive {
        /// Another program than at the reading before, which was at that time, CLOCK_MONOTONIC nanoseconds.
        execd_since_ns: Option<u64>,
    },
    /// It is dead and not reaped.
    Dead(Remains),
    /// It is about to be.
    Ending,
    /// It is not there any more.
    Gone,
}

/// How its memory was shared when that was last read.
#[derive(Debug, Clone, Copy)]
pub struct Sharing {
    /// smaps_rollup then.
    pub rollup: Rollup,
    /// `statm`'s RSS then, bytes.
    pub rss: u64,
    /// `statm`'s shared part then, bytes.
    pub shared: u64,
    /// That of all other processes of the tree then, bytes: what they map, too, is shared with more.
    pub others_shared: u64,
    /// Minor faults then.
    pub minor_faults: u64,
    /// The image group's epoch then.
    pub epoch: u64,
}

/// What did not run since it was read is read again after this time: the kernel may have taken memory from it.
const LONGEST_REST_NS: u64 = 1_000_000_000;

/// Files and figures of one process.
#[derive(Debug)]
pub struct Handle {
    pid: u32,
    /// The thread whose files show its memory: another than the first once that has ended alone.
    memory_of: u32,
    /// When stat and statm were last read, CLOCK_MONOTONIC nanoseconds.
    read_at_ns: u64,
    /// Held open where the fd limit allows: stat, statm.
    files: Option<(File, File)>,
    /// Its address space is not gone yet.
    has_memory: bool,
    /// The bottom of its stack; 0: not known.
    pub start_stack: u64,
    /// RSS, bytes.
    pub rss: u64,
    /// The part of it that belongs to files or shared memory, bytes.
    pub shared: u64,
    /// CPU clock, nanoseconds.
    pub cpu_ns: Option<u64>,
    /// Threads.
    pub threads: u64,
    /// Minor faults.
    pub minor_faults: u64,
    /// Major faults.
    pub major_faults: u64,
    /// User part of the CPU time, clock ticks.
    pub user_ticks: u64,
    /// System part of the CPU time, clock ticks.
    pub system_ticks: u64,
    /// VmHWM when it was last read, bytes.
    pub hwm: Option<u64>,
    /// When that was, CLOCK_MONOTONIC nanoseconds; 0: never.
    pub peak_at_ns: u64,
    faults_at_peak: u64,
    /// Memory in huge pages of hugetlbfs, which RSS and PSS leave out, bytes.
    pub hugetlb: u64,
    /// How the memory was shared.
    pub sharing: Option<Sharing>,
    /// smaps_rollup can't be read (another user's process).
    pub sharing_denied: bool,
}

impl Handle {
    /// Open the files of a process that has this pid, as we see it. The error says whether the process is gone (it may also be hidden from us).
    pub fn open(root: &ProcRoot, pid: u32, process: &Process, tick_us: u64) -> Result<Self, bool> {
        let files = match (root.open(pid, "stat"), root.open(pid, "statm")) {
            (Ok(stat), Ok(statm)) => Some((stat, statm)),
            // Out of fds: open and close at every reading.
            (Err(error), _) | (_, Err(error)) if is_fd_limit(&error) => None,
            (Err(error), _) | (_, Err(error)) => {
                return Err(error.kind() == ErrorKind::NotFound && pidfd::is_gone(pid));
            }
        };
        let handle = Self {
            pid,
            memory_of: pid,
            read_at_ns: 0,
            files,
            has_memory: true,
            start_stack: 0,
            rss: 0,
            shared: 0,
            cpu_ns: None,
            threads: 0,
            minor_faults: 0,
            major_faults: 0,
            user_ticks: 0,
            system_ticks: 0,
            hwm: None,
            peak_at_ns: 0,
            faults_at_peak: 0,
            hugetlb: 0,
            sharing: None,
            sharing_denied: false,
        };
        match handle.stat(root) {
            Some(stat) if process.is_shown(&stat, tick_us) => Ok(handle),
            _ => Err(true),
        }
    }

    fn stat(&self, root: &ProcRoot) -> Option<Stat> {
        let mut buffer = [0; 1024];
        match &self.files {
            Some((stat, _)) => read_held(stat, &mut buffer).and_then(Stat::parse),
            None => root.stat(self.pid),
        }
    }

    /// Read clock, stat and statm. A process `is_alone` if no other has its memory: then what has used no CPU time
    /// since it was read has touched none and has not ended, and the clock alone tells that, at a tenth of the price.
    pub fn read(&mut self, root: &ProcRoot, page: u64, is_alone: bool, now_ns: u64) -> Seen {
        // The clock first: after reaping it would be another process's or nobody's.
        let clock = pidfd::cpu_clock_ns(self.pid);
        let has_rested = clock.is_some() && clock == self.cpu_ns;
        if has_rested && is_alone && now_ns.saturating_sub(self.read_at_ns) < LONGEST_REST_NS {
            return Seen::Alive { execd_since_ns: None };
        }
        let before_ns = std::mem::take(&mut self.read_at_ns);
        let Some(stat) = self.stat(root) else { return Seen::Gone };
        self.cpu_ns = clock.or(self.cpu_ns);
        self.threads = stat.threads;
        self.minor_faults = stat.minor_faults;
        self.major_faults = stat.major_faults;
        self.user_ticks = stat.user_ticks;
        self.system_ticks = stat.system_ticks;
        let mut execd_since_ns = None;
        if stat.start_stack != 0 {
            let before = std::mem::replace(&mut self.start_stack, stat.start_stack);
            execd_since_ns = (before != 0 && before != stat.start_stack).then_some(before_ns);
        }
        if stat.is_over() {
            return Remains::of(self.pid, &stat).map_or(Seen::Gone, Seen::Dead);
        }
        let is_there = self.read_statm(root, page);
        if !(is_there && self.has_memory) {
            let is_elsewhere = self.memory_of != self.pid;
            // It is ending: its memory is gone, it is not yet a zombie. That may have begun since stat was read. If it
            // has other threads, the first may have ended alone.
            let is_ending =
                is_elsewhere || stat.is_ending() || self.stat(root).is_none_or(|stat| stat.is_ending());
            if is_ending && !(stat.threads > 1 && self.has_living_thread(root, page)) {
                return if is_there || is_elsewhere { Seen::Ending } else { Seen::Gone };
            }
            // In the middle of an exec there is none either.
            if !is_ending && !is_there {
                return Seen::Gone;
            }
        }
        self.read_at_ns = now_ns;
        Seen::Alive { execd_since_ns }
    }

    /// Look for a thread that has the process's memory, and read it there from now on.
    fn has_living_thread(&mut self, root: &ProcRoot, page: u64) -> bool {
        root.threads(self.pid).into_iter().any(|thread| {
            let Ok(statm) = root.open(thread, "statm") else { return false };
            // As long as the process is there, its pid and those of its threads are nobody else's.
            if self.stat(root).is_none() {
                return false;
            }
            self.memory_of = thread;
            if let Some((_, of_memory)) = &mut self.files {
                *of_memory = statm;
            }
            self.read_statm(root, page) && self.has_memory
        })
    }

    fn read_statm(&mut self, root: &ProcRoot, page: u64) -> bool {
        let mut buffer = [0; 256];
        let statm = match &self.files {
            Some((_, statm)) => read_held(statm, &mut buffer).and_then(Statm::parse),
            None => root.read(self.memory_of, "statm").as_deref().and_then(Statm::parse),
        };
        let Some(statm) = statm else { return false };
        self.has_memory = statm.size > 0;
        // What it had until its memory went is the last word on that.
        if self.has_memory {
            self.rss = statm.resident.saturating_mul(page);
            self.shared = statm.shared.saturating_mul(page).min(self.rss);
        }
        true
    }

    /// A new image: what was known of the old one's memory is void.
    pub fn forget_image(&mut self) {
        self.sharing = None;
        self.hwm = None;
        self.hugetlb = 0;
    }

    /// Whether it touched new memory since its peak was last read.
    pub fn faulted_since_peak(&self) -> bool {
        self.minor_faults != self.faults_at_peak
    }

    /// Read its peak so far.
    pub fn read_peak(&mut self, root: &ProcRoot, now_ns: u64) {
        self.peak_at_ns = now_ns;
        self.faults_at_peak = self.minor_faults;
        if let Some(status) = root.status(self.memory_of) {
            self.hwm = status.hwm.or(self.hwm);
            self.hugetlb = status.hugetlb;
        }
    }

    /// Read how its memory is shared, in a tree whose other processes have so much shared memory.
    pub fn read_rollup(&mut self, root: &ProcRoot, epoch: u64, page: u64, others_shared: u64) {
        match root.rollup(self.memory_of) {
            Ok(Some(rollup)) => {
                // It may have exec'd or begun to end since it was last looked at: both figures must be of one time.
                self.read_statm(root, page);
                let (rss, shared, minor_faults) = (self.rss, self.shared, self.minor_faults);
                // It may have done so between them, too: then one is of another program.
                let is_one = rss.abs_diff(rollup.rss) <= rss.max(rollup.rss) / 2 + rss_noise(rss);
                let sharing = Sharing { rollup, rss, shared, others_shared, minor_faults, epoch };
                self.sharing = is_one.then_some(sharing);
            }
            // It is about to end: its memory is gone already.
            Ok(None) => {}
            Err(_) => self.sharing_denied = true,
        }
    }

    /// Whether its memory is not what it was when its sharing was read.
    pub fn has_moved(&mut self, root: &ProcRoot, page: u64) -> bool {
        let is_there = self.read_statm(root, page);
        !(is_there && self.has_memory)
            || self.sharing.is_none_or(|sharing| self.rss.abs_diff(sharing.rss) > sharing.rss / 100)
    }
}

fn is_fd_limit(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}
