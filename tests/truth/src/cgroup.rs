//! CPU time as the kernel sums it, by a cgroup that is made for one run (v1 cpuacct or v2).

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const PREFIX: &str = "gpu-track-truth.";

/// A cgroup of one run; removed when dropped.
#[derive(Debug)]
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// Makes a cgroup. The error is the reason why that is impossible here.
    pub fn create() -> Result<Self, String> {
        let root = ["/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup"]
            .into_iter()
            .map(Path::new)
            .find(|root| root.join("cpuacct.usage").is_file() || root.join("cgroup.controllers").is_file())
            .ok_or("no cgroup with CPU accounting is mounted")?;
        let cgroup = Self(create_group(root)?);
        cgroup.cpu_s()?;
        Ok(cgroup)
    }

    /// The file to which a process writes its pid to enter the cgroup.
    pub fn procs(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }

    /// Moves a process into the cgroup. Its existing children stay where they are.
    pub fn add(&self, pid: u32) -> Result<(), String> {
        let file = self.procs();
        std::fs::write(&file, pid.to_string()).map_err(|error| format!("{}: {error}", file.display()))
    }

    /// The pids of its processes.
    pub fn processes(&self) -> Vec<u32> {
        let list = std::fs::read_to_string(self.procs()).unwrap_or_default();
        list.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// CPU time of all processes that are or were in it.
    pub fn cpu_s(&self) -> Result<f64, String> {
        let read = |name: &str| std::fs::read_to_string(self.0.join(name));
        if let Ok(ns) = read("cpuacct.usage") {
            return ns
                .trim()
                .parse::<f64>()
                .map(|ns| ns / 1e9)
                .map_err(|error| format!("cpuacct.usage: {error}"));
        }
        let stat = read("cpu.stat").map_err(|error| format!("cpu.stat: {error}"))?;
        usage_usec(&stat).map(|us| us / 1e6).ok_or("no usage_usec in cpu.stat".to_owned())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The kernel may still be removing the last process from the cgroup.
        for _ in 0..1000 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Makes a group with a name of its own at the top of a hierarchy.
pub(crate) fn create_group(root: &Path) -> Result<PathBuf, String> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    remove_stale(root);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let directory = root.join(format!("{PREFIX}{}.{count}", std::process::id()));
    std::fs::create_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    Ok(directory)
}

fn usage_usec(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?.parse().ok()
}

/// Removes the cgroups of recorders that were killed.
fn remove_stale(root: &Path) {
    for entry in std::fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid =
            name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('.').next()?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            drop(std::fs::remove_dir(entry.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_usec_is_read_from_cpu_stat() {
        assert_eq!(usage_usec("usage_usec 1500\nuser_usec 1000\nsystem_usec 500\n"), Some(1500.0));
        assert_eq!(usage_usec("user_usec 1000\n"), None);
    }
}
