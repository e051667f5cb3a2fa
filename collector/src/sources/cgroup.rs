//! Control groups: which one a process is in, and what it limits (cgroups(7)).

mod run;

use std::path::{Path, PathBuf};

use crate::model::cgroup::OomCounter;
use crate::model::report::Limit;
use crate::sys::proc_fs::ProcRoot;
use procfs::process::MountInfos;
use procfs::{FromRead, ProcessCGroups};

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
    v1_pids: Option<Place>,
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
            Place::below(&mount.mount_point, Path::new(&mount.root), name)
        };
        let v1 = |controller: &str| {
            let group =
                groups.0.iter().find(|group| group.controllers.iter().any(|name| name == controller))?;
            place(&group.pathname, "cgroup", Some(controller))
        };
        let v2 = || place(&groups.0.iter().find(|group| group.hierarchy == 0)?.pathname, "cgroup2", None);
        Self { v1_memory: v1("memory"), v1_cpu: v1("cpu"), v1_pids: v1("pids"), v2: v2() }
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

    /// The smallest limit of processes and threads (pids.max).
    #[must_use]
    pub fn task_limit(&self) -> Limit {
        let place = self.v1_pids.as_ref().or(self.v2.as_ref());
        place.map_or(Limit::Unknown, |place| {
            place.smallest(|dir| Limit::parse(&read(&dir.join("pids.max"))?, u64::MAX))
        })
    }

    /// The file that counts whom the kernel killed in the group since memory ran out.
    #[must_use]
    pub fn oom_counter(&self) -> Option<OomCounter> {
        let file = match (&self.v1_memory, &self.v2) {
            (Some(place), _) => place.dir.join("memory.oom_control"),
            (None, Some(place)) => place.dir.join(EVENTS),
            (None, None) => return None,
        };
        Some(OomCounter { before: oom_kills(&file)?, file })
    }
}

/// What counts, in v2, what happened to a group's memory; "local" would leave out the groups below.
const EVENTS: &str = "memory.events";

impl OomCounter {
    /// How many there were since; `None` where the group is gone.
    #[must_use]
    pub fn since(&self) -> Option<u64> {
        oom_kills(&self.file)?.checked_sub(self.before)
    }
}

/// The same line in both versions, since Linux 4.13; the topmost group of v2 has no such file.
fn oom_kills(file: &Path) -> Option<u64> {
    read(file)?.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

impl Place {
    /// The group of this name, seen through a mount of its hierarchy at `top` that shows the groups from `shown` on.
    fn below(top: &Path, shown: &Path, name: &str) -> Option<Self> {
        // A launcher that stepped aside belongs to the group above.
        let name = run::without_aside(name);
        // With ".." (cgroup_namespaces(7)), it's from within another namespace than the mount: no way to tell.
        let is_foreign = |path: &Path| path.components().any(|part| part.as_os_str() == "..");
        if is_foreign(shown) || is_foreign(Path::new(name)) {
            return None;
        }
        // In a container the mount's root is a group further down.
        let inside = Path::new(name).strip_prefix(shown).or_else(|_| Path::new(name).strip_prefix("/"));
        // Without the slash that joining nothing would leave at its end.
        let dir = top.join(inside.unwrap_or(Path::new(""))).components().collect();
        Some(Self { top: top.to_owned(), dir, name: name.to_owned() })
    }

    /// Of the group and all above it that say one. A group without the controller, as the topmost, limits nothing.
    fn smallest(&self, limit: impl Fn(&Path) -> Option<Limit>) -> Limit {
        let above = self.dir.ancestors().take_while(|dir| dir.starts_with(&self.top));
        above.filter_map(limit).fold(Limit::Unlimited, Limit::min)
    }
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A root with these `self/cgroup` and `self/mountinfo`, in which TOP is the root itself.
    pub(crate) fn tree(groups: &str, mounts: &str) -> (tempfile::TempDir, ProcRoot) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("self")).unwrap();
        std::fs::write(dir.path().join("self/cgroup"), groups).unwrap();
        let top = dir.path().display().to_string();
        std::fs::write(dir.path().join("self/mountinfo"), mounts.replace("TOP", &top)).unwrap();
        let root = ProcRoot::new(dir.path());
        (dir, root)
    }

    pub(crate) fn put(dir: &tempfile::TempDir, file: &str, text: &str) {
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
    }

    #[test]
    fn what_another_namespaces_mount_shows_of_us_is_not_known() {
        for (name, shown) in [("/", "/.."), ("/../other", "/")] {
            let mounts = format!("30 20 0:26 {shown} TOP/fs rw - cgroup2 cgroup2 rw\n");
            let (dir, root) = tree(&format!("0::{name}\n"), &mounts);
            put(&dir, "fs/memory.max", "5000\n");
            let places = Places::own(&root);
            assert_eq!((places.name(), places.memory_limit()), (None, Limit::Unknown), "{name} {shown}");
        }
    }

    #[test]
    fn who_was_killed_since_memory_ran_out_is_counted_from_the_beginning() {
        let (dir, root) = tree("0::/job\n", "30 20 0:26 / TOP/fs rw - cgroup2 cgroup2 rw\n");
        assert_eq!(Places::own(&root).oom_counter(), None, "the topmost group counts nothing");
        put(&dir, "fs/job/memory.events", "low 0\nmax 7\noom 3\noom_kill 2\noom_group_kill 0\n");
        let counter = Places::own(&root).oom_counter().unwrap();
        assert_eq!(counter.since(), Some(0));
        put(&dir, "fs/job/memory.events", "low 0\nmax 9\noom 4\noom_kill 5\noom_group_kill 0\n");
        assert_eq!(counter.since(), Some(3));
        std::fs::remove_dir_all(dir.path().join("fs/job")).unwrap();
        assert_eq!(counter.since(), None);

        let (dir, root) = tree("4:memory:/job\n", "30 20 0:26 / TOP/memory rw - cgroup cgroup rw,memory\n");
        put(&dir, "memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
        let counter = Places::own(&root).oom_counter().unwrap();
        put(&dir, "memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
        assert_eq!(counter.since(), Some(1));
    }

    #[test]
    fn the_limit_of_processes_is_that_of_either_version() {
        let mounts =
            "30 20 0:26 / TOP/fs rw - cgroup2 cgroup2 rw\n31 20 0:27 / TOP/pids rw - cgroup cgroup rw,pids\n";
        let (dir, root) = tree("0::/job/step\n", mounts);
        put(&dir, "fs/job/pids.max", "500\n");
        put(&dir, "fs/job/step/pids.max", "max\n");
        assert_eq!(Places::own(&root).task_limit(), Limit::Known(500));
        let (dir, root) = tree("8:pids:/job\n0::/\n", mounts);
        put(&dir, "pids/job/pids.max", "70\n");
        assert_eq!(Places::own(&root).task_limit(), Limit::Known(70));
    }

    #[test]
    fn a_launcher_that_stepped_aside_is_in_the_group_above() {
        let (_dir, root) =
            tree("0::/job/gpu-track.7.0000000a.aside\n", "30 20 0:26 / TOP/fs rw - cgroup2 cgroup2 rw\n");
        assert_eq!(Places::own(&root).name(), Some("/job"));
    }

    #[test]
    fn without_groups_nothing_is_known() {
        let root = ProcRoot::new("/nonexistent");
        assert_eq!(Places::own(&root).memory_limit(), Limit::Unknown);
    }
}
