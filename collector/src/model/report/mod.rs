//! What a report says, in base units: bytes, seconds, percent of one core or GPU. Nothing here is rounded; the writers
//! convert.
//!
//! `None` is "unknown": null in JSON and `n/a` in text, never 0. A warning or the coverage section says why.

mod cause;
mod coverage;
mod cpu;
mod gpu;
mod hints;
mod io;
mod limits;
mod over_time;
mod processes;
mod ram;
mod usable;
mod warning;

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

pub use cause::{
    AddressSpaceLimit, Cause, CpuTimeLimit, DeadProcess, DiskFull, DiskRole, FatalSignal, OutOfMemory,
    Sender, TimeLimit, TimeLimitSource,
};
pub use coverage::{Coverage, Layers, Nodes, Peaks, UnseenRanks};
pub use cpu::{Cpu, CpuTime, Percent};
pub use gpu::{
    CommandGpu, Gpu, GpuClocks, GpuDevice, GpuErrors, GpuGap, GpuMemory, GpuMissing, GpuPcie, GpuPower,
    GpuProcess, GpuPstate, GpuReading, GpuThrottle, GpuUtilization, GpuXid, GroupPercent, MaxGpuRam,
    ProcessGpu,
};
pub use hints::{CpusHint, GpusHint, Hints, MemoryBasis, MemoryHint, TimeBasis, TimeHint};
pub use io::{ContextSwitches, Faults, Io};
pub use limits::{Cgroup, Limit, Limits, SoftHard};
pub use over_time::RamSpan;
pub use processes::{CommandUsage, Exit, ProcessUsage, Processes, Running};
pub use ram::{Holder, MaxProportionalRam, MaxRam, MeanRam, Peak, Rss};
pub use usable::{CoresSource, GpusSource, MemorySource, Usable, UsableCores, UsableGpus, UsableMemory};
pub use warning::{Topic, Warning};

/// Version of the JSON form. It goes up when a key changes its name or meaning, or is removed.
///
/// 2: `coverage.silent` became `coverage.uninstrumented`.
pub const SCHEMA_VERSION: u32 = 2;

/// The report of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Whether the run is over.
    pub stage: Stage,
    /// The command and its arguments (bytes that aren't UTF-8 replaced).
    pub command: Vec<String>,
    /// Wall-clock time of the command's start.
    pub started_at: SystemTime,
    /// From the command's start to its end (with `--wait-all`: to the end of the last process), seconds.
    pub wall_s: f64,
    /// The machine.
    pub host: Host,
    /// How the command ended. Both fields are null while it runs, and if its launcher was killed.
    pub exit: Exit,
    /// What ended the command, if it did not succeed and there is evidence.
    pub cause: Option<Cause>,
    /// What the command may use: the denominators.
    pub usable: Usable,
    /// What to ask for next time.
    pub hints: Hints,
    /// Largest RAM over time.
    pub max_ram: MaxRam,
    /// Mean RAM over time.
    pub mean_ram: MeanRam,
    /// Largest proportional sizes.
    pub max_ram_proportional: MaxProportionalRam,
    /// Largest GPU memory over time.
    pub max_gpu_ram: MaxGpuRam,
    /// CPU utilisation and threads.
    pub cpu: Cpu,
    /// GPU utilisation.
    pub gpu: Gpu,
    /// The tracked GPUs.
    pub gpus: Vec<GpuDevice>,
    /// CPU time of the tree.
    pub cpu_time: CpuTime,
    /// Block I/O of the tree.
    pub io: Io,
    /// Page faults of the tree.
    pub faults: Faults,
    /// Context switches of the tree.
    pub context_switches: ContextSwitches,
    /// The processes of the tree.
    pub processes: Processes,
    /// The moment of the tree's largest RAM; `None` if no process was ever seen in memory.
    pub peak: Option<Peak>,
    /// The tree's RAM over the run, in order of time.
    pub ram_over_time: Vec<RamSpan>,
    /// The kernel's figures of the cgroup that was made for the command; `None` without `--cgroup`.
    pub cgroup: Option<Cgroup>,
    /// Limits that applied to the command.
    pub limits: Limits,
    /// How the figures are known, and what may be missing.
    pub coverage: Coverage,
    /// What a reader should know to judge the figures, one cause each.
    pub warnings: Vec<Warning>,
}

/// How far a run is when its report is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// The command runs: an interim report.
    SoFar,
    /// The run is over.
    Over,
    /// Launcher and collector were killed: a report from the state that they left.
    Recovered,
}

/// The machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Node name (uname).
    pub hostname: Option<String>,
    /// Kernel release (uname).
    pub kernel: Option<String>,
    /// Online processors.
    pub cores: u32,
    /// MemTotal of /proc/meminfo, bytes.
    pub ram_bytes: Option<u64>,
}
