//! The report of a run, with a file for each of its sections. Figures are in base units: bytes, seconds, percent of one core or GPU.
//! Nothing here is rounded; the writers convert.
//!
//! `None` is "unknown": null in JSON and `n/a` in text, never 0. A warning or the coverage section says why.

mod alerts;
mod allowed;
mod attached;
mod cause;
mod containers;
mod contention;
mod coverage;
mod cpu;
mod crashes;
mod gpu;
mod hints;
mod io;
mod nodes;
mod pressure;
mod processes;
mod ram;
mod run_limits;
#[cfg(feature = "schema")]
mod schema;
mod series;
mod tasks;
mod time_spent;
mod usable;
mod warning;

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::alert::Events;
use super::groups::Groups;
use crate::named;
pub use alerts::AlertUse;
pub use allowed::{Allowed, Cgroup, Limit, SoftHard};
pub use attached::AttachedTo;
pub use cause::{
    AddressSpaceLimit, Cause, CpuTimeLimit, DeadProcess, DiskFull, DiskRole, Enforcer, FatalSignal,
    FileSizeLimit, GpuHolder, GpuMemoryExhausted, LimitExceeded, OutOfMemory, TimeLimit, TimeLimitSource,
};
pub use containers::{ContainerCertainty, ContainerUsage};
pub use contention::Contention;
pub use coverage::{
    Coverage, ElsewhereKind, Layers, LeftReport, Nodes, OtherUser, Peaks, StartedElsewhere, UnseenRanks,
};
pub use cpu::{Cpu, CpuTime, Percent};
pub use crashes::{Crash, CrashPlace};
pub use gpu::{
    CommandGpu, Gpu, GpuActivity, GpuClocks, GpuDevice, GpuErrors, GpuFinding, GpuFindingKind, GpuGap,
    GpuMemory, GpuMissing, GpuPcie, GpuPower, GpuProcess, GpuPstate, GpuReading, GpuThrottle, GpuTorch,
    GpuUtilization, GpuXid, MaxGpuRam, ProcessGpu, are_of_one_time,
};
pub use hints::{
    CpusHint, GpuMemoryHint, GpusHint, Hints, MemoryBasis, MemoryHint, MigProfileHint, TimeBasis, TimeHint,
};
pub(crate) use hints::{LEAST_MEMORY_BYTES, LEAST_TIME_S};
pub use io::{ContextSwitches, Faults, Io};
pub use nodes::{
    AtMost, FailedRank, JobRank, Merged, Node, NodeCoverage, NodeGpu, NodePart, NodeRam, NodeSeries,
    NodeState, OwnRank, RankPlace, RankSeries, RankUsage, Ranks, ReportFiles, Spread, UnreadFile,
};
pub use pressure::{CgroupMemory, CpuQuota, Pressure, ResourceStalls, Stall, Swap};
pub use processes::{CommandCalls, CommandUsage, Exit, HeavyProcess, ProcessUsage, Processes, Running};
pub use ram::{CommandHolders, Holder, MaxProportionalRam, MaxRam, OtherHolders, Peak, SetRam};
pub use run_limits::RunLimitUse;
pub use series::{
    CommandSeries, Directory, FileSystemSeries, GpuSeries, IoTracks, OtherCommandSeries, Series, SetTracks,
    Track,
};
pub use tasks::{MOST_TASKS, NestedTasks, OTHER_TASKS, TaskIo, TaskUsage, WORKFLOW, task_count};
pub use time_spent::{
    CommandShare, CommandTime, GpuTime, SpecialVerdict, StateTime, ThreadTime, TimeSpent, TimeState, Verdict,
    VerdictKind,
};
pub use usable::{CoresSource, GpusSource, MemorySource, Usable, UsableCores, UsableGpus, UsableMemory};
pub use warning::{Topic, Warning};

/// The name under which commands that have no entry of their own are summed up.
pub const OTHER_COMMANDS: &str = "(other)";

