//! The kernel's own account of a tracked tree, by tests/truth: its processes with their peaks (process connector,
//! taskstats), and its CPU time (cgroup).

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use gpu_track_truth::cgroup::Cgroup;
use gpu_track_truth::listener::Listener;
pub use gpu_track_truth::tree::Account;
use tempfile::TempDir;

use super::WATCHDOG;

/// An account that has been opened; the command is to be run as [`KernelAccount::wrap`] says.
pub struct KernelAccount {
    /// The tree's root, when the run has ended; 0 before.
    root: Arc<AtomicU32>,
    listening: Option<JoinHandle<Result<Vec<Account>, String>>>,
    cgroup: Cgroup,
    directory: TempDir,
}

/// What the kernel says.
pub struct Truth {
    /// All of the tree, in the order of birth.
    pub tree: Vec<Account>,
    /// Peak RSS of the root before it became the command, bytes.
    pub root_peak_before: u64,
    /// CPU time of the tree, seconds.
    pub cpu_s: f64,
    /// What the wrapping shell used while it moved in, which may be missing in it.
    pub moving_s: f64,
}

impl Truth {
    /// How many processes there were.
    pub fn processes(&self) -> u64 {
        self.tree.len() as u64
    }

    /// Those whose pid no other process of the tree had.
    pub fn by_pid(&self) -> HashMap<u32, &Account> {
        let mut of_pid: HashMap<u32, Vec<&Account>> = HashMap::new();
        for process in &self.tree {
            of_pid.entry(process.pid).or_default().push(process);
        }
        of_pid
            .into_iter()
            .filter_map(|(pid, all)| <[_; 1]>::try_from(all).ok().map(|[one]| (pid, one)))
            .collect()
    }
}

impl KernelAccount {
    /// Opens one; says why it cannot.
    pub fn open() -> Result<Self, String> {
        if !super::is_root() {
            return Err("needs root (process connector, taskstats, cgroup)".into());
        }
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        // Refused in another pid namespace, where the cgroups of others would be taken for those of the dead.
        let listener = Listener::subscribe()?;
        let cgroup = Cgroup::create()?;
        let root = Arc::new(AtomicU32::new(0));
        let its_root = root.clone();
        let listening = std::thread::spawn(move || listen(listener, &its_root));
        Ok(Self { root, listening: Some(listening), cgroup, directory })
    }

    /// The command behind a shell that says its pid, moves into the cgroup, and becomes the command: no process more.
    pub fn wrap<S: Into<OsString>>(&self, command: impl IntoIterator<Item = S>) -> Vec<OsString> {
        // What the shell has used before it moves in and after: the first number of its schedstat, nanoseconds.
        let script =
            "read before rest < /proc/$$/schedstat; echo $$ > \"$2\"; read after rest < /proc/$$/schedstat
            while read name kib rest; do case $name in VmHWM:) peak=$kib;; esac; done < /proc/$$/status
            echo $$ $peak $before $after > \"$1\"; shift 2; exec \"$@\"";
        let mut words: Vec<OsString> = ["/bin/sh", "-c", script, "sh"].map(OsString::from).into();
        words.push(self.directory.path().join("said").into());
        words.push(self.cgroup.procs().into());
        words.extend(command.into_iter().map(Into::into));
        words
    }

    /// Closes the account after the run has ended, and all of its tree with it.
    pub fn close(mut self) -> Truth {
        let line = std::fs::read_to_string(self.directory.path().join("said")).unwrap();
        let said: Vec<u64> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
        let [root, peak_kib, before_ns, after_ns] =
            said.try_into().expect("the kernel has VmHWM and schedstat");
        self.root.store(root as u32, Ordering::Release);
        let tree = self.listening.take().unwrap().join().unwrap().unwrap_or_else(|error| panic!("{error}"));
        Truth {
            tree,
            root_peak_before: peak_kib * 1024,
            cpu_s: self.cgroup.cpu_s().unwrap() + before_ns as f64 / 1e9,
            moving_s: (after_ns - before_ns) as f64 / 1e9,
        }
    }
}

impl Drop for KernelAccount {
    fn drop(&mut self) {
        if let Some(listening) = self.listening.take() {
            // No process has this pid.
            self.root.store(u32::MAX, Ordering::Release);
            drop(listening.join());
        }
    }
}

/// Listens until the root is told and all of its tree has ended: the kernel tells of an end a little later.
fn listen(mut listener: Listener, root: &AtomicU32) -> Result<Vec<Account>, String> {
    let mut ending = None;
    loop {
        listener.drain()?;
        let root = root.load(Ordering::Acquire);
        if root != 0 && ending.is_none() {
            // What was told before that.
            listener.drain()?;
            if !listener.tree.set_root(root) {
                return Err("process connector: no event of the command's birth".into());
            }
            ending = Some(Instant::now());
        }
        if let Some(since) = ending {
            if listener.tree.members_alive() == 0 {
                return listener.accounts();
            }
            if since.elapsed() > WATCHDOG {
                return Err(format!("processes that do not end: {:?}", listener.tree.living_members()));
            }
        }
        listener.wait()?;
    }
}
