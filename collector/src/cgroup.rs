//! Control groups: which one a process is in, what it limits, and one of our own for the command (`--cgroup`).

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use procfs::process::MountInfos;
use procfs::{FromRead, ProcessCGroups};
use serde::{Deserialize, Serialize};

use crate::proc_fs::ProcRoot;
use crate::report::model::{Cgroup as Figures, Limit};

/// Where this process is in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The mount.
    top: PathBuf,
    /// The group's directory, below it.
    dir: PathBuf,
    /// The group's name.
    name: String,
}

/// Where this process is: with the v1 controllers that we ask for, where those are mounted, and in v2.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    v1_memory: Option<Place>,
    v1_cpu: Option<Place>,
    v2: Option<Place>,
}

impl Places {
    /// Of this process. What can't be read is not there.
    #[must_use]
    pub fn own(root: &ProcRoot) -> Self {
        let (Ok(groups), Ok(mounts)) = (
            ProcessCGroups::from_file(root.file("self/cgroup")),
            MountInfos::from_file(root.file("self/mountinfo")),
        ) else {
            return Self::default();
        };
        let place = |name: &str, kind: &str, controller: Option<&str>| {
            let mount = mounts.0.iter().find(|mount| {
                mount.fs_type == kind && controller.is_none_or(|name| mount.super_options.contains_key(name))
            })?;
            // In a container the mount's root is a group further down.
            let inside =
                Path::new(name).strip_prefix(&mount.root).or_else(|_| Path::new(name).strip_prefix("/"));
            let dir = mount.mount_point.join(inside.unwrap_or(Path::new("")));
            Some(Place { top: mount.mount_point.clone(), dir, name: name.to_owned() })
        };
        let v1 = |controller: &str| {
            let group =
                groups.0.iter().find(|group| group.controllers.iter().any(|name| name == controller))?;
            place(&group.pathname, "cgroup", Some(controller))
        };
        let v2 = || place(&groups.0.iter().find(|group| group.hierarchy == 0)?.pathname, "cgroup2", None);
        Self { v1_memory: v1("memory"), v1_cpu: v1("cpu"), v2: v2() }
    }

    /// The name of the group that limits memory.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.v1_memory.as_ref().or(self.v2.as_ref()).map(|place| place.name.as_str())
    }

    /// The smallest memory limit of the group and those above it, bytes.
    #[must_use]
    pub fn memory_limit(&self) -> Limit {
        // v1 says "no limit" by the largest number of pages that there is.
        const NONE: u64 = 1 << 62;
        match (&self.v1_memory, &self.v2) {
            (Some(place), _) => {
                place.smallest(|dir| Limit::parse(&read(&dir.join("memory.limit_in_bytes"))?, NONE))
            }
            (None, Some(place)) => place.smallest(|dir| Limit::parse(&read(&dir.join("memory.max"))?, NONE)),
            (None, None) => Limit::Unknown,
        }
    }

    /// The smallest limit of CPU time, milli-cores.
    #[must_use]
    pub fn cpu_limit(&self) -> Limit {
        let limit = |quota: &str, period: &str| {
            let period: u64 = period.trim().parse().ok().filter(|period| *period > 0)?;
            match quota.trim() {
                "max" | "-1" => Some(Limit::Unlimited),
                quota => Some(Limit::Known(quota.parse::<u64>().ok()?.checked_mul(1000)? / period)),
            }
        };
        match (&self.v1_cpu, &self.v2) {
            (Some(place), _) => place.smallest(|dir| {
                limit(&read(&dir.join("cpu.cfs_quota_us"))?, &read(&dir.join("cpu.cfs_period_us"))?)
            }),
            (None, Some(place)) => place.smallest(|dir| {
                let text = read(&dir.join("cpu.max"))?;
                let (quota, period) = text.trim().split_once(' ')?;
                limit(quota, period)
            }),
            (None, None) => Limit::Unknown,
        }
    }
}

impl Place {
    /// Of the group and all above it that say one. A group without the controller, as the topmost, limits nothing.
    fn smallest(&self, limit: impl Fn(&Path) -> Option<Limit>) -> Limit {
        let above = self.dir.ancestors().take_while(|dir| dir.starts_with(&self.top));
        above.filter_map(limit).fold(Limit::Unlimited, Limit::min)
    }
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// What the names of the runs' groups start with; the launcher's pid follows.
const PREFIX: &str = "gpu-track.";

/// A v2 group for one run, below our own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCgroup {
    dir: PathBuf,
    /// Controllers that were switched on for it, and are off again without it.
    switched_on: Vec<String>,
}

