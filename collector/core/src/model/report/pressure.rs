//! What stood in the way of the run: pressure on CPU, memory and I/O, and a CPU quota. And memory beside RAM: swap, and what a cgroup
//! is charged for.

use serde::{Deserialize, Serialize};

/// The tree's memory in swap. VmSwap is read of a process when it had page faults since its last reading, so these are lower bounds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Swap {
    /// The largest sum of VmSwap at a sample, bytes. Swapped-out shared memory is not in it.
    pub peak_bytes: Option<u64>,
    /// The largest sum of combined footprint and swap at a sample, bytes.
    pub with_ram_peak_bytes: Option<u64>,
    /// Why they are null.
    pub reason: Option<String>,
}

/// Pressure (PSI) and CPU quota from `since_s` to the end of the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pressure {
    /// First reading, seconds after the start: at 50 ms or at the first sample after that. All counts from there.
    pub since_s: Option<f64>,
    /// Time between the two readings, seconds.
    pub measured_s: Option<f64>,
    /// All tasks of the machine, others' too.
    pub machine: ResourceStalls,
    /// All tasks of `cgroup_name`.
    pub cgroup: ResourceStalls,
    /// The cgroup (v2): the run's own with `--cgroup`, else that of the launcher, with all that is in it.
    pub cgroup_name: Option<String>,
    /// Why pressure is null.
    pub reason: Option<String>,
    /// The CPU quota that withheld most, of the launcher's cgroup or one above.
    pub quota: CpuQuota,
}

/// Stalls by resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResourceStalls {
    /// For lack of a core.
    pub cpu: Stall,
    /// For reclaim, swap-ins, and pages of files that had been dropped.
    pub memory: Stall,
    /// For I/O.
    pub io: Stall,
}

/// Time in which tasks stood still for lack of a resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stall {
    /// At least one task stood still, seconds.
    pub some_s: Option<f64>,
    /// All tasks stood still that were not idle, seconds. Always null for the CPU of the machine.
    pub full_s: Option<f64>,
}

/// What a CPU quota withheld, by cpu.stat.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CpuQuota {
    /// The cgroup that has it.
    pub cgroup: Option<String>,
    /// Periods in which a task of it wanted to run (nr_periods).
    pub periods: Option<u64>,
    /// Periods in which the quota was used up (nr_throttled).
    pub throttled_periods: Option<u64>,
    /// How long tasks were kept from running, summed over the cores, seconds (throttled_usec; v1: throttled_time).
    pub throttled_s: Option<f64>,
    /// Why they are null.
    pub reason: Option<String>,
}

impl CpuQuota {
    /// The part of the periods in which the quota was used up, from 0 to 1. `None`: it is unknown, or there was no period.
    pub fn throttled_part(&self) -> Option<f64> {
        let (throttled, all) = Option::zip(self.throttled_periods, self.periods.filter(|all| *all > 0))?;
        Some(throttled as f64 / all as f64)
    }
}

/// What a cgroup is charged for beside the memory of processes, at the run's end (memory.stat). It can be of files that processes
/// outside of the run read first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CgroupMemory {
    /// Its name.
    pub cgroup: String,
    /// Page cache, tmpfs and shared memory included, bytes (`file`; v1: `total_cache`).
    pub page_cache_bytes: Option<u64>,
    /// Tmpfs and shared memory, bytes (`shmem`; v1: `total_shmem`).
    pub shmem_bytes: Option<u64>,
    /// Page cache that processes map, bytes (`file_mapped`; v1: `total_mapped_file`).
    pub mapped_file_bytes: Option<u64>,
}
