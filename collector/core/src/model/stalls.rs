//! How long tasks stood still for lack of a resource, as the kernel counts it. The counts are pressure stall information (PSI,
//! Documentation/accounting/psi.rst) and CPU time that a quota withheld.

use serde::{Deserialize, Serialize};

use super::report::CgroupMemory;

/// Time in which tasks stood still for lack of one resource, microseconds since some start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StallTime {
    /// At least one task stood still.
    pub some_us: u64,
    /// All tasks stood still that were not idle. `None`: the kernel does not count it, as for the CPU before Linux 5.13.
    pub full_us: Option<u64>,
}

/// The stalls of the tasks of a machine or cgroup, by resource. `None`: the kernel does not count it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stalls {
    /// For lack of a core.
    pub cpu: Option<StallTime>,
    /// For lack of memory: reclaim, swap-ins, and pages of files that were dropped and are read again.
    pub memory: Option<StallTime>,
    /// For I/O.
    pub io: Option<StallTime>,
}

impl Stalls {
    /// Whether the kernel counts none of them.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// What the CPU quota of a cgroup did since the group was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttling {
    /// Periods of the quota in which a task of the group wanted to run.
    pub periods: u64,
    /// Those in which the quota was used up.
    pub throttled_periods: u64,
    /// For how long tasks were kept from running then, summed over the cores, microseconds.
    pub throttled_us: u64,
}

/// A reading of all of these.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StallReading {
    /// Of the whole machine.
    pub machine: Stalls,
    /// Of the run's cgroup.
    pub cgroup: Stalls,
    /// Name of that group. `None`: there is no cgroup v2.
    pub cgroup_name: Option<String>,
    /// The groups with a CPU quota that the run is in, innermost first, by name.
    pub quotas: Vec<(String, Throttling)>,
    /// The memory of the run's own cgroup, or of the batch job's.
    pub memory: Option<CgroupMemory>,
}