impl RunCgroup {
    /// Make one.
    ///
    /// # Errors
    /// Why it can't be had.
    pub fn create(root: &ProcRoot, launcher: u32, random: u32) -> Result<Self, String> {
        let place = Places::own(root).v2.ok_or("no cgroup v2 is mounted")?;
        // Those of runs that were killed as a whole: a group that is in use can't be removed.
        for left in siblings(&place.dir) {
            if !root.path(left.1, "stat").exists() {
                let _ = std::fs::remove_dir(left.0);
            }
        }
        let dir = place.dir.join(format!("{PREFIX}{launcher}.{random:08x}"));
        std::fs::create_dir(&dir).map_err(|error| format!("cannot create {}: {error}", dir.display()))?;
        let mut switched_on = Vec::new();
        for controller in ["memory", "io"] {
            let is_on = |file: &Path| {
                read(file).is_some_and(|list| list.split_whitespace().any(|name| name == controller))
            };
            let switch = place.dir.join("cgroup.subtree_control");
            // Refused where our own group holds processes and is not the topmost: then that figure is unknown.
            if !is_on(&dir.join("cgroup.controllers"))
                && is_on(&place.dir.join("cgroup.controllers"))
                && std::fs::write(&switch, format!("+{controller}")).is_ok()
            {
                switched_on.push(controller.to_owned());
            }
        }
        Ok(Self { dir, switched_on })
    }

    /// The file that a process writes "0" to in order to move in.
    ///
    /// # Errors
    /// If moving in is not allowed.
    pub fn entrance(&self) -> io::Result<File> {
        File::options().write(true).open(self.dir.join("cgroup.procs"))
    }

    /// What the kernel says of all that ever was in it.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let number = |file: &str| read(&self.dir.join(file))?.trim().parse().ok();
        let stat = read(&self.dir.join("cpu.stat")).unwrap_or_default();
        let seconds = |key: &str| {
            let value = stat.lines().find_map(|line| line.strip_prefix(key))?;
            Some(value.trim().parse::<f64>().ok()? / 1e6)
        };
        let io = read(&self.dir.join("io.stat"));
        let bytes = |key: &str| {
            let words = io.as_ref()?.split_whitespace().filter_map(|word| word.strip_prefix(key));
            Some(words.filter_map(|value| value.parse::<u64>().ok()).sum())
        };
        // Nothing runs without CPU time.
        if seconds("usage_usec ") == Some(0.0) {
            let reason = Some("the command could not be moved into it".into());
            return Figures { path: Some(self.dir.display().to_string()), reason, ..Figures::default() };
        }
        let memory_peak_bytes = number("memory.peak");
        let reason = match memory_peak_bytes {
            Some(_) => None,
            None if self.dir.join("memory.current").exists() => Some("memory.peak needs Linux 5.19".into()),
            None => Some("the memory controller can't be used below this process's own group".into()),
        };
        Figures {
            path: Some(self.dir.display().to_string()),
            memory_peak_bytes,
            cpu_usage_s: seconds("usage_usec "),
            cpu_user_s: seconds("user_usec "),
            cpu_system_s: seconds("system_usec "),
            io_read_bytes: bytes("rbytes="),
            io_write_bytes: bytes("wbytes="),
            reason,
        }
    }

    /// Take it away. Those who live on go back to where they would be without it.
    pub fn remove(&self) {
        let Some(above) = self.dir.parent() else { return };
        // Those that are moved may fork meanwhile.
        for _ in 0..10 {
            for pid in read(&self.dir.join("cgroup.procs")).unwrap_or_default().lines() {
                // Gone, or not to be moved: then the group stays.
                let _ = std::fs::write(above.join("cgroup.procs"), pid);
            }
            if std::fs::remove_dir(&self.dir).is_ok() {
                break;
            }
        }
        // Another run may count on it.
        if siblings(above).next().is_none() {
            for controller in &self.switched_on {
                let _ = std::fs::write(above.join("cgroup.subtree_control"), format!("-{controller}"));
            }
        }
    }
}

