//! What ended a command that did not succeed, with the evidence: the process, what ended it, and the limit that it met.

use serde::{Deserialize, Serialize};

use super::processes::Exit;
use crate::model::rule::{Quantity, Unit};
use crate::model::run_limit::LargestProcess;
use crate::model::signal::Sender;

/// What ended the command. Each kind is concluded only from the evidence that it carries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Cause {
    /// A limit of the run (`--limit`): its processes were ended.
    Limit(LimitExceeded),
    /// The kernel's out-of-memory killer.
    OutOfMemory(OutOfMemory),
    /// A failed process came close to its limit of address space (RLIMIT_AS, `ulimit -v`).
    AddressSpaceLimit(AddressSpaceLimit),
    /// A process used up its CPU time (RLIMIT_CPU, `ulimit -t`).
    CpuTimeLimit(CpuTimeLimit),
    /// A process wrote beyond the largest size of a file (RLIMIT_FSIZE, `ulimit -f`).
    FileSizeLimit(FileSizeLimit),
    /// A limit of wall time: the batch system's, or that of `timeout`.
    TimeLimit(TimeLimit),
    /// The memory of a GPU was exhausted when the command failed.
    GpuMemoryExhausted(GpuMemoryExhausted),
    /// A signal of another kind.
    Signal(FatalSignal),
    /// A file system that the command writes to is full.
    DiskFull(DiskFull),
}

/// Evidence of a limit of the run: what was allowed, and how much there was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LimitExceeded {
    /// The user's words, such as `ram=8G`.
    pub limit: String,
    /// What it is about.
    pub quantity: Quantity,
    /// The unit of the two figures.
    pub unit: Unit,
    /// How much is allowed.
    pub allowed: f64,
    /// How much there was when that was seen.
    pub amount: f64,
    /// When it was seen, seconds after the command's start; `None`: the kernel held the limit and does not say.
    pub at_s: Option<f64>,
    /// What held it.
    pub enforced_by: Enforcer,
    /// RAM and GPU RAM: how much more there was in the run than is allowed, bytes.
    pub overshoot_bytes: Option<u64>,
    /// The process that held most RAM, or most memory of GPUs if the limit is of that; `None`: not known.
    pub process: Option<LargestProcess>,
    /// SIGKILL was needed; `None`: not known.
    pub was_killed: Option<bool>,
    /// Processes that could not be ended; `None`: not known.
    pub left: Option<u32>,
}

/// What holds a limit of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Enforcer {
    /// The launcher's timer.
    Timer,
    /// Samples. What the run uses between two of them can exceed the limit.
    Samples,
    /// The kernel, by the cgroup of the command.
    Kernel,
}

/// A process that did not succeed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeadProcess {
    /// Its pid, as the launcher sees it.
    pub pid: u32,
    /// Its command name.
    pub command: String,
    /// Its arguments; `None` if it ended before they could be read.
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
pub struct OutOfMemory {
    /// The killed process; of several the largest. `None`: SIGKILL ended a process that is not known.
    pub process: Option<DeadProcess>,
    /// It was this one for certain: SIGKILL ended no more processes of the tree than the kernel killed, and the cgroup has only
    /// processes of the tree.
    pub is_certain: bool,
    /// Out-of-memory kills that the kernel counted in the cgroup during the run.
    pub oom_kills: u64,
    /// The cgroup that has the limit, or the command's own one.
    pub cgroup: Option<String>,
    /// Its memory limit, bytes; `None`: it has none, and the machine itself was out of memory.
    pub limit_bytes: Option<u64>,
    /// Its largest charged memory, page cache included, bytes.
    pub peak_bytes: Option<u64>,
}

/// Evidence of a limit of address space: how close to it the process came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AddressSpaceLimit {
    /// The process.
    pub process: DeadProcess,
    /// Its limit, bytes.
    pub limit_bytes: u64,
    /// Its largest address space (VmPeak) that a sample saw, bytes.
    pub peak_bytes: u64,
}

/// Evidence of a limit of CPU time: SIGXCPU, or a SIGKILL at the hard limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CpuTimeLimit {
    /// The process, with its CPU time.
    pub process: DeadProcess,
    /// The limit, seconds; `None` if no sample read it.
    pub limit_s: Option<u64>,
}

/// Evidence of a limit of the size of files: SIGXFSZ.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileSizeLimit {
    /// The process.
    pub process: DeadProcess,
    /// The limit, bytes; `None` if no sample read it.
    pub limit_bytes: Option<u64>,
}

/// Evidence of a limit of wall time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimeLimit {
    /// The process that the signal ended, if it is known.
    pub process: Option<DeadProcess>,
    /// The signal.
    pub signal: i32,
    /// Its name, such as `SIGTERM`.
    pub signal_name: String,
    /// What set the limit.
    pub set_by: TimeLimitSource,
    /// The limit, seconds.
    pub limit_s: Option<f64>,
}

/// What sets a limit of wall time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeLimitSource {
    /// Slurm: the signal came at the job's end time (SLURM_JOB_END_TIME).
    Slurm,
    /// coreutils' `timeout`.
    Timeout,
}

/// Evidence of exhausted GPU memory: the last reading without free memory, shortly before the end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuMemoryExhausted {
    /// The device, as `gpus[].id`.
    pub device: String,
    /// Memory in use by all processes of the machine, bytes.
    pub used_bytes: u64,
    /// The device's memory, bytes.
    pub total_bytes: u64,
    /// When it was read, seconds after the command's start.
    pub at_s: f64,
    /// The processes of the run that held most of it, most first.
    pub holders: Vec<GpuHolder>,
}

/// A process that held memory of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuHolder {
    /// Its pid, as the launcher sees it.
    pub pid: u32,
    /// Its command name.
    pub command: String,
    /// What it held on the device, bytes.
    pub bytes: u64,
}

/// Evidence of any other signal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FatalSignal {
    /// The process that it ended.
    pub process: DeadProcess,
    /// Its number.
    pub signal: i32,
    /// Its name, such as `SIGSEGV`.
    pub signal_name: String,
    /// The process that sent it to gpu-track-run, which passed it on; `None` if it did not come that way.
    pub sender: Option<Sender>,
}

/// A file system without space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskFull {
    /// A directory on it.
    pub path: String,
    /// What it is to the command.
    pub role: DiskRole,
    /// Space that is left for this user at the end of the run, bytes.
    pub available_bytes: u64,
}

/// What a directory is to the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskRole {
    /// The directory that the command was started in.
    Working,
    /// TMPDIR, else /tmp.
    Temporary,
    /// Where the report is written.
    Report,
}
