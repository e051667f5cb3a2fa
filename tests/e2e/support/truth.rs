//! The kernel's own figures of a tracked tree, recorded by tests/truth: its processes with their peaks (process connector
//! and taskstats) and its CPU time (cgroup).

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use gpu_track_truth::cgroup::Cgroup;
use gpu_track_truth::listener::Listener;
pub use gpu_track_truth::tree::KernelProcess;
use tempfile::TempDir;

use super::WATCHDOG;

/// Records the processes and the CPU time of a command that is run as [`KernelRecorder::wrap`] gives it.
pub struct KernelRecorder {
    /// The pid of the tree's root once the run has ended; 0 before.
    root: Arc<AtomicU32>,
    listening: Option<JoinHandle<Result<Vec<KernelProcess>, String>>>,
    cgroup: Cgroup,
    directory: TempDir,
}

/// The kernel's figures.
pub struct Truth {
    /// All processes of the tree, in the order of their start.
    pub tree: Vec<KernelProcess>,
    /// Peak RSS of the root before it became the command.
    pub root_peak_before_bytes: u64,
    /// CPU time of the tree.
    pub cpu_s: f64,
    /// CPU time of the wrapping shell while it entered the cgroup, which may be missing in `cpu_s`.
    pub cgroup_entry_s: f64,
}

impl Truth {
    /// The number of processes.
    pub fn processes(&self) -> u64 {
        self.tree.len() as u64
    }

    /// The processes whose pid no other process of the tree had.
    pub fn by_pid(&self) -> HashMap<u32, &KernelProcess> {
        let mut of_pid: HashMap<u32, Vec<&KernelProcess>> = HashMap::new();
        for process in &self.tree {
            of_pid.entry(process.pid).or_default().push(process);
        }
        of_pid
            .into_iter()
            .filter_map(|(pid, all)| <[_; 1]>::try_from(all).ok().map(|[one]| (pid, one)))
            .collect()
    }
}

impl KernelRecorder {
    /// Starts to record. The error is the reason why that is impossible here.
    pub fn open() -> Result<Self, String> {
        if !super::is_root() {
            return Err("needs root (process connector, taskstats, cgroup)".into());
        }
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        // The subscription fails in another pid namespace. It comes first, because there the cgroups of living recorders
        // would be removed as stale.
        let listener = Listener::subscribe()?;
        let cgroup = Cgroup::create()?;
        let root = Arc::new(AtomicU32::new(0));
        let its_root = root.clone();
        let listening = std::thread::spawn(move || listen(listener, &its_root));
        Ok(Self { root, listening: Some(listening), cgroup, directory })
    }

    /// The command line of a shell that writes down its pid, enters the cgroup, and execs the command. The tree has no
    /// further process.
    pub fn wrap<S: Into<OsString>>(&self, command: impl IntoIterator<Item = S>) -> Vec<OsString> {
        // The first number of schedstat is the shell's CPU time in ns, read before and after it enters the cgroup.
        let script =
            "read before rest < /proc/$$/schedstat; echo $$ > \"$2\"; read after rest < /proc/$$/schedstat
            while read name kib rest; do case $name in VmHWM:) peak=$kib;; esac; done < /proc/$$/status
            echo $$ $peak $before $after > \"$1\"; shift 2; exec \"$@\"";
        let mut words: Vec<OsString> = ["/bin/sh", "-c", script, "sh"].map(OsString::from).into();
        words.push(self.directory.path().join("root").into());
        words.push(self.cgroup.procs().into());
        words.extend(command.into_iter().map(Into::into));
        words
    }

    /// The figures, after the run and all of its tree have ended.
    pub fn close(mut self) -> Truth {
        let line = std::fs::read_to_string(self.directory.path().join("root")).unwrap();
        let numbers: Vec<u64> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
        let [root, peak_kib, before_ns, after_ns] =
            numbers.try_into().expect("the kernel has VmHWM and schedstat");
        self.root.store(root as u32, Ordering::Release);
        let tree = self.listening.take().unwrap().join().unwrap().unwrap_or_else(|error| panic!("{error}"));
        Truth {
            tree,
            root_peak_before_bytes: peak_kib * 1024,
            cpu_s: self.cgroup.cpu_s().unwrap() + before_ns as f64 / 1e9,
            cgroup_entry_s: (after_ns - before_ns) as f64 / 1e9,
        }
    }
}

impl Drop for KernelRecorder {
    fn drop(&mut self) {
        if let Some(listening) = self.listening.take() {
            // No process has this pid.
            self.root.store(u32::MAX, Ordering::Release);
            drop(listening.join());
        }
    }
}

/// Reads events until the root is known and all of its tree has ended. An exit event comes a little after the exit.
fn listen(mut listener: Listener, root: &AtomicU32) -> Result<Vec<KernelProcess>, String> {
    let mut ending = None;
    loop {
        listener.drain()?;
        let root = root.load(Ordering::Acquire);
        if root != 0 && ending.is_none() {
            // Reads the events that came before the root was known.
            listener.drain()?;
            if !listener.tree.set_root(root) {
                return Err("process connector: no fork event of the command".into());
            }
            ending = Some(Instant::now());
        }
        if let Some(since) = ending {
            if listener.tree.members_alive() == 0 {
                return listener.processes();
            }
            if since.elapsed() > WATCHDOG {
                return Err(format!("processes that do not end: {:?}", listener.tree.living_members()));
            }
        }
        listener.wait()?;
    }
}
