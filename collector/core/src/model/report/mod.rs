//! The sections of a report, in base units: bytes, seconds, percent of one core or GPU. Nothing here is rounded; the writers
//! convert.
//!
//! `None` is "unknown": null in JSON and `n/a` in text, never 0. A warning or the coverage section says why.

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
mod whole;

use serde::{Deserialize, Serialize};

pub use coverage::{Coverage, Layers, Nodes, Peaks, UnseenRanks};
pub use cpu::{Cpu, CpuTime, Percent};
pub use gpu::{
    CommandGpu, Gpu, GpuClocks, GpuDevice, GpuErrors, GpuGap, GpuMemory, GpuMissing, GpuPcie, GpuPower,
    GpuProcess, GpuPstate, GpuReading, GpuThrottle, GpuUtilization, GpuXid, MaxGpuRam, ProcessGpu,
};
pub use hints::{CpusHint, GpusHint, Hints, MemoryBasis, MemoryHint, TimeBasis, TimeHint};
pub use io::{ContextSwitches, Faults, Io};
pub use limits::{Cgroup, Limit, Limits, SoftHard};
pub use over_time::RamSpan;
pub use processes::{CommandUsage, Exit, ProcessUsage, Processes, Running};
pub use ram::{Holder, MaxProportionalRam, MaxRam, Peak, Rss};
pub use usable::{CoresSource, GpusSource, MemorySource, Usable, UsableCores, UsableGpus, UsableMemory};
pub use warning::{Topic, Warning};
pub use whole::{Ending, Report};

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
