//! What to ask a batch system for next time, each with its basis.

use serde::{Deserialize, Serialize};

/// The least memory that a hint asks for, bytes. Less would not make a job start earlier, and would leave no room for libraries.
pub(crate) const LEAST_MEMORY_BYTES: u64 = 1 << 30;
/// The least time that a hint asks for, seconds, so that a slow start does not end the job.
pub(crate) const LEAST_TIME_S: u64 = 600;

/// What to ask for next time. A hint is `None` if its basis is not known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hints {
    /// Why the text does not show them by itself.
    pub withheld: Option<String>,
    /// Memory.
    pub memory: Option<MemoryHint>,
    /// Wall time.
    pub time: Option<TimeHint>,
    /// CPUs.
    pub cpus: Option<CpusHint>,
    /// GPUs; `None`: it had none, used others than its environment names, or it is not known which.
    pub gpus: Option<GpusHint>,
    /// Memory of one GPU.
    pub gpu_memory: Option<GpuMemoryHint>,
    /// Why `gpu_memory` is null.
    pub gpu_memory_reason: Option<String>,
}

impl Hints {
    /// Makes the hints of a run that tells nothing of what a job needs, for this reason.
    pub fn unknown(reason: String) -> Self {
        Self { withheld: Some(reason.clone()), gpu_memory_reason: Some(reason), ..Self::default() }
    }

    /// These hints where a part of the run is not in the report: that part can need more, so they are unknown for this reason. Hints of
    /// a run that a limit of memory or time ended stay: it needs more than that, whatever the part needs.
    pub fn without_a_part(self, reason: String) -> Self {
        let hit_limit = self.memory.is_some_and(|hint| hint.basis == MemoryBasis::OutOfMemoryLimit)
            || self.time.is_some_and(|hint| hint.basis == TimeBasis::TimeLimit);
        if hit_limit { self } else { Self::unknown(reason) }
    }

    /// Whether any hint asks for more than the least that its rule gives, or is about GPUs that the run used. A hint for cores does
    /// not count if it is a lower bound.
    pub fn is_any_above_least(&self) -> bool {
        self.memory.is_some_and(|hint| hint.bytes > LEAST_MEMORY_BYTES)
            || self.time.is_some_and(|hint| hint.time_s > LEAST_TIME_S)
            || self.cpus.is_some_and(|hint| hint.count > 1 && !hint.is_lower_bound)
            || self.gpus.as_ref().is_some_and(|hint| hint.count > 0 || !hint.held_idle.is_empty())
    }

    /// Whether a batch system or a limit gave the run less than all of the machine.
    pub fn is_any_given(&self) -> bool {
        self.memory.is_some_and(|hint| hint.given_bytes.is_some())
            || self.time.is_some_and(|hint| hint.given_s.is_some())
            || self.cpus.is_some_and(|hint| hint.given.is_some())
    }
}

/// How much memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoryHint {
    /// What to ask for, bytes.
    pub bytes: u64,
    /// It may need more than this: the run hit its limit, or its RAM is known within bounds only.
    pub is_lower_bound: bool,
    /// What it is computed from.
    pub basis: MemoryBasis,
    /// That figure, bytes.
    pub basis_bytes: u64,
    /// Memory limit of this run, bytes.
    pub given_bytes: Option<u64>,
    /// More than 70% was used: nothing to change.
    pub is_fitting: bool,
}

/// What a memory hint is computed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MemoryBasis {
    /// Largest combined RAM.
    CombinedRam,
    /// Largest charged memory of the cgroup.
    CgroupPeak,
    /// The limit at which the kernel killed a process.
    OutOfMemoryLimit,
}

/// How much wall time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TimeHint {
    /// What to ask for, seconds.
    pub time_s: u64,
    /// The run hit its limit: at least this.
    pub is_lower_bound: bool,
    /// What it is computed from.
    pub basis: TimeBasis,
    /// That figure, seconds.
    pub basis_s: f64,
    /// Time limit of the Slurm job, seconds.
    pub given_s: Option<f64>,
    /// More than 70% was used: nothing to change.
    pub is_fitting: bool,
}

/// What a time hint is computed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TimeBasis {
    /// The command's wall time.
    Wall,
    /// From the job's start to the command's end.
    SlurmJob,
    /// The limit at which the command was ended.
    TimeLimit,
}

/// How many CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CpusHint {
    /// What to ask for.
    pub count: u32,
    /// For 95% of the time no more were busy.
    pub p95_busy_cores: f64,
    /// Usable cores, if fewer than all.
    pub given: Option<f64>,
    /// More than 70% was used: nothing to change.
    pub is_fitting: bool,
    /// It may have waited for cores of others: at least this.
    pub is_lower_bound: bool,
    /// It kept one of several cores busy, without waiting for others.
    pub is_serial: bool,
}

/// How many GPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpusHint {
    /// What to ask for: the busy ones.
    pub count: u32,
    /// GPUs that this run could use.
    pub given: u32,
    /// All were busy: nothing to change.
    pub is_fitting: bool,
    /// Ids of GPUs on which it held memory, never busy.
    pub held_idle: Vec<String>,
}

/// A part of a GPU that is enough.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MigProfileHint {
    /// Its name, such as `1g.10gb`.
    pub profile: String,
    /// The GPU that has it.
    pub card: String,
    /// Memory that programs can use there, bytes.
    pub usable_bytes: u64,
    /// Its part of the GPU's SMs, of 100.
    pub sm_percent: f64,
}

/// How much memory a GPU needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuMemoryHint {
    /// What one should have, bytes.
    pub bytes: u64,
    /// Most that the run held on one, bytes.
    pub basis_bytes: u64,
    /// Id of that GPU.
    pub device: String,
    /// Memory of that GPU, bytes.
    pub capacity_bytes: Option<u64>,
    /// The smallest MIG profile of that GPU that has room for the memory and the work; `None`: it takes the whole, or it is not known.
    pub mig_profile: Option<MigProfileHint>,
    /// The smallest usual memory of a GPU that is enough, GB; `None`: that GPU's own, or more than any has.
    pub card_gb: Option<u32>,
    /// More than 70% was used: nothing to change.
    pub is_fitting: bool,
}