/// Groups of runs below this one, and the pids of their launchers.
fn siblings(above: &Path) -> impl Iterator<Item = (PathBuf, u32)> {
    std::fs::read_dir(above).into_iter().flatten().flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let (pid, _) = name.strip_prefix(PREFIX)?.split_once('.')?;
        Some((entry.path(), pid.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(groups: &str, mounts: &str) -> (tempfile::TempDir, ProcRoot) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("self")).unwrap();
        std::fs::write(dir.path().join("self/cgroup"), groups).unwrap();
        let top = dir.path().display().to_string();
        std::fs::write(dir.path().join("self/mountinfo"), mounts.replace("TOP", &top)).unwrap();
        let root = ProcRoot::new(dir.path());
        (dir, root)
    }

    fn put(dir: &tempfile::TempDir, file: &str, text: &str) {
        let path = dir.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn the_smallest_limit_of_all_groups_above_counts() {
        let (dir, root) = tree(
            "0::/job/step\n",
            "30 20 0:26 / TOP/fs rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
        );
        put(&dir, "fs/job/memory.max", "5000\n");
        put(&dir, "fs/job/step/memory.max", "max\n");
        put(&dir, "fs/job/cpu.max", "max 100000\n");
        put(&dir, "fs/job/step/cpu.max", "150000 100000\n");
        let places = Places::own(&root);
        assert_eq!((places.memory_limit(), places.cpu_limit()), (Limit::Known(5000), Limit::Known(1500)));
        assert_eq!(places.name(), Some("/job/step"));
    }

    #[test]
    fn a_container_sees_its_own_group_as_the_topmost() {
        let (dir, root) = tree(
            "9:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/\n",
            "30 20 0:26 /docker/abc TOP/memory rw - cgroup cgroup rw,memory\n\
             31 20 0:27 /docker/abc TOP/cpu rw - cgroup cgroup rw,cpu,cpuacct\n",
        );
        put(&dir, "memory/memory.limit_in_bytes", "9223372036854771712\n");
        put(&dir, "cpu/cpu.cfs_quota_us", "-1\n");
        put(&dir, "cpu/cpu.cfs_period_us", "100000\n");
        let places = Places::own(&root);
        assert_eq!((places.memory_limit(), places.cpu_limit()), (Limit::Unlimited, Limit::Unlimited));
        put(&dir, "memory/memory.limit_in_bytes", "7000\n");
        assert_eq!(places.memory_limit(), Limit::Known(7000));
        assert_eq!(RunCgroup::create(&root, 1, 1), Err("no cgroup v2 is mounted".into()));
    }

    #[test]
    fn without_groups_nothing_is_known() {
        let root = ProcRoot::new("/nonexistent");
        assert_eq!(Places::own(&root).memory_limit(), Limit::Unknown);
    }

    #[test]
    fn a_groups_figures_are_the_kernels() {
        let (dir, root) = tree("0::/\n", "30 20 0:26 / TOP/fs rw - cgroup2 cgroup2 rw\n");
        put(&dir, "fs/cgroup.controllers", "cpu\n");
        let run = RunCgroup::create(&root, 7, 1).unwrap();
        put(&dir, "fs/gpu-track.7.00000001/cpu.stat", "usage_usec 0\nuser_usec 0\nsystem_usec 0\n");
        assert!(run.figures().cpu_usage_s.is_none() && run.figures().reason.is_some());
        put(
            &dir,
            "fs/gpu-track.7.00000001/cpu.stat",
            "usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\n",
        );
        put(
            &dir,
            "fs/gpu-track.7.00000001/io.stat",
            "8:0 rbytes=10 wbytes=20 rios=1\n8:16 rbytes=1 wbytes=2\n",
        );
        let figures = run.figures();
        assert_eq!((figures.cpu_usage_s, figures.cpu_user_s), (Some(1.5), Some(1.0)));
        assert_eq!((figures.io_read_bytes, figures.io_write_bytes), (Some(11), Some(22)));
        assert_eq!(figures.memory_peak_bytes, None);
        assert!(figures.reason.unwrap().contains("memory controller"));
        put(&dir, "fs/gpu-track.7.00000001/memory.peak", "4096\n");
        assert_eq!((run.figures().memory_peak_bytes, run.figures().reason), (Some(4096), None));
    }
}
