//! Control groups (cgroups(7)): the groups that this process is in, and their limits.

pub(crate) mod container;
mod memory;
pub mod run_cgroup;

use std::path::{Path, PathBuf};

use crate::model::cgroup::{CgroupUse, Cgroups, OomCounter};
use crate::model::report::{CgroupMemory, Limit};
use crate::model::stalls::Throttling;
use crate::sys::proc_fs::ProcRoot;

/// Start of the names of our groups, before the launcher's pid, its pid namespace and a random number, with dots between them.
const PREFIX: &str = "gpu-track.";
/// End of the name of the group that a launcher moves into so that its own group holds no process, see [`run_cgroup`].
const ASIDE: &str = ".aside";

/// The group of a process in one cgroup hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// Mount point of the hierarchy.
    top: PathBuf,
    /// Directory of the group, below `top`.
    dir: PathBuf,
    /// Name of the group.
    name: String,
}

/// The groups of a process: in v2, and in the v1 hierarchy of each controller whose limits are read. A group is `None` if this
/// process does not have the hierarchy mounted, or cannot read where the group is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Groups {
    v1_memory: Option<Group>,
    v1_cpu: Option<Group>,
    v1_pids: Option<Group>,
    v2: Option<Group>,
}

impl Groups {
    /// Finds the groups of this process.
    pub fn own(root: &ProcRoot) -> Self {
        Self::read(root, None)
    }

    /// Finds the groups of the process with this pid. `None` stands for this process.
    pub fn read(root: &ProcRoot, pid: Option<u32>) -> Self {
        let file = match pid {
            Some(pid) => root.path(pid, "cgroup"),
            None => root.top_path("self/cgroup"),
        };
        let (Ok(names), Ok(mounts)) = (std::fs::read(file), std::fs::read(root.top_path("self/mountinfo")))
        else {
            return Self::default();
        };
        let (names, mounts) = (String::from_utf8_lossy(&names), String::from_utf8_lossy(&mounts));
        let hierarchies: Vec<Hierarchy> = mounts.lines().filter_map(Hierarchy::parse).collect();
        let v1 = |controller: &str| v1_group(&names, &hierarchies, controller);
        Self {
            v1_memory: v1("memory"),
            v1_cpu: v1("cpu"),
            v1_pids: v1("pids"),
            v2: v2_group(&names, &hierarchies),
        }
    }

    /// The group that limits memory. A controller is in one hierarchy only (cgroups(7)): if v1 has it, v2 has not.
    fn for_memory(&self) -> Option<&Group> {
        self.v1_memory.as_ref().or(self.v2.as_ref())
    }

    /// Name of the group that limits memory.
    pub(crate) fn name(&self) -> Option<&str> {
        self.for_memory().map(|group| group.name.as_str())
    }

    /// Reads the smallest memory limit of the group and its ancestors, bytes.
    pub(crate) fn memory_limit(&self) -> Limit {
        self.for_memory().map_or(Limit::Unknown, |group| group.smallest_limit(memory_limit))
    }

    /// Reads the smallest CPU quota of the group and its ancestors, thousandths of a core.
    pub(crate) fn cpu_limit(&self) -> Limit {
        // Quota and period are in microseconds. For no quota, v1 writes -1, v2 "max".
        let limit = |quota: &str, period: &str| {
            let period: u64 = period.trim().parse().ok().filter(|period| *period > 0)?;
            match quota.trim() {
                "max" | "-1" => Some(Limit::Unlimited),
                quota => Some(Limit::Known(quota.parse::<u64>().ok()?.checked_mul(1000)? / period)),
            }
        };
        match (&self.v1_cpu, &self.v2) {
            (Some(group), _) => group.smallest_limit(|dir| {
                limit(&read(&dir.join("cpu.cfs_quota_us"))?, &read(&dir.join("cpu.cfs_period_us"))?)
            }),
            (None, Some(group)) => group.smallest_limit(|dir| {
                let text = read(&dir.join("cpu.max"))?;
                let (quota, period) = text.trim().split_once(' ')?;
                limit(quota, period)
            }),
            (None, None) => Limit::Unknown,
        }
    }

