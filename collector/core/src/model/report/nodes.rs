//! Reports of several nodes as one: the nodes, the ranks, and how they were put together.

use serde::{Deserialize, Serialize};

use super::processes::Exit;
use crate::model::timestamp::Timestamp;

/// How the reports of several nodes became one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Merged {
    /// The files that were given: those that are in the merged report, and the others.
    #[serde(default)]
    pub files: ReportFiles,
    /// Nodes, by host name and boot id.
    pub nodes: u64,
    /// Machines, by boot id.
    pub machines: u64,
    /// Width of the bins of sums, seconds.
    pub bin_s: f64,
    /// How far two clocks can be apart, seconds; `None`: taken to agree.
    pub clock_error_s: Option<f64>,
    /// Upper bounds of the largest sums.
    #[serde(default)]
    pub at_most: AtMost,
    /// Differences of `nodes[].ram.max_bytes`, bytes.
    pub ram_bytes: Option<Spread<String>>,
    /// Differences of `nodes[].cpu_s`, seconds.
    pub cpu_s: Option<Spread<String>>,
    /// Sum of `nodes[].gpus[].energy_j`, each GPU once, joules.
    pub gpu_energy_j: Option<f64>,
    /// Nodes with less than 1 % of their cores and GPUs busy while others worked, if all of it is known.
    #[serde(default)]
    pub idle_nodes: Vec<String>,
    /// The node whose command failed first, as `exit` says; one command for all nodes: null.
    pub failed_node: Option<String>,
    /// When that was, seconds after the first start.
    pub failed_s: Option<f64>,
    /// Those above 10,000 nodes and 20,000 GPUs.
    pub unlisted_nodes: u64,
    /// Those above 10,000 nodes and 20,000 GPUs.
    pub unlisted_gpus: u64,
    /// Of each point of `nodes[].series`, seconds after the first start.
    pub node_start_s: Vec<f64>,
    /// Of each point of `nodes[].series`, seconds after the first start.
    pub node_end_s: Vec<f64>,
}

/// The largest that a sum over nodes can have been, where the report has no key of its own for it. `None`: it is unknown of
/// a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AtMost {
    /// Upper bound of `max_ram_bytes.system`, bytes.
    pub system_ram_bytes: Option<u64>,
    /// Upper bound of `max_gpu_ram_bytes.system`, bytes.
    pub gpu_ram_used_bytes: Option<u64>,
    /// Upper bound of `max_gpu_ram_bytes.combined`, bytes.
    pub gpu_ram_run_bytes: Option<u64>,
    /// Upper bound of `processes.max_concurrent`.
    pub processes: Option<u64>,
}

/// How a quantity differs between nodes or ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Spread<P> {
    /// Of all nodes or ranks.
    pub min: f64,
    /// Of all nodes or ranks.
    pub mean: f64,
    /// Of all nodes or ranks.
    pub max: f64,
    /// The largest over the mean.
    pub imbalance: Option<f64>,
    /// The node or rank that has it.
    pub min_at: P,
    /// The node or rank that has it.
    pub max_at: P,
}

/// How far a node's reports are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// All of its reports are final.
    #[default]
    Final,
    /// A report is one so far: the run goes on there, or the node is lost.
    LastHeard,
    /// Everything was killed there; a report is of what was left.
    Recovered,
    /// It has no report; another one tells of its processes.
    NeverCheckedIn,
}

