//! What the command may use: the denominators of what it used, each with its source.

use serde::{Deserialize, Serialize};

/// What the command may use.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UsableCores {
    /// Cores at one time; a quota can be a fraction.
    pub count: f64,
    /// What sets it.
    pub source: CoresSource,
}

/// What sets the number of usable cores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CoresSource {
    /// `--nec`, before all others.
    NExpectedCores,
    /// Affinity mask, with the cgroup's cpuset.
    Affinity,
    /// The cgroup's CPU quota.
    CgroupQuota,
    /// SLURM_CPUS_ON_NODE.
    Slurm,
    /// Slots of the LSF or Torque job on each of its hosts.
    BatchSlots,
    /// Online processors.
    #[default]
    Machine,
}

/// Memory that the command may use, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UsableMemory {
    /// Memory for all processes together, bytes.
    pub bytes: Option<u64>,
    /// What sets it.
    pub source: Option<MemorySource>,
    /// Of each process (RLIMIT_AS), bytes.
    pub process_address_space_bytes: Option<u64>,
}

/// What sets the usable memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MemorySource {
    /// The cgroup's limit, or one above it.
    Cgroup,
    /// SLURM_MEM_PER_NODE, _PER_CPU or _PER_GPU.
    Slurm,
    /// All that it has.
    Machine,
}

/// GPUs that the command may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UsableGpus {
    /// How many of the tracked GPUs.
    pub count: Option<u32>,
    /// What sets it.
    pub source: Option<GpusSource>,
}

/// What sets the number of usable GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum GpusSource {
    /// CUDA_VISIBLE_DEVICES and the like.
    Environment,
    /// All that are tracked.
    Tracked,
}