    /// The groups with a CPU quota: that of the process and its ancestors, innermost first, by name and directory. The count of
    /// throttled periods is kept by the group that has the quota.
    pub(crate) fn cpu_quotas(&self) -> impl Iterator<Item = (String, &Path)> {
        let has_quota = |dir: &Path| {
            let v1 = number(&dir.join("cpu.cfs_quota_us")).is_some();
            v1 || read(&dir.join("cpu.max")).is_some_and(|max| !max.starts_with("max"))
        };
        let group = self.v1_cpu.as_ref().or(self.v2.as_ref());
        let groups = group.into_iter().flat_map(Group::with_ancestors);
        groups.filter(move |(dir, _)| has_quota(dir)).map(|(dir, name)| (name, dir))
    }

    /// The directory of the group that memory is charged to.
    pub(crate) fn memory_dir(&self) -> Option<&Path> {
        self.for_memory().map(|group| group.dir.as_path())
    }

    /// The directory of the group in cgroup v2.
    pub(crate) fn v2_dir(&self) -> Option<&Path> {
        self.v2.as_ref().map(|group| group.dir.as_path())
    }

    /// The name of the group in cgroup v2.
    pub(crate) fn v2_name(&self) -> Option<&str> {
        self.v2.as_ref().map(|group| group.name.as_str())
    }

    /// Reads the smallest limit of processes and threads (pids.max) of the group and its ancestors.
    pub(crate) fn task_limit(&self) -> Limit {
        let group = self.v1_pids.as_ref().or(self.v2.as_ref());
        group.map_or(Limit::Unknown, |group| {
            group.smallest_limit(|dir| Limit::parse(&read(&dir.join("pids.max"))?, u64::MAX))
        })
    }

    /// Reads the counter of OOM kills in the group. `None`: the group has none.
    fn oom_counter(&self) -> Option<OomCounter> {
        let file = match (&self.v1_memory, &self.v2) {
            (Some(group), _) => group.dir.join("memory.oom_control"),
            (None, Some(group)) => group.dir.join(MEMORY_EVENTS),
            (None, None) => return None,
        };
        Some(OomCounter { before: oom_kills(&file)?, file })
    }
}

/// Reads what the CPU quota of the group at `dir` did since the group was made. `None`: it keeps no such counts.
pub(crate) fn throttling(dir: &Path) -> Option<Throttling> {
    let stat = read(&dir.join("cpu.stat"))?;
    // v1 counts in nanoseconds.
    let v1_us = || Some(count(&stat, "throttled_time ")? / 1000);
    Some(Throttling {
        periods: count(&stat, "nr_periods ")?,
        throttled_periods: count(&stat, "nr_throttled ")?,
        throttled_us: count(&stat, "throttled_usec ").or_else(v1_us)?,
    })
}

/// Reads what the group at `dir` is charged for beside the memory of processes, with the groups below it. `None`: memory.stat can't be
/// read.
pub(crate) fn memory_charge(dir: &Path, name: String) -> Option<CgroupMemory> {
    let stat = read(&dir.join("memory.stat"))?;
    // v1 has `shmem` and others of the group alone, and with `total_` those of the groups below it, too.
    let bytes = |v1: &str, v2: &str| count(&stat, v1).or_else(|| count(&stat, v2));
    Some(CgroupMemory {
        cgroup: name,
        page_cache_bytes: bytes("total_cache ", "file "),
        shmem_bytes: bytes("total_shmem ", "shmem "),
        mapped_file_bytes: bytes("total_mapped_file ", "file_mapped "),
    })
}

/// A mounted cgroup hierarchy, from a line of /proc/PID/mountinfo (proc_pid_mountinfo(5)).
struct Hierarchy<'a> {
    /// The group that the mount point shows.
    root: &'a Path,
    mount_point: &'a Path,
    /// Options of the file system. Mounts of v1 name their controllers in them. `None`: a hierarchy of v2.
    v1_options: Option<&'a str>,
}

impl<'a> Hierarchy<'a> {
    /// Parses a line. `None`: it is another file system's.
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut file_system = file_system.split(' ');
        let v1_options = match file_system.next()? {
            "cgroup" => Some(file_system.nth(1)?),
            "cgroup2" => None,
            _ => return None,
        };
        let mut fields = mount.split(' ').skip(3).map(Path::new);
        Some(Self { root: fields.next()?, mount_point: fields.next()?, v1_options })
    }
}

