//! What ended a command that did not succeed, with the evidence: the process, what ended it, and the limit that it met.

use serde::{Deserialize, Serialize};

use super::processes::Exit;
use crate::model::rule::{Quantity, Unit};
use crate::model::run_limit::LargestProcess;
use crate::model::signal::Sender;

/// What ended the command. Each kind is concluded only from the evidence that it carries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Cause {
    /// gpu-track-run ended all processes at a `--limit`, or the kernel did; also if the command exited with 0.
    Limit(LimitExceeded),
    /// SIGKILL ended a process, and the cgroup's count of out-of-memory kills rose.
    OutOfMemory(OutOfMemory),
    /// A process failed close to its limit of address space (RLIMIT_AS, `ulimit -v`).
    AddressSpaceLimit(AddressSpaceLimit),
    /// SIGXCPU ended a process, or SIGKILL at its hard RLIMIT_CPU (`ulimit -t`).
    CpuTimeLimit(CpuTimeLimit),
    /// SIGXFSZ ended a process (`ulimit -f`).
    FileSizeLimit(FileSizeLimit),
    /// SIGTERM came at the Slurm job's end (SLURM_JOB_END_TIME) or later, or a `timeout` ran out. The command ended
    /// within 5 s.
    TimeLimit(TimeLimit),
    /// The command failed by its own error or SIGABRT, at most 5 s after a reading of a GPU with less than 3% free. The
    /// run held memory of it.
    GpuMemoryExhausted(GpuMemoryExhausted),
    /// Another signal ended the command, or a process whose end it passed on (128 + N). Or it failed within 5 s of a
    /// signal to it, or of a SIGKILL or crash.
    Signal(FatalSignal),
    /// The command failed, and a file system that it writes to is full.
    DiskFull(DiskFull),
}

/// Evidence of a limit of the run: what was allowed, and how much there was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitExceeded {
    /// The user's words, such as `ram=8G`.
    pub limit: String,
    /// What it is about.
    pub quantity: Quantity,
    /// Unit of the next two.
    pub unit: Unit,
    /// How much is allowed.
    pub allowed: f64,
    /// How much there was. If the kernel held the limit: most charged to the cgroup.
    pub amount: f64,
    /// When it was exceeded, seconds after the command's start; `None`: the kernel held it.
    pub at_s: Option<f64>,
    /// What held it.
    pub enforced_by: Enforcer,
    /// How much more RAM or GPU RAM the run held, bytes.
    pub overshoot_bytes: Option<u64>,
    /// The one with most RAM, or with most GPU RAM at a limit of that.
    pub process: Option<LargestProcess>,
    /// SIGKILL was needed: exit status 137, not 124.
    pub was_killed: Option<bool>,
    /// Processes that could not be ended; `None`: the kernel held the limit, or what ends them was killed.
    pub left: Option<u32>,
}

/// What holds a limit of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Enforcer {
    /// The launcher's timer.
    Timer,
    /// Samples: between two, the run can exceed it.
    Samples,
    /// memory.max of the command's cgroup.
    Kernel,
}

/// A process that did not succeed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeadProcess {
    /// Its pid and name.
    pub pid: u32,
    /// Its pid and name.
    pub command: String,
    /// Its arguments; `None`: it ended before they could be read.
    pub args: Option<Vec<String>>,
    /// It is the command's first process.
    pub is_main: bool,
    /// How it ended.
    #[serde(default)]
    pub exit: Exit,
    /// When it ended, seconds after the command's start.
    pub at_s: f64,
    /// Its peak RSS, bytes.
    pub peak_rss_bytes: Option<u64>,
    /// Its own CPU time, seconds.
    pub cpu_s: Option<f64>,
}

/// Evidence of an out-of-memory kill: a SIGKILL, and the kernel's count of such kills in the cgroup.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutOfMemory {
    /// The killed process, of several the largest.
    pub process: Option<DeadProcess>,
    /// It was this process: SIGKILL ended no more than the kernel killed, in a cgroup of the run alone.
    pub is_certain: bool,
    /// Out-of-memory kills in the cgroup during the run.
    pub oom_kills: u64,
    /// The cgroup of the limit, else the command's.
    pub cgroup: Option<String>,
    /// Its memory limit, bytes; `None`: the machine was out of memory.
    pub limit_bytes: Option<u64>,
    /// Largest charge to it, with page cache, bytes.
    pub peak_bytes: Option<u64>,
}

/// Evidence of a limit of address space: how close to it the process came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AddressSpaceLimit {
    /// The process.
    pub process: DeadProcess,
    /// Its limit, bytes.
    pub limit_bytes: u64,
    /// Its largest address space at a sample (VmPeak), bytes.
    pub peak_bytes: u64,
}

/// Evidence of a limit of CPU time: SIGXCPU, or a SIGKILL at the hard limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CpuTimeLimit {
    /// The process.
    pub process: DeadProcess,
    /// The limit, seconds; `None`: no sample read it.
    pub limit_s: Option<u64>,
}

/// Evidence of a limit of the size of files: SIGXFSZ.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileSizeLimit {
    /// The process.
    pub process: DeadProcess,
    /// The limit, bytes; `None`: no sample read it.
    pub limit_bytes: Option<u64>,
}

/// Evidence of a limit of wall time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TimeLimit {
    /// The process that the signal ended.
    pub process: Option<DeadProcess>,
    /// The signal.
    pub signal: i32,
    /// The signal.
    pub signal_name: String,
    /// What set the limit.
    pub set_by: TimeLimitSource,
    /// The limit, seconds.
    pub limit_s: Option<f64>,
}

/// What sets a limit of wall time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TimeLimitSource {
    /// The end time of the Slurm job.
    Slurm,
    /// coreutils' `timeout`.
    Timeout,
}

/// Evidence of exhausted GPU memory: the last reading without free memory, shortly before the end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuMemoryExhausted {
    /// The GPU, as `gpus[].id`.
    pub device: String,
    /// In use by all processes of the machine, bytes.
    pub used_bytes: u64,
    /// Its memory, bytes.
    pub total_bytes: u64,
    /// When it was read, seconds after the command's start.
    pub at_s: f64,
    /// The run's processes that held most of it.
    pub holders: Vec<GpuHolder>,
}

/// A process that held memory of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuHolder {
    /// Its pid and name.
    pub pid: u32,
    /// Its pid and name.
    pub command: String,
    /// What it held there, bytes.
    pub bytes: u64,
}

/// Evidence of any other signal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FatalSignal {
    /// The process that it ended.
    pub process: DeadProcess,
    /// The signal.
    pub signal: i32,
    /// The signal.
    pub signal_name: String,
    /// The process that sent it to gpu-track-run, which passed it on.
    pub sender: Option<Sender>,
}

/// A file system without space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiskFull {
    /// A directory on that file system.
    pub path: String,
    /// What it is to the command.
    pub role: DiskRole,
    /// Space left for this user, bytes.
    pub available_bytes: u64,
}

/// What a directory is to the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DiskRole {
    /// Where the command started.
    Working,
    /// TMPDIR, else /tmp.
    Temporary,
    /// Where the report goes.
    Report,
}
