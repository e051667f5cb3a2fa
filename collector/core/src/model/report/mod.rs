//! The report of a run, with a file for each of its sections. Figures are in base units: bytes, seconds, percent of one core or GPU.
//! Nothing here is rounded; the writers convert.
//!
//! `None` is "unknown": null in JSON and `n/a` in text, never 0. A warning or the coverage section says why.

mod alerts;
mod allowed;
mod attached;
mod cause;
mod contention;
mod coverage;
mod cpu;
mod crashes;
mod gpu;
mod hints;
mod io;
mod nodes;
mod processes;
mod ram;
mod run_limits;
mod series;
mod usable;
mod warning;

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::alert::Events;
use super::groups::Groups;
pub use alerts::AlertUse;
pub use allowed::{Allowed, Cgroup, Limit, SoftHard};
pub use attached::AttachedTo;
pub use cause::{
    AddressSpaceLimit, Cause, CpuTimeLimit, DeadProcess, DiskFull, DiskRole, Enforcer, FatalSignal,
    FileSizeLimit, GpuHolder, GpuMemoryExhausted, LimitExceeded, OutOfMemory, TimeLimit, TimeLimitSource,
};
pub use contention::Contention;
pub use coverage::{
    Coverage, ElsewhereKind, Layers, LeftReport, Nodes, OtherUser, Peaks, StartedElsewhere, UnseenRanks,
};
pub use cpu::{Cpu, CpuTime, Percent};
pub use crashes::{Crash, CrashPlace};
pub use gpu::{
    CommandGpu, Gpu, GpuClocks, GpuDevice, GpuErrors, GpuGap, GpuMemory, GpuMissing, GpuPcie, GpuPower,
    GpuProcess, GpuPstate, GpuReading, GpuThrottle, GpuUtilization, GpuXid, MaxGpuRam, ProcessGpu,
};
pub use hints::{CpusHint, GpuMemoryHint, GpusHint, Hints, MemoryBasis, MemoryHint, TimeBasis, TimeHint};
pub(crate) use hints::{LEAST_MEMORY_BYTES, LEAST_TIME_S};
pub use io::{ContextSwitches, Faults, Io};
pub use nodes::{
    AtMost, FailedRank, JobRank, Merged, Node, NodeCoverage, NodeGpu, NodePart, NodeRam, NodeSeries,
    NodeState, OwnRank, RankPlace, RankSeries, RankUsage, Ranks, ReportFiles, Spread, UnreadFile,
};
pub use processes::{CommandUsage, Exit, HeavyProcess, ProcessUsage, Processes, Running};
pub use ram::{CommandHolders, Holder, MaxProportionalRam, MaxRam, OtherHolders, Peak, SetRam};
pub use run_limits::RunLimitUse;
pub use series::{
    CommandSeries, Directory, FileSystemSeries, GpuSeries, IoTracks, OtherCommandSeries, Series, SetTracks,
    Track,
};
pub use usable::{CoresSource, GpusSource, MemorySource, Usable, UsableCores, UsableGpus, UsableMemory};
pub use warning::{Topic, Warning};

