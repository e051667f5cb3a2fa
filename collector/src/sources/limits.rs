//! Limits of the command: cgroup limits, ulimits, CPU affinity and Slurm's allocation.
//!
//! The collector reads its own, since it inherits them from the launcher as the command does.

use std::collections::BTreeMap;
use std::ffi::OsString;

use rustix::process::{Resource, getrlimit};

use super::cgroup::Places;
use crate::model::report::{Limit, Limits, SoftHard};
use crate::sys::proc_fs::ProcRoot;

/// Variables by which Slurm describes an allocation.
const SLURM: [&str; 22] = [
    "SLURM_JOB_ID",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_STEP_ID",
    "SLURM_PROCID",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_START_TIME",
    "SLURM_JOB_END_TIME",
    "SLURM_JOB_NUM_NODES",
    "SLURM_JOB_NODELIST",
    "SLURM_STEP_NODELIST",
    "SLURMD_NODENAME",
    "SLURM_NTASKS",
    "SLURM_CPUS_PER_TASK",
    "SLURM_CPUS_ON_NODE",
    "SLURM_JOB_CPUS_PER_NODE",
    "SLURM_MEM_PER_NODE",
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_GPU",
    "SLURM_GPUS_ON_NODE",
    "SLURM_JOB_GPUS",
    "SLURM_STEP_GPUS",
];

/// Variables that a batch system sets in each of its jobs, and its name.
const BATCH_SYSTEMS: [(&str, &str); 6] = [
    ("SLURM_JOB_ID", "slurm"),
    ("PBS_JOBID", "pbs"),
    ("LSB_JOBID", "lsf"),
    ("SGE_TASK_ID", "sge"),
    ("_CONDOR_SLOT", "htcondor"),
    ("FLUX_JOB_ID", "flux"),
];

/// Gives the batch system that made a job's environment. `variable` looks up a variable; an empty one counts as unset. `None`:
/// it is the environment of no job.
pub fn batch_system(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<&'static str> {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    BATCH_SYSTEMS.into_iter().find(|(name, _)| is_set(name)).map(|(_, system)| system)
}

/// Reads the limits of this process, which must not have changed them yet.
pub(crate) fn own(root: &ProcRoot) -> Limits {
    let places = Places::own(root);
    let limit = |resource| {
        let limits = getrlimit(resource);
        let limit = |value: Option<u64>| value.map_or(Limit::Unlimited, Limit::Known);
        SoftHard { soft: limit(limits.current), hard: limit(limits.maximum) }
    };
    let ulimits = [
        ("address_space_bytes", Resource::As),
        ("core_bytes", Resource::Core),
        ("cpu_s", Resource::Cpu),
        ("data_bytes", Resource::Data),
        ("file_size_bytes", Resource::Fsize),
        ("locked_memory_bytes", Resource::Memlock),
        ("open_files", Resource::Nofile),
        ("processes", Resource::Nproc),
        ("stack_bytes", Resource::Stack),
    ];
    let slurm = SLURM.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
    Limits {
        memory_bytes: places.memory_limit(),
        cpu_millicores: places.cpu_limit(),
        tasks: places.task_limit(),
        cgroup: places.name().map(str::to_owned),
        // Known at the end of the run only.
        oom_kills: None,
        cpus: affinity(),
        batch_system: batch_system(&|name| std::env::var_os(name)).map(str::to_owned),
        ulimits: ulimits.into_iter().map(|(name, resource)| (name.to_owned(), limit(resource))).collect(),
        slurm: slurm.collect::<BTreeMap<_, _>>(),
    }
}

/// Reads which CPUs this process may run on. `None`: the kernel does not say it.
fn affinity() -> Option<Vec<u32>> {
    let set = rustix::thread::sched_getaffinity(None).ok()?;
    let all = 0..rustix::thread::CpuSet::MAX_CPU;
    Some(all.filter(|cpu| set.is_set(*cpu)).filter_map(|cpu| u32::try_from(cpu).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: CGROUP-1
    #[test]
    fn own_limits_match_proc_self_limits() {
        let limits = own(&ProcRoot::default());
        let text = std::fs::read_to_string("/proc/self/limits").unwrap();
        let files = text.lines().find(|line| line.starts_with("Max open files")).unwrap();
        let soft: u64 = files.split_whitespace().nth(3).unwrap().parse().unwrap();
        assert_eq!(limits.ulimits["open_files"].soft, Limit::Known(soft));
        assert!(!limits.cpus.as_ref().unwrap().is_empty());
        let sent = serde_json::to_string(&limits).unwrap();
        assert_eq!(serde_json::from_str::<Limits>(&sent).unwrap(), limits);
    }
}
