//! What /proc says of the pids that drivers name. A process outside the run is a stranger.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::path::PathBuf;

use super::policy;
use crate::model::gpu::{GpuConfig, GpuPids, PidFacts};
use crate::sys::proc_fs::{ProcRoot, Statm};

/// Directories of device files of the kernel's DRM: GPUs, and accelerators without a screen.
pub(super) const DRM_DEVICES: [&str; 2] = ["/dev/dri/", "/dev/accel/"];
/// What the paths of other GPU device files begin with (NVIDIA, WSL, KFD).
const OTHER_DEVICES: [&str; 3] = ["/dev/nvidia", "/dev/dxg", "/dev/kfd"];
/// Inode of the initial pid namespace (the kernel's PROC_PID_INIT_INO).
const INITIAL_PID_NS: u32 = 0xEFFF_FFFC;

/// Whether this process is in another pid namespace than the initial one. False if that can't be told.
pub(super) fn has_own_pid_ns(root: &ProcRoot) -> bool {
    root.pid_ns(std::process::id()).is_some_and(|ns| ns != INITIAL_PID_NS)
}

/// Reads facts about pids, only those that the core needs.
#[derive(Debug)]
pub(super) struct PidFactReader {
    root: ProcRoot,
    /// What the paths of GPU device files begin with.
    gpu_devices: Vec<OsString>,
    /// The collector is in a pid namespace of its own, and drivers may name processes by pids of another one.
    pub has_own_pid_ns: bool,
    /// What was read of strangers, by pid. Other jobs can have hundreds of processes on each device.
    strangers: HashMap<u32, Stranger>,
    /// Ids that no process or thread of this namespace has, and since when that is known, CLOCK_MONOTONIC nanoseconds.
    absent: HashMap<u32, u64>,
}

/// What is known of a process outside the run.
#[derive(Debug, Clone, Copy)]
struct Stranger {
    /// When the process started, clock ticks; `None`: there is no such process.
    start_ticks: Option<u64>,
    facts: PidFacts,
    /// When this was read, CLOCK_MONOTONIC nanoseconds.
    read_ns: u64,
}

impl PidFactReader {
    /// Makes a reader of this /proc. `config` tells where the device files are.
    pub(super) fn new(root: &ProcRoot, config: &GpuConfig) -> Self {
        let devices = DRM_DEVICES.iter().chain(&OTHER_DEVICES);
        Self {
            root: root.clone(),
            gpu_devices: devices.map(|device| config.path(device).into()).collect(),
            has_own_pid_ns: has_own_pid_ns(root),
            strangers: HashMap::new(),
            absent: HashMap::new(),
        }
    }

    /// Forgets the absent ids that no driver names any more.
    pub(super) fn forget_unnamed(&mut self, named: &BTreeMap<u32, PidFacts>) {
        self.absent.retain(|pid, _| named.contains_key(pid));
    }

    /// The facts about an id that a driver named. `pids` are the ids of the run. `named_ns`: when a driver last named
    /// the id. `now_ns`: when the id is looked up. Both are CLOCK_MONOTONIC nanoseconds.
    pub(super) fn read(&mut self, pid: u32, pids: &GpuPids, named_ns: u64, now_ns: u64) -> PidFacts {
        let facts = self.recent_facts(pid, pids, now_ns);
        if facts.thread_group_leader.is_some() || self.root.has_id(pid) {
            self.absent.remove(&pid);
            return facts;
        }
        // An id counts as absent only if a driver named it after it was first missed here: a process can end between a driver's
        // answer and this look.
        let since_ns = *self.absent.entry(pid).or_insert(now_ns);
        PidFacts { is_absent: since_ns < named_ns, ..facts }
    }