/// A node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Node {
    /// Host name, or the report's file; with boot id if not unique.
    pub node: String,
    /// How far its reports are.
    pub state: NodeState,
    /// How many reports are of it.
    pub reports: u64,
    /// Time up to which all its reports have figures, by its corrected clock: RFC 3339 in UTC.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub last_heard_at: Option<Timestamp>,
    /// How long that was before the end, seconds.
    pub silent_s: Option<f64>,
    /// Its clock less the others' (`--clock-offset`), seconds.
    pub clock_offset_s: Option<f64>,
    /// Online processors.
    pub cores: Option<u32>,
    /// What the run may use.
    pub usable_cores: Option<f64>,
    /// RAM.
    #[serde(default)]
    pub ram: NodeRam,
    /// CPU time of the run, seconds.
    pub cpu_s: Option<f64>,
    /// `cpu_s` over the time of its reports.
    pub busy_cores: Option<f64>,
    /// As in `contention`.
    pub is_contended: Option<bool>,
    /// The run's processes.
    pub processes: Option<u64>,
    /// How the command ended; of several failures the first.
    #[serde(default)]
    pub exit: Exit,
    /// The tracked GPUs, the first 64.
    pub gpus: Vec<NodeGpu>,
    /// How its figures are known.
    pub coverage: Option<NodeCoverage>,
    /// Its RAM and CPU over time, with an entry for each of [`Merged::node_start_s`].
    #[serde(default)]
    pub series: NodeSeries,
}

/// RAM of a node, bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeRam {
    /// Largest RAM; of several reports a lower bound, bytes.
    pub max_bytes: Option<u64>,
    /// An upper bound of it, bytes.
    pub at_most_bytes: Option<u64>,
    /// Mean over the time of its reports, bytes.
    pub mean_bytes: Option<f64>,
    /// Most in use on the machine, bytes.
    pub max_used_bytes: Option<u64>,
    /// What the run may use, bytes.
    pub usable_bytes: Option<u64>,
    /// What the machine has.
    pub total_bytes: Option<u64>,
}

/// A GPU of a node. `None` is unknown; the node's own report says why.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeGpu {
    /// As `gpus[].id`.
    pub id: String,
    /// Product name.
    pub name: Option<String>,
    /// As `gpus[].used`.
    pub used: Option<bool>,
    /// What it has, bytes.
    pub total_bytes: Option<u64>,
    /// Most that the run held in one report, bytes.
    pub max_run_bytes: Option<u64>,
    /// Mean in the longest report, percent.
    pub mean_percent: Option<f64>,
    /// Sum of reports that do not overlap, joules: can be a lower bound.
    pub energy_j: Option<f64>,
}

/// How the figures of a node are known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeCoverage {
    /// As in `coverage`.
    pub exact: u64,
    /// As in `coverage`.
    pub sampled: u64,
    /// As in `coverage`.
    pub unknown: u64,
    /// As in `coverage`.
    pub untracked_reason: Option<String>,
    /// As in `coverage`.
    pub uncounted_reason: Option<String>,
    /// As in `coverage`.
    pub dropped_events: u64,
}

/// A node over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeSeries {
    /// Mean RAM, bytes.
    pub mean_ram_bytes: Vec<Option<f64>>,
    /// An upper bound of the RAM at any moment of the point, bytes.
    pub max_ram_bytes: Vec<Option<f64>>,
    /// Percent of one core.
    pub mean_cpu_percent: Vec<Option<f64>>,
}

/// The rank that a command is in a job of several: mpirun or srun started gpu-track-run once for each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OwnRank {
    /// Number of its job, if the environment has an id.
    pub job: u32,
    /// Its number, from 0.
    pub rank: u32,
    /// Number of ranks.
    pub of: u32,
    /// Pid of its first process.
    pub pid: Option<u32>,
}

/// A rank of a job that the command started on this node. Jobs whose environment has no id of the job, and as many ranks, count as
/// one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobRank {
    /// Which one, and its first process.
    #[serde(flatten)]
    pub rank: OwnRank,
    /// Its name.
    pub command: String,
    /// A child has the rank of its parent.
    pub processes: u64,
    /// Start of the first process, seconds after the command's start.
    pub start_s: f64,
    /// From then to the end of its last process, seconds.
    pub wall_s: f64,
    /// Its CPU time, seconds; `None`: that of a process is unknown.
    pub cpu_s: Option<f64>,
    /// Largest sum at a sample, or peak RSS of a process, bytes: a lower bound.
    pub peak_ram_bytes: Option<u64>,
    /// Largest of one of its processes, bytes.
    pub peak_gpu_ram_bytes: Option<u64>,
    /// How its first process ended.
    #[serde(default)]
    pub exit: Exit,
}

