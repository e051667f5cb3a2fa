//! What to ask a batch system for next time, each with its basis.

use serde::{Deserialize, Serialize};

/// What to ask for next time. A hint is `None` if its basis is not known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Hints {
    /// Why the text does not show them unless it is asked to.
    pub withheld: Option<String>,
    /// Memory.
    pub memory: Option<MemoryHint>,
    /// Wall time.
    pub time: Option<TimeHint>,
    /// CPUs.
    pub cpus: Option<CpusHint>,
    /// GPUs; `None` also on a machine without any.
    pub gpus: Option<GpusHint>,
}

/// How much memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MemoryHint {
    /// What to ask for, bytes.
    pub bytes: u64,
    /// It needs at least that; the true need is unknown.
    pub is_lower_bound: bool,
    /// What it is computed from.
    pub basis: MemoryBasis,
    /// That figure, bytes.
    pub basis_bytes: u64,
    /// What this run was given by a batch system or cgroup, bytes; `None`: nothing limited it.
    pub given_bytes: Option<u64>,
    /// More than 70% of what was given was used, so there is nothing to change.
    pub is_fitting: bool,
}

/// What a memory hint is computed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryBasis {
    /// Largest combined RAM of the tree.
    CombinedRam,
    /// Largest charged memory of the cgroup, page cache included.
    CgroupPeak,
    /// The limit at which the kernel killed a process.
    OutOfMemoryLimit,
}

/// How much wall time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TimeHint {
    /// What to ask for, seconds.
    pub time_s: u64,
    /// It needs at least that; the true need is unknown.
    pub is_lower_bound: bool,
    /// What it is computed from.
    pub basis: TimeBasis,
    /// That figure, seconds.
    pub basis_s: f64,
    /// The job's time limit, seconds; `None`: none is known.
    pub given_s: Option<f64>,
    /// More than 70% of what was given was used, so there is nothing to change.
    pub is_fitting: bool,
}

/// What a time hint is computed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeBasis {
    /// The command's wall time.
    Wall,
    /// From the start of the Slurm job to the command's end.
    SlurmJob,
    /// The limit at which the command was ended.
    TimeLimit,
}

/// How many CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CpusHint {
    /// What to ask for.
    pub count: u32,
    /// For 95% of the time, no more cores than this were busy.
    pub p95_busy_cores: f64,
    /// Usable cores of this run, if something less than the machine was given to it.
    pub given: Option<f64>,
    /// More than 70% of what was given was used, so there is nothing to change.
    pub is_fitting: bool,
    /// It ran serially on several usable cores: their mean use is that of one.
    pub is_serial: bool,
}

/// How many GPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpusHint {
    /// What to ask for: those that were ever busy.
    pub count: u32,
    /// GPUs of this run.
    pub given: u32,
    /// All of them were busy, so there is nothing to change.
    pub is_fitting: bool,
    /// Ids of those on which the command held memory, and which were never busy.
    pub held_idle: Vec<String>,
}