    /// The facts as /proc shows them now. Those about strangers are kept only for `policy::STRANGER_INTERVAL`, since a thread of
    /// the run can get the pid of a stranger that has ended.
    fn recent_facts(&mut self, pid: u32, pids: &GpuPids, now_ns: u64) -> PidFacts {
        let is_of_run = pids.processes.binary_search(&pid).is_ok()
            || pids.inner.binary_search(&pid).is_ok()
            || pids.threads.contains_key(&pid);
        if is_of_run {
            return self.facts(pid, pids);
        }
        let known = self.strangers.get(&pid).copied();
        let interval_ns = u64::try_from(policy::STRANGER_INTERVAL.as_nanos()).unwrap_or(u64::MAX);
        if let Some(known) = known.filter(|known| now_ns.saturating_sub(known.read_ns) < interval_ns) {
            return known.facts;
        }
        let start_ticks = self.root.stat(pid).map(|stat| stat.start_ticks);
        let is_same = |known: &Stranger| known.start_ticks == start_ticks && start_ticks.is_some();
        let facts = match known.filter(is_same) {
            // The only fact of a process that can change is whether it has a GPU open. That is not needed in the initial pid
            // namespace, and once true it stays so.
            Some(known) if !self.has_own_pid_ns || known.facts.has_gpu_open == Some(true) => known.facts,
            _ => self.facts(pid, pids),
        };
        if self.strangers.len() >= policy::MAX_STRANGERS {
            self.strangers.clear();
        }
        self.strangers.insert(pid, Stranger { start_ticks, facts, read_ns: now_ns });
        facts
    }

    /// Reads the facts about an id from /proc. A fact is `None` where the core does not need it, since some are expensive.
    fn facts(&self, pid: u32, pids: &GpuPids) -> PidFacts {
        let is_of_run = pids.processes.binary_search(&pid).is_ok();
        let thread_group_leader =
            if is_of_run { Some(pid) } else { self.root.status(pid).and_then(|s| s.tgid) };
        // A thread of the run that has ended is known by the run's list only.
        let process = thread_group_leader.or_else(|| pids.threads.get(&pid).copied()).unwrap_or(pid);
        // If drivers may name processes by ids of another pid namespace, only a process with a GPU open can be meant.
        let has_gpu_open = if !self.has_own_pid_ns {
            None
        } else if pids.with_gpu_open.contains(&process) {
            Some(true)
        } else {
            self.has_gpu_open(process)
        };
        let needs_memory =
            pids.inner.binary_search(&pid).is_ok() || (self.has_own_pid_ns && has_gpu_open.is_none());
        let has_memory = if needs_memory { self.has_memory(pid) } else { None };
        PidFacts { thread_group_leader, has_gpu_open, has_memory, is_absent: false }
    }

    /// Whether a process has memory. `None`: it is gone.
    fn has_memory(&self, pid: u32) -> Option<bool> {
        Statm::parse(&self.root.read(pid, "statm")?).map(|statm| statm.size > 0)
    }

