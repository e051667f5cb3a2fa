//! CPU time as the kernel sums it: a cgroup made for one run (v1 cpuacct, or v2).
//!
//! The command moves itself in, so gpu-track-run and its collector are outside.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::WATCHDOG;

/// A cgroup of one run; removed when dropped.
pub struct Cgroup {
    directory: PathBuf,
}

impl Cgroup {
    /// Makes one; says why it cannot.
    pub fn create() -> Result<Self, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let root = ["/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup"]
            .into_iter()
            .map(Path::new)
            .find(|root| root.join("cpuacct.usage").is_file() || root.join("cgroup.controllers").is_file())
            .ok_or("no cgroup with CPU accounting is mounted")?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = root.join(format!("gpu-track-test.{}.{count}", std::process::id()));
        std::fs::create_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let cgroup = Self { directory };
        cgroup.read_cpu_s()?;
        Ok(cgroup)
    }

    /// The file that a process writes its pid to in order to move in.
    pub fn procs(&self) -> PathBuf {
        self.directory.join("cgroup.procs")
    }

    /// CPU time of all that ever was in it, seconds.
    pub fn cpu_s(&self) -> f64 {
        self.read_cpu_s().unwrap_or_else(|error| panic!("{error}"))
    }

    fn read_cpu_s(&self) -> Result<f64, String> {
        let read = |name: &str| std::fs::read_to_string(self.directory.join(name));
        if let Ok(ns) = read("cpuacct.usage") {
            return ns.trim().parse::<f64>().map(|ns| ns / 1e9).map_err(|error| error.to_string());
        }
        let stat = read("cpu.stat").map_err(|error| format!("cpu.stat: {error}"))?;
        let us = stat.lines().find_map(|line| line.strip_prefix("usage_usec "));
        us.and_then(|us| us.parse::<f64>().ok())
            .map(|us| us / 1e6)
            .ok_or("no usage_usec in cpu.stat".to_owned())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // After a failed test its processes may still be on their way out; a second panic would hide the first.
        let start = std::time::Instant::now();
        while std::fs::remove_dir(&self.directory).is_err() && start.elapsed() < WATCHDOG {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
}