/// The part that a report has in a run over several nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodePart {
    /// Made on another node than the launcher's.
    pub is_agent: bool,
    /// Its clock less the shared file system's, seconds.
    pub clock_ahead_s: Option<f64>,
    /// Of the launcher's node: when a program first reached other nodes, and had waited until agents tracked them, seconds after the start.
    /// `None`: no program waited for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_s: Option<f64>,
    /// Where the nodes' reports are; `None`: they are merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

/// The ranks of a merged report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ranks {
    /// Those that were seen.
    pub seen: u64,
    /// All ranks of their jobs.
    pub expected: u64,
    /// Their jobs.
    pub jobs: u64,
    /// Ranks without a report, the first 100.
    pub missing: Vec<u32>,
    /// The rank that failed first.
    pub first_failed: Option<FailedRank>,
    /// Differences in the job with most CPU time, bytes.
    pub peak_ram_bytes: Option<Spread<RankPlace>>,
    /// Differences in the job with most CPU time, seconds.
    pub cpu_s: Option<Spread<RankPlace>>,
    /// Differences in the job with most CPU time, bytes.
    pub peak_gpu_ram_bytes: Option<Spread<RankPlace>>,
    /// The ten with most RAM.
    pub heaviest: Vec<RankUsage>,
    /// The ten others with least RAM.
    pub lightest: Vec<RankUsage>,
    /// Of each point of `series`, seconds after the first start.
    #[serde(default)]
    pub series_start_s: Vec<f64>,
    /// Of each point of `series`, seconds after the first start.
    #[serde(default)]
    pub series_end_s: Vec<f64>,
    /// At most 64 ranks over time; of more every second, fourth, ... one.
    #[serde(default)]
    pub series: Vec<RankSeries>,
}

/// A rank over time, with an entry for each of [`Ranks::series_start_s`]. `None`: nothing is known of that time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RankSeries {
    /// Which one.
    #[serde(flatten)]
    pub place: RankPlace,
    /// Mean RAM, bytes.
    pub mean_ram_bytes: Vec<Option<f64>>,
    /// Percent of one core.
    pub mean_cpu_percent: Vec<Option<f64>>,
}

/// A rank.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RankPlace {
    /// Number of its job, where a run has several.
    pub job: u32,
    /// Its number in the job.
    pub rank: u32,
    /// Name of its node.
    pub node: String,
}

/// A rank that failed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailedRank {
    /// Which one.
    #[serde(flatten)]
    pub place: RankPlace,
    /// When it ended, seconds after the first start.
    pub at_s: f64,
    /// How it ended.
    pub exit: Exit,
}

/// A rank.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RankUsage {
    /// Which one.
    #[serde(flatten)]
    pub place: RankPlace,
    /// Pid of its first process.
    pub pid: Option<u32>,
    /// Wall time, seconds.
    pub wall_s: f64,
    /// Its largest RAM, bytes.
    pub peak_ram_bytes: Option<u64>,
    /// Its CPU time, seconds.
    pub cpu_s: Option<f64>,
    /// Its largest GPU memory, bytes.
    pub peak_gpu_ram_bytes: Option<u64>,
    /// How it ended. Of several reports: the first failure, else that all succeeded; no status if neither is known.
    #[serde(default)]
    pub exit: Exit,
}

/// The files that were to become one report.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReportFiles {
    /// How many are in the report.
    pub read: u64,
    /// How many could not be read, or are copies of others.
    pub unread: u64,
    /// The first 1,000 unread ones.
    pub unread_files: Vec<UnreadFile>,
}

/// A file that is not in the report.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnreadFile {
    /// Its name.
    pub file: String,
    /// Why.
    pub reason: String,
}
