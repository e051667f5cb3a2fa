//! Reports of several nodes as one: the nodes, the ranks, and how they were put together.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::processes::Exit;

/// How the reports of several nodes became one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Merged {
    /// The files that were given: those that are in the merged report, and the others.
    #[serde(default)]
    pub files: ReportFiles,
    /// Nodes that the reports are of.
    pub nodes: u64,
    /// Machines that these nodes are: containers of one machine are nodes of their own.
    pub machines: u64,
    /// Width of the bins of wall-clock time in which the nodes are added up, seconds.
    pub bin_s: f64,
    /// How far the clocks of two nodes can be apart, seconds; `None`: no report has this, so the clocks are taken to agree.
    pub clock_error_s: Option<f64>,
    /// Upper bounds of the largest sums.
    #[serde(default)]
    pub at_most: AtMost,
    /// RAM of the nodes, bytes; `None`: it is known of fewer than two.
    pub ram_bytes: Option<Spread<String>>,
    /// CPU time of the nodes, seconds; `None`: it is known of fewer than two.
    pub cpu_s: Option<Spread<String>>,
    /// Energy of all GPUs, each counted once, joules; `None`: there is none, or that of one is unknown.
    pub gpu_energy_j: Option<f64>,
    /// Nodes that `nodes` does not list.
    pub unlisted_nodes: u64,
    /// GPUs that `nodes` does not list.
    pub unlisted_gpus: u64,
    /// Where each point of the nodes' series begins, seconds after the first start.
    pub node_start_s: Vec<f64>,
    /// Where each point of the nodes' series ends, seconds after the first start.
    pub node_end_s: Vec<f64>,
}

/// The largest that a sum over nodes can have been, where the report has no key of its own for it. `None`: it is unknown of
/// a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AtMost {
    /// Memory in use on the machines, bytes.
    pub system_ram_bytes: Option<u64>,
    /// GPU memory in use by any process, bytes.
    pub gpu_ram_used_bytes: Option<u64>,
    /// GPU memory of the run's processes, bytes.
    pub gpu_ram_run_bytes: Option<u64>,
    /// Live processes.
    pub processes: Option<u64>,
}

/// How a quantity differs between nodes or ranks. `P` names one of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spread<P> {
    /// The smallest.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// The largest.
    pub max: f64,
    /// The largest over the mean; `None` where the mean is 0.
    pub imbalance: Option<f64>,
    /// Which has the smallest.
    pub min_at: P,
    /// Which has the largest.
    pub max_at: P,
}

/// How far a node's reports are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// All of its reports are final.
    #[default]
    Final,
    /// One of them is a report so far: the run goes on there, or the node was lost.
    LastHeard,
    /// Everything was killed there, and a report was made of what was left.
    Recovered,
    /// The run has processes there, as far as another report tells, and no report is of it.
    NeverCheckedIn,
}

/// A node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Its host name, or the file of its report where that has none.
    pub node: String,
    /// How far its reports are.
    pub state: NodeState,
    /// How many reports are of it.
    pub reports: u64,
    /// Until when they tell of it, by its own clock less its offset. Of several reports that are not final, the one that ends
    /// first counts. `None` without a report.
    #[serde(with = "crate::model::timestamp::option", default)]
    pub last_heard_at: Option<SystemTime>,
    /// How long before the end of the run that was, seconds; `None` without a report, and if its time has nothing to do with
    /// that of the others.
    pub silent_s: Option<f64>,
    /// Its clock less that of the others, seconds, as the user gives it; `None`: unknown.
    pub clock_offset_s: Option<f64>,
    /// Online processors; `None` without a report.
    pub cores: Option<u32>,
    /// Cores that the run may use there.
    pub usable_cores: Option<f64>,
    /// RAM.
    #[serde(default)]
    pub ram: NodeRam,
    /// CPU time of the run's processes there, seconds.
    pub cpu_s: Option<f64>,
    /// Mean number of busy cores: `cpu_s` over the time of its reports.
    pub busy_cores: Option<f64>,
    /// Whether the run waited for cores that others had.
    pub is_contended: Option<bool>,
    /// The run's processes there; `None` without a report.
    pub processes: Option<u64>,
    /// How the command ended there: of several failures the first one.
    #[serde(default)]
    pub exit: Exit,
    /// The tracked GPUs.
    pub gpus: Vec<NodeGpu>,
    /// How its figures are known; `None` without a report.
    pub coverage: Option<NodeCoverage>,
    /// Its RAM and CPU over time, with an entry for each of [`Merged::node_start_s`].
    #[serde(default)]
    pub series: NodeSeries,
}