    /// Whether a process has a GPU's device file open. `None`: its descriptors may not be read, or it has none, as a zombie.
    fn has_gpu_open(&self, pid: u32) -> Option<bool> {
        let is_device = |link: PathBuf| {
            let link = link.as_os_str().as_encoded_bytes();
            self.gpu_devices.iter().any(|device| link.starts_with(device.as_encoded_bytes()))
        };
        let files = std::fs::read_dir(self.root.path(pid, "fd")).ok()?;
        let mut links = files.flatten().filter_map(|file| std::fs::read_link(file.path()).ok()).peekable();
        // The descriptors of a zombie are gone, which says nothing of what it had open.
        links.peek()?;
        Some(links.any(is_device))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn put(root: &Path, pid: u32, file: &str, text: &str) {
        let path = root.join(pid.to_string());
        fs::create_dir_all(path.join("fd")).unwrap();
        fs::write(path.join(file), text).unwrap();
    }

    fn open(root: &Path, pid: u32, target: &str) {
        std::os::unix::fs::symlink(target, root.join(pid.to_string()).join("fd/3")).unwrap();
    }

    fn reader(root: &Path, has_own_pid_ns: bool) -> PidFactReader {
        let reader = PidFactReader::new(&ProcRoot::new(root), &GpuConfig::default());
        PidFactReader { has_own_pid_ns, ..reader }
    }

    fn leader(pid: u32) -> PidFacts {
        PidFacts { thread_group_leader: Some(pid), ..PidFacts::default() }
    }

    #[test]
    fn only_needed_facts_are_read_in_the_initial_namespace() {
        let root = tempfile::tempdir().unwrap();
        for (pid, tgid) in [(50, 50), (51, 50), (99, 99)] {
            put(root.path(), pid, "status", &format!("Name:\tx\nTgid:\t{tgid}\n"));
            put(root.path(), pid, "statm", "100 50 10 1 0 1 0\n");
        }
        let mut reader = reader(root.path(), false);
        let pids = GpuPids { processes: vec![50, 60], inner: vec![5, 99], ..GpuPids::default() };
        assert_eq!(reader.read(50, &pids, 0, 0), leader(50));
        assert_eq!(reader.read(60, &pids, 0, 0), leader(60), "not read at all");
        assert_eq!(reader.read(51, &pids, 0, 0), leader(50));
        assert_eq!(reader.read(99, &pids, 0, 0), PidFacts { has_memory: Some(true), ..leader(99) });
        assert_eq!(reader.read(5, &pids, 0, 0), PidFacts::default());
    }

    #[test]
    fn open_gpu_is_looked_for_in_a_pid_namespace() {
        let root = tempfile::tempdir().unwrap();
        for pid in [50, 51, 52, 53, 54, 55] {
            put(root.path(), pid, "status", &format!("Tgid:\t{pid}\n"));
            put(root.path(), pid, "statm", "0 0 0 0 0 0 0\n");
        }
        open(root.path(), 50, "/dev/nvidia0");
        open(root.path(), 51, "/dev/null");
        open(root.path(), 54, "/dev/accel/accel0");
        open(root.path(), 55, "/dev/dri/renderD128");
        let mut reader = reader(root.path(), true);
        let pids = GpuPids {
            processes: vec![51, 53],
            threads: BTreeMap::from([(60, 50)]),
            with_gpu_open: vec![53],
            ..GpuPids::default()
        };
        let mut open = |pid| reader.read(pid, &pids, 0, 0).has_gpu_open;
        assert_eq!((open(50), open(51), open(53)), (Some(true), Some(false), Some(true)));
        assert_eq!((open(54), open(55)), (Some(true), Some(true)), "the files whose fdinfo is read, too");
        assert_eq!(open(60), Some(true), "an ended thread: its process is asked");
        // No descriptors: a zombie, here without memory; and a process that is gone.
        assert_eq!(reader.read(52, &pids, 0, 0), PidFacts { has_memory: Some(false), ..leader(52) });
        assert_eq!(reader.read(70, &pids, 0, 0), PidFacts::default());
    }

    // Requirement: GPU-25
    #[test]
    fn stranger_is_read_again_once_in_a_while() {
        let root = tempfile::tempdir().unwrap();
        let second = 1_000_000_000;
        let appear = |tgid: u32, start: u32| {
            put(root.path(), 99, "status", &format!("Tgid:\t{tgid}\n"));
            let zeros = " 0".repeat(29);
            let stat = format!("99 (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0 0{zeros}");
            put(root.path(), 99, "stat", &stat);
        };
        let mut reader = reader(root.path(), false);
        let pids = GpuPids::default();
        let mut read = |at_ns| reader.read(99, &pids, 0, at_ns).thread_group_leader;
        assert_eq!(read(0), None);
        appear(99, 5);
        assert_eq!((read(second / 2), read(second)), (None, Some(99)));
        // The same process is not read again; another one with its pid is.
        appear(50, 5);
        assert_eq!(read(2 * second), Some(99));
        appear(50, 6);
        assert_eq!((read(5 * second / 2), read(3 * second)), (Some(99), Some(50)));
    }
}
