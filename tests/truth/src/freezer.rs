//! Stops a set of processes by a cgroup (v2). Unlike SIGSTOP, no process can see it. (The freezer of v1 never gets done
//! with a process that waits in vfork.)

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::cgroup;

/// How long the kernel may take to stop the processes, and to let an empty group be removed.
const WATCHDOG: Duration = Duration::from_secs(20);

/// A group that can stop the processes in it.
#[derive(Debug)]
pub struct Freezer {
    root: &'static Path,
    group: PathBuf,
    /// Each process and the group that it came from.
    processes: Vec<(u32, PathBuf)>,
}

impl Freezer {
    /// Makes a group. The error is the reason why that is impossible here.
    pub fn create() -> Result<Self, String> {
        let root = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
            .map(Path::new)
            .into_iter()
            .find(|root| root.join("cgroup.controllers").is_file())
            .ok_or("no cgroup v2 is mounted")?;
        let freezer = Self { root, group: cgroup::create_group(root)?, processes: Vec::new() };
        let file = freezer.group.join("cgroup.freeze");
        if file.is_file() { Ok(freezer) } else { Err(format!("no {}", file.display())) }
    }

    /// Stops the processes that `list` gives. It is asked again until it gives no further process. They go on when the
    /// freezer is dropped.
    pub fn stop(&mut self, list: impl Fn() -> Result<Vec<u32>, String>) -> Result<(), String> {
        while self.add(&list()?)? {
            self.freeze()?;
        }
        Ok(())
    }

    /// Moves the processes that are not in the group into it. Whether there was one.
    fn add(&mut self, pids: &[u32]) -> Result<bool, String> {
        let mut added = false;
        for pid in pids {
            if self.processes.iter().any(|(known, _)| known == pid) {
                continue;
            }
            let Some(home) = home(self.root, *pid) else { continue };
            match std::fs::write(self.group.join("cgroup.procs"), pid.to_string()) {
                Ok(()) => self.processes.push((*pid, home)),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue,
                Err(error) => return Err(format!("{}: {error}", self.group.display())),
            }
            added = true;
        }
        Ok(added)
    }

    fn freeze(&self) -> Result<(), String> {
        let file = self.group.join("cgroup.freeze");
        std::fs::write(&file, "1").map_err(|error| format!("{}: {error}", file.display()))?;
        let start = Instant::now();
        let events = || std::fs::read_to_string(self.group.join("cgroup.events")).unwrap_or_default();
        while !events().lines().any(|line| line == "frozen 1") {
            if start.elapsed() > WATCHDOG {
                return Err(format!("{}: the processes do not stop", self.group.display()));
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}

/// The group of a process; none if it has ended.
fn home(root: &Path, pid: u32) -> Option<PathBuf> {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(root.join(path))
}

impl Drop for Freezer {
    fn drop(&mut self) {
        for (pid, home) in &self.processes {
            drop(std::fs::write(home.join("cgroup.procs"), pid.to_string()));
        }
        let start = Instant::now();
        // The kernel may still be removing the last process from the group.
        while std::fs::remove_dir(&self.group).is_err() && start.elapsed() < WATCHDOG {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
