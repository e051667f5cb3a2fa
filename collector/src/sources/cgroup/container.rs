//! The cgroup of a container: where it is, and what it has counted. Its files can be read by all.

use std::path::{Path, PathBuf};

use super::{Group, Hierarchy, count, number, read};
use crate::sys::proc_fs::ProcRoot;

/// The directories in which a group has its counts. In cgroup v1 these are two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CountedGroup {
    cpu: Option<PathBuf>,
    memory: Option<PathBuf>,
}

/// What a group has counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct GroupCounts {
    /// CPU time of all processes that were in it, microseconds.
    pub(crate) cpu_us: Option<u64>,
    /// The largest memory that it was charged for, bytes.
    pub(crate) peak_bytes: Option<u64>,
    /// `peak_bytes` is the memory of now, since the kernel keeps no largest one (v2 before Linux 5.19).
    pub(crate) is_of_now: bool,
    /// How many processes in it the kernel killed for want of memory. `None`: the kernel does not say, as old ones in v1.
    pub(crate) oom_kills: Option<u64>,
}

impl CountedGroup {
    /// The places where runtimes make the group of the container with this id: docker and podman, with the kernel's file system or
    /// systemd, of root or of the user `uid`.
    pub(crate) fn usual(root: &ProcRoot, id: &str, uid: u32) -> Vec<Self> {
        let of_user = format!("/user.slice/user-{uid}.slice/user@{uid}.service");
        let names = [
            format!("/docker/{id}"),
            format!("/system.slice/docker-{id}.scope"),
            format!("/libpod_parent/libpod-{id}"),
            format!("/machine.slice/libpod-{id}.scope"),
            format!("{of_user}/user.slice/docker-{id}.scope"),
            format!("{of_user}/app.slice/docker-{id}.scope"),
            format!("{of_user}/user.slice/libpod-{id}.scope"),
        ];
        let Some(mounts) = mounts(root) else { return Vec::new() };
        let hierarchies: Vec<Hierarchy> = mounts.lines().filter_map(Hierarchy::parse).collect();
        let groups = names.iter().map(|name| Self::find(&hierarchies, |_| Some(name.clone())));
        groups.filter(|group| group.cpu.is_some() || group.memory.is_some()).collect()
    }

    /// The group of the container with this id, by its process `pid`, which a daemon named. `None`: the process is gone, or its group's
    /// name does not have the id. So a wrong pid leads to no other group.
    pub(crate) fn of_process(root: &ProcRoot, pid: u32, id: &str) -> Option<Self> {
        let names = String::from_utf8_lossy(&root.read(pid, "cgroup")?).into_owned();
        let mounts = mounts(root)?;
        let hierarchies: Vec<Hierarchy> = mounts.lines().filter_map(Hierarchy::parse).collect();
        let group = Self::find(&hierarchies, |controller| {
            let name = names.lines().find_map(|line| {
                // A line is "NUMBER:CONTROLLERS:NAME" (cgroups(7)). That of v2 has no controllers.
                let (controllers, name) = line.split_once(':')?.1.split_once(':')?;
                let is_it = match controller {
                    Some(controller) => controllers.split(',').any(|one| one == controller),
                    None => controllers.is_empty(),
                };
                is_it.then_some(name)
            })?;
            up_to_id(name, id)
        });
        (group.cpu.is_some() || group.memory.is_some()).then_some(group)
    }

    /// Finds the directories. `name` gives the group's name in the v1 hierarchy of a controller, or in that of v2 (`None`).
    fn find(hierarchies: &[Hierarchy], name: impl Fn(Option<&str>) -> Option<String>) -> Self {
        let dir = |controller: &str| {
            let has_it = |options: &str| options.split(',').any(|one| one == controller);
            let v1 = hierarchies.iter().find(|one| one.v1_options.is_some_and(has_it));
            let (hierarchy, name) = match v1 {
                Some(v1) => (v1, name(Some(controller))?),
                None => (hierarchies.iter().find(|one| one.v1_options.is_none())?, name(None)?),
            };
            Some(Group::below(hierarchy, &name)?.dir)
        };
        Self { cpu: dir("cpuacct"), memory: dir("memory") }
    }

    /// The processes in the group itself, at most `most`. Empty: there are none, or the group is gone.
    pub(crate) fn processes(&self, most: usize) -> Vec<u32> {
        let list = self.dirs().find_map(|dir| read(&dir.join(PROCESSES))).unwrap_or_default();
        // 0: a process of another pid namespace, which has no pid here.
        list.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 0).take(most).collect()
    }

    /// Reads what the group has counted. `None`: it is gone.
    pub(crate) fn counts(&self) -> Option<GroupCounts> {
        let cpu_us = self.cpu.as_deref().and_then(cpu_us);
        let peak_bytes = self.memory.as_deref().and_then(super::memory::peak);
        let now_bytes = || number(&self.memory.as_deref()?.join("memory.current"));
        let is_of_now = peak_bytes.is_none();
        let peak_bytes = peak_bytes.or_else(now_bytes);
        let is_of_now = is_of_now && peak_bytes.is_some();
        let files = ["memory.oom_control", super::MEMORY_EVENTS];
        let oom_kills = self.memory.iter().flat_map(|dir| files.map(|file| dir.join(file)));
        let oom_kills = oom_kills.filter_map(|file| super::oom_kills(&file)).next();
        let counts = GroupCounts { cpu_us, peak_bytes, is_of_now, oom_kills };
        (cpu_us.is_some() || peak_bytes.is_some()).then_some(counts)
    }

    fn dirs(&self) -> impl Iterator<Item = &Path> {
        self.cpu.iter().chain(&self.memory).map(PathBuf::as_path)
    }
}