/// RAM of a node, bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeRam {
    /// The largest RAM of the run's processes: the figure of its one report, or a lower bound of the largest sum over its reports.
    pub max_bytes: Option<u64>,
    /// The most that `max_bytes` can have been.
    pub at_most_bytes: Option<u64>,
    /// Its mean over the time of the reports.
    pub mean_bytes: Option<f64>,
    /// The largest in use on the machine.
    pub max_used_bytes: Option<u64>,
    /// What the run may use there.
    pub usable_bytes: Option<u64>,
    /// What the machine has.
    pub total_bytes: Option<u64>,
}

/// A GPU of a node. `None` is unknown; the node's own report says why.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeGpu {
    /// Its UUID, or its PCI address where it has none.
    pub id: String,
    /// Product name.
    pub name: Option<String>,
    /// Whether a process of the run was seen on it.
    pub used: Option<bool>,
    /// Memory that it has, bytes.
    pub total_bytes: Option<u64>,
    /// Largest memory of the run's processes, bytes: of one report.
    pub max_run_bytes: Option<u64>,
    /// Mean utilisation by any process, percent.
    pub mean_percent: Option<f64>,
    /// Energy, joules.
    pub energy_j: Option<f64>,
}

/// How the figures of a node are known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCoverage {
    /// Processes with an exact CPU time.
    pub exact: u64,
    /// Processes with the CPU time of the last sample.
    pub sampled: u64,
    /// Processes of unknown CPU time.
    pub unknown: u64,
    /// Why a report was not tracked; `None`: all were.
    pub untracked_reason: Option<String>,
    /// Why short processes may be missing; `None`: nothing speaks for that.
    pub uncounted_reason: Option<String>,
    /// Event records that were lost.
    pub dropped_events: u64,
}

/// A node over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeSeries {
    /// Mean RAM of the run's processes, bytes.
    pub mean_ram_bytes: Vec<Option<f64>>,
    /// The largest that it can have been, bytes.
    pub max_ram_bytes: Vec<Option<f64>>,
    /// Mean CPU utilisation, percent of one core.
    pub mean_cpu_percent: Vec<Option<f64>>,
}

/// The rank that a command is in a job of several: mpirun or srun started gpu-track-run once for each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnRank {
    /// Differs between the jobs of a run, where the environment has an id of the job.
    pub job: u32,
    /// The rank, from 0.
    pub rank: u32,
    /// Number of ranks.
    pub of: u32,
    /// Pid of the command's first process; `None`: the collector was not told it.
    pub pid: Option<u32>,
}

/// A rank of a job that the command started on this node. Jobs whose environment has no id of the job, and as many ranks, count as
/// one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobRank {
    /// Which one, and its first process.
    #[serde(flatten)]
    pub rank: OwnRank,
    /// The name of its first process.
    pub command: String,
    /// Its processes.
    pub processes: u64,
    /// When the first one started, seconds after the command's start.
    pub start_s: f64,
    /// From then until the last one ended, seconds.
    pub wall_s: f64,
    /// CPU time of its processes, seconds; `None`: that of one is unknown.
    pub cpu_s: Option<f64>,
    /// Largest RAM of its processes, bytes: their sum at a sample, or the peak RSS of one of them, whichever is larger. So it is a
    /// lower bound. `None`: it is unknown of all.
    pub peak_ram_bytes: Option<u64>,
    /// Largest GPU memory of one of its processes, bytes; `None`: none was seen on a GPU whose driver tells it.
    pub peak_gpu_ram_bytes: Option<u64>,
    /// How the first one ended.
    #[serde(default)]
    pub exit: Exit,
}