/// Finds the group in the v1 hierarchy that has this controller. `names`: the text of a process's /proc/PID/cgroup.
fn v1_group(names: &str, hierarchies: &[Hierarchy], controller: &str) -> Option<Group> {
    let has_it = |list: &str| list.split(',').any(|name| name == controller);
    // A line is "NUMBER:CONTROLLERS:NAME" (cgroups(7)).
    let name = names.lines().find_map(|line| {
        let (controllers, name) = line.split_once(':')?.1.split_once(':')?;
        has_it(controllers).then_some(name)
    })?;
    Group::below(hierarchies.iter().find(|one| one.v1_options.is_some_and(has_it))?, name)
}

/// Finds the group in the v2 hierarchy, which is a single one and has number 0. `names` is as in [`v1_group`].
fn v2_group(names: &str, hierarchies: &[Hierarchy]) -> Option<Group> {
    let name = names.lines().find_map(|line| line.strip_prefix("0::"))?;
    Group::below(hierarchies.iter().find(|one| one.v1_options.is_none())?, name)
}

/// The v2 file that counts OOM kills. `memory.events.local` would leave out descendant groups.
const MEMORY_EVENTS: &str = "memory.events";

/// Finds the groups that the process with this pid is in, with their memory limits and OOM counter. `None` stands for this
/// process. No group is made for the command.
pub fn of_process(root: &ProcRoot, pid: Option<u32>) -> Cgroups {
    let groups = Groups::read(root, pid);
    Cgroups { own: None, ram_limit: None, oom: groups.oom_counter(), memory_limits: groups.memory_limits() }
}

/// Reads what the run has used of its groups.
pub(crate) fn usage(cgroups: &Cgroups) -> CgroupUse {
    CgroupUse {
        own: cgroups.own.as_ref().and_then(|made| Some(run_cgroup::figures(made.as_ref().ok()?))),
        oom_kills: cgroups.oom.as_ref().and_then(oom_kills_since),
        memory_limits: cgroups.memory_limits.iter().filter_map(memory::usage).collect(),
    }
}

/// Reads the OOM kills since the start of the session. `None`: the group is gone, or a new group has its name.
pub(crate) fn oom_kills_since(counter: &OomCounter) -> Option<u64> {
    oom_kills(&counter.file)?.checked_sub(counter.before)
}

/// Reads the OOM kills in a group from its file. Both cgroup versions have the line since Linux 4.13. `None`: there is no such file,
/// as in the root group of v2.
fn oom_kills(file: &Path) -> Option<u64> {
    count(&read(file)?, "oom_kill ")
}

impl Group {
    /// Finds the group of this name (its path in the hierarchy). `None`: the mount shows another cgroup namespace.
    fn below(hierarchy: &Hierarchy, name: &str) -> Option<Self> {
        let (top, mount_root) = (hierarchy.mount_point, hierarchy.root);
        // A launcher that moved into a group of its own counts as a member of the parent group.
        let name = without_aside(name);
        // ".." (cgroup_namespaces(7)): the mount belongs to another cgroup namespace, so the path cannot be resolved.
        let is_foreign = |path: &Path| path.components().any(|part| part.as_os_str() == "..");
        if is_foreign(mount_root) || is_foreign(Path::new(name)) {
            return None;
        }
        // In a container, the root of the mount is a group further down in the hierarchy. Below it, names continue as directories.
        let inside = Path::new(name).strip_prefix(mount_root).or_else(|_| Path::new(name).strip_prefix("/"));
        // `components` drops the slash that joining an empty path leaves at the end.
        let dir = top.join(inside.unwrap_or(Path::new(""))).components().collect();
        Some(Self { top: top.to_owned(), dir, name: name.to_owned() })
    }

    /// The directories of the group and its ancestors, up to the mount point.
    fn directories(&self) -> impl Iterator<Item = &Path> {
        self.dir.ancestors().take_while(|dir| dir.starts_with(&self.top))
    }