/// The report of one run. Its serialised form has all of it, exactly, in the order of the fields; docs/REPORT.md lists the
/// keys. A section of which every figure can be unknown may be absent there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// How far the run is.
    pub stage: Stage,
    /// The command and its arguments. Bytes that are not UTF-8 are replaced.
    pub command: Vec<String>,
    /// The process that the run attached to; `None`: the launcher started the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attached: Option<AttachedTo>,
    /// Wall-clock time of the command's start, or of the attach, to the millisecond.
    #[serde(with = "super::timestamp")]
    pub started_at: SystemTime,
    /// From the command's start to its end (with `--wait-all`: to the end of the last process), seconds.
    pub wall_s: f64,
    /// The machine.
    pub host: Host,
    /// How the command ended.
    #[serde(rename = "exit", default)]
    pub ending: Ending,
    /// The processes that crashed, most first; the test programs of build systems come last. `None`: the run was not tracked.
    pub crashes: Option<Vec<Crash>>,
    /// What the command may use, as denominators of what it used.
    pub usable: Usable,
    /// What to ask for next time.
    #[serde(default)]
    pub hints: Hints,
    /// CPU time of the tree.
    #[serde(default)]
    pub cpu_time: CpuTime,
    /// Cores that others had during the run, and whether it waited for them.
    #[serde(default)]
    pub contention: Contention,
    /// Block I/O of the tree.
    #[serde(default)]
    pub io: Io,
    /// Page faults of the tree.
    #[serde(default)]
    pub faults: Faults,
    /// Context switches of the tree.
    #[serde(default)]
    pub context_switches: ContextSwitches,
    /// Largest RAM over time.
    #[serde(rename = "max_ram_bytes", default)]
    pub max_ram: MaxRam,
    /// Time-weighted mean of the footprint over the run; `None` where `max_ram` has no total.
    #[serde(rename = "mean_ram", default)]
    pub mean_ram_bytes: Groups<Option<f64>>,
    /// Largest proportional sizes.
    #[serde(default)]
    pub max_ram_proportional: MaxProportionalRam,
    /// The most that the totals of `max_ram` can have been, bytes. If a process ended between two samples, the RSS of the others at
    /// that moment is unknown. `None`: the RAM of a process is unknown.
    #[serde(default)]
    pub max_ram_at_most: Groups<Option<u64>>,
    /// Largest GPU memory over time.
    #[serde(rename = "max_gpu_ram_bytes", default)]
    pub max_gpu_ram: MaxGpuRam,
    /// CPU utilisation and threads.
    pub cpu: Cpu,
    /// GPU utilisation.
    #[serde(default)]
    pub gpu: Gpu,
    /// The processes of the tree.
    pub processes: Processes,
    /// The tracked GPUs.
    pub gpus: Vec<GpuDevice>,
    /// The moment of the tree's largest RAM; `None` if no process was ever seen in memory.
    pub peak: Option<Peak>,
    /// The run over time.
    #[serde(deserialize_with = "series::deserialize")]
    pub series: Series,
    /// The kernel's figures of the cgroup that was made for the command; `None` without `--cgroup`.
    pub cgroup: Option<Cgroup>,
    /// What the command was allowed to use.
    #[serde(rename = "limits")]
    pub allowed: Allowed,
    /// Limits that the user set for the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub run_limits: Vec<RunLimitUse>,
    /// Alerts that the user set for the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alerts: Vec<AlertUse>,
    /// What happened in the run; `None`: no events were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<Events>,
    /// The rank that the command is in a job of several ranks; `None`: it is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<OwnRank>,
    /// The ranks of jobs that the command started here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub job_ranks: Vec<JobRank>,
    /// The report's part in a run over several nodes; `None`: the run was tracked on one node, or this is the report of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_part: Option<NodePart>,
    /// How the reports of several nodes became this one; `None`: it is the report of one run on one node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merged: Option<Merged>,
    /// The nodes of a merged report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<Node>,
    /// The ranks of a merged report, as far as each has a report; `None`: there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<Ranks>,
    /// How the figures are known, and what may be missing.
    pub coverage: Coverage,
    /// What a reader should know to judge the figures, one cause each.
    pub warnings: Vec<Warning>,
}

/// How the command ended, and what ended it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Ending {
    /// Exit code or signal. Both are null while the command runs, and if its launcher was killed.
    #[serde(flatten)]
    pub exit: Exit,
    /// Why both are null at the end of a run that attached to a process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What ended the command, if it did not succeed and there is evidence.
    pub cause: Option<Cause>,
    /// With `--wait-all`: the user ended the wait while processes of the tree lived. Null as `exit` is.
    pub wait_interrupted: Option<bool>,
}

impl Ending {
    /// Whether a limit of the run ended the command, whatever its exit status then was.
    pub fn is_by_limit(&self) -> bool {
        matches!(self.cause, Some(Cause::Limit(_)))
    }

    /// Whether the command exited with 0, and no limit of the run ended it.
    pub fn is_success(&self) -> bool {
        self.exit.code == Some(0) && !self.is_by_limit()
    }
}

/// How far a run is when its report is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The command runs: an interim report.
    SoFar,
    /// The run is over.
    #[serde(rename = "final")]
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
    /// Random id of this boot of the kernel: reports with the same one are of the same machine.
    pub boot_id: Option<String>,
}