/// The part that a report has in a run over several nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodePart {
    /// The report is of what the launcher's command started on another node, by the agent there. Otherwise it is of the launcher's own
    /// node.
    pub is_agent: bool,
    /// How far the node's clock is ahead of that of the directory that the nodes share, seconds; `None`: unknown.
    pub clock_ahead_s: Option<f64>,
    /// The directory with the reports of all nodes. `None`: a merge has taken them in, or an older version wrote the report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

/// The ranks of a merged report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Ranks {
    /// How many have a report.
    pub seen: u64,
    /// How many there are, by the environment of those that were seen.
    pub expected: u64,
    /// How many jobs they are of.
    pub jobs: u64,
    /// Ranks without a report, the first 100 in the order of their jobs.
    pub missing: Vec<u32>,
    /// The rank that failed first; `None`: none is known to have failed.
    #[serde(default)]
    pub first_failed: Option<FailedRank>,
    /// Largest RAM of the ranks' processes, bytes, of the job that used most CPU time; `None`: it is known of none.
    pub peak_ram_bytes: Option<Spread<RankPlace>>,
    /// CPU time of the ranks of that job, seconds; `None`: it is known of none.
    pub cpu_s: Option<Spread<RankPlace>>,
    /// Largest GPU memory of the ranks of that job, bytes; `None`: it is known of none, or none used a GPU.
    pub peak_gpu_ram_bytes: Option<Spread<RankPlace>>,
    /// The ten with the largest RAM, the largest first.
    pub heaviest: Vec<RankUsage>,
    /// The ten with the smallest RAM that are not among these, the smallest first.
    pub lightest: Vec<RankUsage>,
    /// Where each point of `series` begins, seconds after the first start.
    #[serde(default)]
    pub series_start_s: Vec<f64>,
    /// Where each point of `series` ends, seconds after the first start.
    #[serde(default)]
    pub series_end_s: Vec<f64>,
    /// Ranks over time, by job and rank. If there are too many, these are every second one, every fourth one, and so on.
    #[serde(default)]
    pub series: Vec<RankSeries>,
}

/// A rank over time, with an entry for each of [`Ranks::series_start_s`]. `None`: nothing is known of that time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RankSeries {
    /// Which one.
    #[serde(flatten)]
    pub place: RankPlace,
    /// Mean RAM of its processes, bytes.
    pub mean_ram_bytes: Vec<Option<f64>>,
    /// Mean CPU utilisation, percent of one core.
    pub mean_cpu_percent: Vec<Option<f64>>,
}

/// Names a rank.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankPlace {
    /// Its job, as in [`OwnRank::job`].
    pub job: u32,
    /// Its number.
    pub rank: u32,
    /// Its node.
    pub node: String,
}

/// A rank that failed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
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
pub struct RankUsage {
    /// Which one.
    #[serde(flatten)]
    pub place: RankPlace,
    /// Pid of its first process on its node.
    pub pid: Option<u32>,
    /// Wall time, seconds.
    pub wall_s: f64,
    /// Largest RAM of its processes, bytes.
    pub peak_ram_bytes: Option<u64>,
    /// CPU time of its processes, seconds.
    pub cpu_s: Option<f64>,
    /// Largest GPU memory of its processes, bytes.
    pub peak_gpu_ram_bytes: Option<u64>,
    /// How it ended.
    #[serde(default)]
    pub exit: Exit,
}

/// The files that were to become one report.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportFiles {
    /// How many are in it.
    pub read: u64,
    /// How many are not.
    pub unread: u64,
    /// The first 1,000 of those.
    pub unread_files: Vec<UnreadFile>,
}

/// A file that is not in the report.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UnreadFile {
    /// Its name.
    pub file: String,
    /// Why it is not in it.
    pub reason: String,
}