/// The file with the pids of a group's processes.
const PROCESSES: &str = "cgroup.procs";

/// The text of this process's mounts.
fn mounts(root: &ProcRoot) -> Option<String> {
    let mounts = std::fs::read(root.top_path("self/mountinfo")).ok()?;
    Some(String::from_utf8_lossy(&mounts).into_owned())
}

/// Reads the CPU time that a group has counted, microseconds.
fn cpu_us(dir: &Path) -> Option<u64> {
    let v2 = || count(&read(&dir.join("cpu.stat"))?, "usage_usec ");
    number(&dir.join("cpuacct.usage")).map(|ns| ns / 1000).or_else(v2)
}

/// The name of the group whose last part has this id. A container can have groups of its own below it. `None`: no part has it.
fn up_to_id(name: &str, id: &str) -> Option<String> {
    let with_id = name.rfind(id)?;
    let end = name[with_id..].find('/').map_or(name.len(), |end| with_id + end);
    name.get(..end).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{put, tree};
    use super::*;

    const V1: &str = "30 20 0:26 / TOP/cpuacct rw - cgroup cgroup rw,cpuacct\n31 20 0:27 / TOP/memory rw - cgroup cgroup rw,memory\n";
    const V2: &str = "30 20 0:26 / TOP/fs rw - cgroup2 cgroup2 rw\n";

    // Requirement: SEE-133
    #[test]
    fn counts_of_both_versions_are_read() {
        let id = "ab".repeat(32);
        let (dir, root) = tree("", V1);
        put(&dir, &format!("cpuacct/docker/{id}/cpuacct.usage"), "5000999\n");
        put(&dir, &format!("cpuacct/docker/{id}/cgroup.procs"), "0\n7\n8\n");
        put(&dir, &format!("memory/docker/{id}/memory.max_usage_in_bytes"), "4096\n");
        put(&dir, &format!("memory/docker/{id}/memory.oom_control"), "under_oom 0\noom_kill 2\n");
        let usual = CountedGroup::usual(&root, &id, 0);
        let group = usual.iter().find(|group| !group.processes(1).is_empty()).unwrap();
        assert_eq!(group.processes(1), [7]);
        let counts =
            GroupCounts { cpu_us: Some(5000), peak_bytes: Some(4096), is_of_now: false, oom_kills: Some(2) };
        assert_eq!(group.counts(), Some(counts));
        let (dir, root) = tree("", V2);
        let scope = format!("fs/system.slice/docker-{id}.scope");
        put(&dir, &format!("{scope}/cpu.stat"), "usage_usec 77\nuser_usec 1\n");
        put(&dir, &format!("{scope}/cgroup.procs"), "9\n");
        put(&dir, &format!("{scope}/memory.current"), "12\n");
        let usual = CountedGroup::usual(&root, &id, 0);
        let group = usual.iter().find(|group| group.processes(1) == [9]).unwrap();
        let counts = GroupCounts { cpu_us: Some(77), peak_bytes: Some(12), is_of_now: true, oom_kills: None };
        assert_eq!(group.counts(), Some(counts));
        std::fs::remove_dir_all(dir.path().join(scope)).unwrap();
        assert_eq!((group.counts(), group.processes(9)), (None, Vec::new()));
    }

    // Requirement: SEE-133
    #[test]
    fn process_leads_only_to_a_group_with_the_id() {
        let id = "ab".repeat(32);
        let (dir, root) = tree("", V2);
        put(&dir, "7/cgroup", &format!("0::/kube/{id}/init.scope\n"));
        put(&dir, &format!("fs/kube/{id}/cpu.stat"), "usage_usec 5\n");
        let group = CountedGroup::of_process(&root, 7, &id).unwrap();
        assert_eq!(group.counts().unwrap().cpu_us, Some(5));
        put(&dir, "7/cgroup", "0::/user.slice/session-1.scope\n");
        assert_eq!(CountedGroup::of_process(&root, 7, &id), None);
        put(&dir, "7/cgroup", &format!("0::/../../{id}\n"));
        assert_eq!(CountedGroup::of_process(&root, 7, &id), None);
        assert_eq!(CountedGroup::of_process(&root, 8, &id), None);
    }
}
