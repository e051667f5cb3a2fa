//! Limits of the command: cgroup limits, ulimits, CPU affinity and the allocation of a batch system.
//!
//! The collector reads its own limits: it inherits them from the launcher, as the command does. If the run attached to a process,
//! that process's limits are read.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use super::cgroup::Groups;
use crate::model::batch::{self, Variable, other_systems, slurm};
use crate::model::report::{Allowed, Limit, SoftHard};
use crate::sys::given_file;
use crate::sys::proc_fs::ProcRoot;
use crate::sys::rlimit;
use crate::sys::safe_path::User;

/// Reads the limits of the process with this pid. `None` stands for the collector, which must not have changed its own limits yet.
/// `variable` looks up a variable of the process's environment.
pub(crate) fn read(root: &ProcRoot, pid: Option<u32>, variable: Variable) -> Allowed {
    let groups = Groups::read(root, pid);
    let batch_system = batch::system(variable);
    Allowed {
        memory_bytes: groups.memory_limit(),
        cpu_millicores: groups.cpu_limit(),
        tasks: groups.task_limit(),
        cgroup: groups.name().map(str::to_owned),
        // Known at the end of the run only.
        oom_kills: None,
        cpus: affinity(pid),
        batch_system: batch_system.map(str::to_owned),
        ulimits: ulimits(pid.unwrap_or_else(std::process::id)),
        slurm: slurm::read(variable),
        job: other_systems::read(batch_system, variable, &host_file),
    }
}

/// Reads a file of hosts that a variable names. The environment of root can be another user's, so root reads only what no other user
/// can replace; the daemons of batch systems write such files.
///
/// # Errors
/// If it can't be read: a text that follows the file's name.
pub fn host_file(path: &OsStr) -> Result<String, String> {
    let (user, path) = (User::this(), Path::new(path));
    let resolved = if user.is_root() { user.resolve(path) } else { Ok(path.to_owned()) };
    let resolved = resolved.map_err(|problem| format!("is not safe: {problem}"))?;
    given_file::read_text(&resolved, given_file::MOST_OF_HOSTS).map_err(|problem| problem.to_string())
}

/// Reads the soft and hard ulimits of a process, by the names that reports give them.
fn ulimits(pid: u32) -> BTreeMap<String, SoftHard> {
    let resources = [
        ("address_space_bytes", libc::RLIMIT_AS),
        ("core_bytes", libc::RLIMIT_CORE),
        ("cpu_s", libc::RLIMIT_CPU),
        ("data_bytes", libc::RLIMIT_DATA),
        ("file_size_bytes", libc::RLIMIT_FSIZE),
        ("locked_memory_bytes", libc::RLIMIT_MEMLOCK),
        ("open_files", libc::RLIMIT_NOFILE),
        ("processes", libc::RLIMIT_NPROC),
        ("stack_bytes", libc::RLIMIT_STACK),
    ];
    let limit = |value: Option<u64>| value.map_or(Limit::Unlimited, Limit::Known);
    let mut ulimits = BTreeMap::new();
    for (name, resource) in resources {
        let values = match rlimit::read(pid, resource) {
            Some((soft, hard)) => SoftHard { soft: limit(soft), hard: limit(hard) },
            None => SoftHard { soft: Limit::Unknown, hard: Limit::Unknown },
        };
        ulimits.insert(name.to_owned(), values);
    }
    ulimits
}

/// Reads which CPUs the process with this pid may run on. A `pid` of `None` stands for this process. The result is `None` if the
/// kernel does not tell.
fn affinity(pid: Option<u32>) -> Option<Vec<u32>> {
    let pid = match pid {
        Some(pid) => Some(rustix::process::Pid::from_raw(i32::try_from(pid).ok()?)?),
        None => None,
    };
    let set = rustix::thread::sched_getaffinity(pid).ok()?;
    let all = 0..rustix::thread::CpuSet::MAX_CPU;
    Some(all.filter(|cpu| set.is_set(*cpu)).filter_map(|cpu| u32::try_from(cpu).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: CGROUP-1
    #[test]
    fn own_limits_match_proc_self_limits() {
        let limits = read(&ProcRoot::default(), None, &|name| std::env::var_os(name));
        let text = std::fs::read_to_string("/proc/self/limits").unwrap();
        let files = text.lines().find(|line| line.starts_with("Max open files")).unwrap();
        let soft: u64 = files.split_whitespace().nth(3).unwrap().parse().unwrap();
        assert_eq!(limits.ulimits["open_files"].soft, Limit::Known(soft));
        assert!(!limits.cpus.as_ref().unwrap().is_empty());
        let sent = serde_json::to_string(&limits).unwrap();
        assert_eq!(serde_json::from_str::<Allowed>(&sent).unwrap(), limits);
    }
}
