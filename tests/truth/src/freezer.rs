//! Stops a set of processes by a cgroup (v1 freezer or v2). Unlike SIGSTOP, no process can see it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::cgroup;

/// How long the kernel may take to stop the processes, and to let an empty group be removed.
const WATCHDOG: Duration = Duration::from_secs(20);

/// Stopped processes. They go on when this is dropped.
#[derive(Debug)]
pub struct Frozen {
    group: PathBuf,
    version: Version,
    /// Each process and the group that it came from.
    processes: Vec<(u32, PathBuf)>,
}

#[derive(Debug, Clone, Copy)]
enum Version {
    V1,
    V2,
}

impl Frozen {
    /// Stops the processes that `list` gives. It is asked again until it gives no further process.
    ///
    /// # Errors
    /// The reason why that is impossible here.
    pub fn new(list: impl Fn() -> Result<Vec<u32>, String>) -> Result<Self, String> {
        let mut frozen = Self::empty()?;
        loop {
            let added = frozen.add(&list()?)?;
            frozen.freeze()?;
            if !added {
                return Ok(frozen);
            }
        }
    }

    fn empty() -> Result<Self, String> {
        let roots = ["/sys/fs/cgroup/freezer", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
        let mut reason = "no cgroup freezer is mounted".to_owned();
        for root in roots.map(Path::new) {
            if !root.join("cgroup.procs").is_file() {
                continue;
            }
            let group = match cgroup::create_group(root) {
                Ok(group) => group,
                Err(error) => {
                    reason = error;
                    continue;
                }
            };
            let files = [("freezer.state", Version::V1), ("cgroup.freeze", Version::V2)];
            match files.into_iter().find(|(file, _)| group.join(file).is_file()) {
                Some((_, version)) => return Ok(Self { group, version, processes: Vec::new() }),
                None => drop(std::fs::remove_dir(group)),
            }
        }
        Err(reason)
    }

    /// Moves the processes that are not in the group into it. Whether there was one.
    fn add(&mut self, pids: &[u32]) -> Result<bool, String> {
        let mut added = false;
        for pid in pids {
            if self.processes.iter().any(|(known, _)| known == pid) {
                continue;
            }
            let Some(home) = self.home(*pid) else { continue };
            match std::fs::write(self.group.join("cgroup.procs"), pid.to_string()) {
                Ok(()) => self.processes.push((*pid, home)),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue,
                Err(error) => return Err(format!("{}: {error}", self.group.display())),
            }
            added = true;
        }
        Ok(added)
    }

    /// The group of a process; none if it has ended.
    fn home(&self, pid: u32) -> Option<PathBuf> {
        let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let of_hierarchy = |line: &str| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let is_it = match self.version {
                Version::V1 => controllers == "freezer",
                Version::V2 => controllers.is_empty(),
            };
            is_it.then(|| path.trim_start_matches('/').to_owned())
        };
        let path = groups.lines().find_map(of_hierarchy)?;
        Some(self.group.parent()?.join(path))
    }

    fn freeze(&self) -> Result<(), String> {
        self.write_state(true).map_err(|error| format!("{}: {error}", self.group.display()))?;
        let start = Instant::now();
        while !self.is_frozen() {
            if start.elapsed() > WATCHDOG {
                return Err(format!("{}: the processes do not stop", self.group.display()));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    fn write_state(&self, freeze: bool) -> std::io::Result<()> {
        match self.version {
            Version::V1 => {
                std::fs::write(self.group.join("freezer.state"), if freeze { "FROZEN" } else { "THAWED" })
            }
            Version::V2 => std::fs::write(self.group.join("cgroup.freeze"), if freeze { "1" } else { "0" }),
        }
    }

    fn is_frozen(&self) -> bool {
        let (file, line) = match self.version {
            Version::V1 => ("freezer.state", "FROZEN"),
            Version::V2 => ("cgroup.events", "frozen 1"),
        };
        let text = std::fs::read_to_string(self.group.join(file)).unwrap_or_default();
        text.lines().any(|found| found == line)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        drop(self.write_state(false));
        let start = Instant::now();
        // A v1 group gives up its processes only after the last of them has gone on.
        while start.elapsed() < WATCHDOG {
            for (pid, home) in &self.processes {
                drop(std::fs::write(home.join("cgroup.procs"), pid.to_string()));
            }
            if std::fs::remove_dir(&self.group).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