    /// The smallest limit of the group and its ancestors, or [`Limit::Unlimited`] if none of them has one. `limit` reads the limit of
    /// the group at a directory. A group without the controller, such as the root group, has none.
    fn smallest_limit(&self, limit: impl Fn(&Path) -> Option<Limit>) -> Limit {
        self.directories().filter_map(limit).fold(Limit::Unlimited, Limit::min)
    }
}

/// Reads the memory limit of the group at `dir`, bytes. `None`: the group has no such file, as the root group of v2, or the
/// file can't be read.
fn memory_limit(dir: &Path) -> Option<Limit> {
    // For "no limit", v1 writes the largest multiple of a page below 2^63 bytes. No real limit is half of that.
    const NO_LIMIT: u64 = 1 << 62;
    ["memory.limit_in_bytes", "memory.max"]
        .iter()
        .find_map(|file| Limit::parse(&read(&dir.join(file))?, NO_LIMIT))
}

/// The name of the group that the launcher was started in, from the name of its current group. If the launcher has moved into a group
/// of its own, that is the parent of this group.
fn without_aside(name: &str) -> &str {
    match name.rsplit_once('/') {
        Some((above, own)) if own.starts_with(PREFIX) && own.ends_with(ASIDE) => {
            if above.is_empty() {
                "/"
            } else {
                above
            }
        }
        _ => name,
    }
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// Reads a file that holds a number and nothing else.
fn number(path: &Path) -> Option<u64> {
    read(path)?.trim().parse().ok()
}

/// Finds the line that begins with `key`, such as `oom_kill `, and parses the number after it.
fn count(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key))?.trim().parse().ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A /proc with these `self/cgroup` and `self/mountinfo`; TOP in `mounts` stands for its directory.
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

    // Requirement: CGROUP-2
    #[test]
    fn smallest_limit_of_all_ancestors_counts() {
        let (dir, root) = tree(
            "0::/job/step\n",
            "30 20 0:26 / TOP/fs rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
        );
        put(&dir, "fs/job/memory.max", "5000\n");
        put(&dir, "fs/job/step/memory.max", "max\n");
        put(&dir, "fs/job/cpu.max", "max 100000\n");
        put(&dir, "fs/job/step/cpu.max", "150000 100000\n");
        let groups = Groups::own(&root);
        assert_eq!((groups.memory_limit(), groups.cpu_limit()), (Limit::Known(5000), Limit::Known(1500)));
        assert_eq!(groups.name(), Some("/job/step"));
    }

    // Requirement: CGROUP-62
    #[test]
    fn container_group_is_the_root_of_its_mount() {
        let (dir, root) = tree(
            "9:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/\n",
            "30 20 0:26 /docker/abc TOP/memory rw - cgroup cgroup rw,memory\n\
             31 20 0:27 /docker/abc TOP/cpu rw - cgroup cgroup rw,cpu,cpuacct\n",
        );
        put(&dir, "memory/memory.limit_in_bytes", "9223372036854771712\n");
        put(&dir, "cpu/cpu.cfs_quota_us", "-1\n");
        put(&dir, "cpu/cpu.cfs_period_us", "100000\n");
        let groups = Groups::own(&root);
        assert_eq!((groups.memory_limit(), groups.cpu_limit()), (Limit::Unlimited, Limit::Unlimited));
        put(&dir, "memory/memory.limit_in_bytes", "7000\n");
        assert_eq!(groups.memory_limit(), Limit::Known(7000));
    }

    #[test]
    fn mounts_of_other_file_systems_do_not_matter() {
        let (dir, root) = tree("7:cpu,cpuacct:/job\n0::/job\n", "");
        let top = dir.path().to_str().unwrap().as_bytes();
        // With a name that is no UTF-8, as many optional fields as there can be, and none.
        let lines: [&[u8]; 4] = [
            b"22 1 8:1 / /\xff\xfe rw shared:1 master:2 propagate_from:3 - ext4 /dev/sda1 rw,cpu\n",
            b"half a line\n",
            &[b"30 20 0:26 / ", top, b"/v1 rw shared:9 master:2 - cgroup none rw,cpu,cpuacct\n"].concat(),
            &[b"31 20 0:27 / ", top, b"/fs rw - cgroup2 none rw\n"].concat(),
        ];
        std::fs::write(dir.path().join("self/mountinfo"), lines.concat()).unwrap();
        put(&dir, "fs/job/memory.max", "5000\n");
        put(&dir, "v1/job/cpu.cfs_quota_us", "50000\n");
        put(&dir, "v1/job/cpu.cfs_period_us", "100000\n");
        let groups = Groups::own(&root);
        assert_eq!((groups.memory_limit(), groups.cpu_limit()), (Limit::Known(5000), Limit::Known(500)));
        assert_eq!(groups.task_limit(), Limit::Unlimited, "v2 has the controllers that v1 lacks");
    }

    // Requirement: CGROUP-62
    #[test]
    fn mount_of_another_cgroup_namespace_gives_no_limits() {
        for (name, shown) in [("/", "/.."), ("/../other", "/")] {
            let mounts = format!("30 20 0:26 {shown} TOP/fs rw - cgroup2 cgroup2 rw\n");
            let (dir, root) = tree(&format!("0::{name}\n"), &mounts);
            put(&dir, "fs/memory.max", "5000\n");
            let groups = Groups::own(&root);
            assert_eq!((groups.name(), groups.memory_limit()), (None, Limit::Unknown), "{name} {shown}");
        }
    }

    // Requirement: CGROUP-59
    #[test]
    fn oom_kills_are_counted_from_the_session_start() {
        let (dir, root) = tree("0::/job\n", "30 20 0:26 / TOP/fs rw - cgroup2 cgroup2 rw\n");
        assert_eq!(Groups::own(&root).oom_counter(), None, "the root group counts nothing");
        put(&dir, "fs/job/memory.events", "low 0\nmax 7\noom 3\noom_kill 2\noom_group_kill 0\n");
        let counter = Groups::own(&root).oom_counter().unwrap();
        assert_eq!(oom_kills_since(&counter), Some(0));
        put(&dir, "fs/job/memory.events", "low 0\nmax 9\noom 4\noom_kill 5\noom_group_kill 0\n");
        assert_eq!(oom_kills_since(&counter), Some(3));
        std::fs::remove_dir_all(dir.path().join("fs/job")).unwrap();
        assert_eq!(oom_kills_since(&counter), None);

        let (dir, root) = tree("4:memory:/job\n", "30 20 0:26 / TOP/memory rw - cgroup cgroup rw,memory\n");
        put(&dir, "memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
        let counter = Groups::own(&root).oom_counter().unwrap();
        put(&dir, "memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
        assert_eq!(oom_kills_since(&counter), Some(1));
    }

    // Requirement: CGROUP-1
    #[test]
    fn task_limit_is_read_from_v1_or_v2() {
        let mounts =
            "30 20 0:26 / TOP/fs rw - cgroup2 cgroup2 rw\n31 20 0:27 / TOP/pids rw - cgroup cgroup rw,pids\n";
        let (dir, root) = tree("0::/job/step\n", mounts);
        put(&dir, "fs/job/pids.max", "500\n");
        put(&dir, "fs/job/step/pids.max", "max\n");
        assert_eq!(Groups::own(&root).task_limit(), Limit::Known(500));
        let (dir, root) = tree("8:pids:/job\n0::/\n", mounts);
        put(&dir, "pids/job/pids.max", "70\n");
        assert_eq!(Groups::own(&root).task_limit(), Limit::Known(70));
    }

    // Requirement: CGROUP-53
    #[test]
    fn launcher_moved_aside_is_in_the_parent_group() {
        let (_dir, root) =
            tree("0::/job/gpu-track.7.20.0000000a.aside\n", "30 20 0:26 / TOP/fs rw - cgroup2 cgroup2 rw\n");
        assert_eq!(Groups::own(&root).name(), Some("/job"));
    }

    #[test]
    fn limits_are_unknown_without_cgroups() {
        let root = ProcRoot::new("/nonexistent");
        assert_eq!(Groups::own(&root).memory_limit(), Limit::Unknown);
    }

    #[test]
    fn launcher_group_name_maps_to_the_parent_group() {
        let names = [
            "/job/gpu-track.7.20.01.aside",
            "/gpu-track.7.20.01.aside",
            "/job/gpu-track.7.20.01",
            "/job",
            "/",
        ];
        assert_eq!(names.map(without_aside), ["/job", "/", "/job/gpu-track.7.20.01", "/job", "/"]);
    }
}
