//! What the command may use: the denominators of what it used, each with its source.

use serde::{Deserialize, Serialize};

/// What the command may use.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Usable {
    /// Cores.
    pub cores: UsableCores,
    /// Memory.
    #[serde(default)]
    pub memory: UsableMemory,
    /// GPUs.
    #[serde(default)]
    pub gpus: UsableGpus,
}

/// Cores that the command may use at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct UsableCores {
    /// How many; a CPU quota can be a fraction.
    pub count: f64,
    /// What sets it.
    pub source: CoresSource,
}

/// What sets the number of usable cores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CoresSource {
    /// `--n-expected-cores`, which takes precedence over what the machine says.
    NExpectedCores,
    /// The affinity mask, which contains the cpuset of the cgroup.
    Affinity,
    /// The CPU quota of the cgroup.
    CgroupQuota,
    /// Slurm's allocation on this node.
    Slurm,
    /// Nothing: all online processors.
    #[default]
    Machine,
}

/// Memory that the command may use, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsableMemory {
    /// For all processes together; `None` if not even the machine's is known.
    pub bytes: Option<u64>,
    /// What sets `bytes`; `None` where that is.
    pub source: Option<MemorySource>,
    /// Address space of each single process (RLIMIT_AS, `ulimit -v`); `None` without such a limit.
    pub process_address_space_bytes: Option<u64>,
}

/// What sets the usable memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemorySource {
    /// The memory limit of the cgroup or of one above it.
    Cgroup,
    /// Slurm's allocation on this node.
    Slurm,
    /// Nothing: the memory of the machine.
    Machine,
}

/// GPUs that the command may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsableGpus {
    /// How many of the tracked ones; `None` where a driver failed.
    pub count: Option<u32>,
    /// What sets `count`; `None` where that is.
    pub source: Option<GpusSource>,
}

/// What sets the number of usable GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpusSource {
    /// The command's environment (CUDA_VISIBLE_DEVICES and the like, SLURM_STEP_GPUS, SLURM_JOB_GPUS).
    Environment,
    /// Nothing: all that are tracked.
    Tracked,
}