/// The report of one run. Its serialised form has all of it, exactly, in the order of the fields; docs/REPORT.md lists the
/// keys. A section of which every figure can be unknown may be absent there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// How far the run is.
    pub stage: Stage,
    /// The command and its arguments; after an attach, those of that process.
    pub command: Vec<String>,
    /// The process of `--attach`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attached: Option<AttachedTo>,
    /// Start of the command, or the attach: RFC 3339 in UTC.
    #[serde(with = "super::timestamp")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub started_at: SystemTime,
    /// From the command's start to its end, seconds; with `--wait-all`, to the end of the last process.
    pub wall_s: f64,
    /// The machine.
    pub host: Host,
    /// How the command ended.
    #[serde(rename = "exit", default)]
    pub ending: Ending,
    /// Processes that crashed; `None`: the run was not tracked.
    pub crashes: Option<Vec<Crash>>,
    /// What the command may use, by the strictest limit.
    pub usable: Usable,
    /// What to ask for, each with its basis.
    #[serde(default)]
    pub hints: Hints,
    /// CPU time of the tree.
    #[serde(default)]
    pub cpu_time: CpuTime,
    /// What others had of the allowed cores, on average.
    #[serde(default)]
    pub contention: Contention,
    /// Where the wall time went; `None`: the run was not tracked.
    pub time_spent: Option<TimeSpent>,
    /// I/O of storage, and I/O by calls.
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
    /// Mean footprint over the wall time, bytes.
    #[serde(rename = "mean_ram", default)]
    pub mean_ram_bytes: Groups<Option<f64>>,
    /// Largest sums of PSS at a sample, bytes.
    #[serde(default)]
    pub max_ram_proportional: MaxProportionalRam,
    /// Upper bounds of the totals of `max_ram_bytes`, bytes; `None`: the RAM of a process is unknown.
    #[serde(default)]
    pub max_ram_at_most: Groups<Option<u64>>,
    /// The tree's memory in swap, by samples.
    #[serde(default)]
    pub swap: Swap,
    /// Pressure on CPU, memory and I/O, and what a CPU quota withheld.
    #[serde(default)]
    pub pressure: Pressure,
    /// What the run's own cgroup (`--cgroup`) or its batch job's holds beside the memory of processes; `None`: neither, or not read.
    pub cgroup_memory: Option<CgroupMemory>,
    /// Largest memory of all tracked GPUs together, bytes.
    #[serde(rename = "max_gpu_ram_bytes", default)]
    pub max_gpu_ram: MaxGpuRam,
    /// CPU utilization and threads.
    pub cpu: Cpu,
    /// Utilization of the tracked GPUs by all processes.
    #[serde(default)]
    pub gpu: Gpu,
    /// The processes of the tree.
    pub processes: Processes,
    /// The tasks of a pipeline, where the run had any: the 300 with most CPU time (nested ones included), `(others)` and `(workflow)`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskUsage>,
    /// Containers that a daemon ran for calls of the tree, in the order of their starts; in no sum.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<ContainerUsage>,
    /// The tracked GPUs and MIG instances.
    pub gpus: Vec<GpuDevice>,
    /// The moment of the largest combined RAM; `None`: no RAM was seen.
    pub peak: Option<Peak>,
    /// The run over time.
    #[serde(deserialize_with = "series::deserialize")]
    pub series: Series,
    /// The kernel's figures of the command's own cgroup (`--cgroup`).
    pub cgroup: Option<Cgroup>,
    /// What the command was allowed at its start.
    #[serde(rename = "limits")]
    pub allowed: Allowed,
    /// Those of `--limit` and `--signal-at`, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub run_limits: Vec<RunLimitUse>,
    /// Those of `--alert`, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alerts: Vec<AlertUse>,
    /// What happened, with `--alert` or `--events`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<Events>,
    /// The command's rank in a job of several, by its environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<OwnRank>,
    /// Ranks that the command started here, without MPI's daemons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub job_ranks: Vec<JobRank>,
    /// The report's part in a run over several nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_part: Option<NodePart>,
    /// How several reports became this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merged: Option<Merged>,
    /// The nodes by name, then those without a report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<Node>,
    /// Ranks with a report, or in that of their node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<Ranks>,
    /// How the figures are known, and what may be missing.
    pub coverage: Coverage,
    /// What to know to judge the figures.
    pub warnings: Vec<Warning>,
}

/// How the command ended, and what ended it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ending {
    /// Exit code or signal. Both are null while the command runs, and if its launcher was killed.
    #[serde(flatten)]
    pub exit: Exit,
    /// Why `code` and `signal` are both null after an attach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What ended it, if it failed; `None` without evidence.
    pub cause: Option<Cause>,
    /// The user ended the wait of `--wait-all`.
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

named! {
    /// How far a run is when its report is made.
    #[derive(Default)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum Stage {
        /// The command runs.
        #[default]
        SoFar = "so_far",
        /// The run is over.
        Over = "final",
        /// Launcher and collector were killed; this is what they left.
        Recovered = "recovered",
    }
}

/// The machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Host {
    /// Node name.
    pub hostname: Option<String>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// Online processors.
    pub cores: u32,
    /// MemTotal of /proc/meminfo, bytes.
    pub ram_bytes: Option<u64>,
    /// Random id of this boot; `None` for several nodes.
    pub boot_id: Option<String>,
}
