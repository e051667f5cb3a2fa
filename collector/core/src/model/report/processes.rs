//! The processes of the tree: counts, sums by command, and the heaviest ones.

use serde::{Deserialize, Serialize};

use super::gpu::{CommandGpu, ProcessGpu};
use crate::model::groups::Groups;
use crate::model::quality::Quality;

/// The processes of the tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Processes {
    /// All that ever lived, with the first.
    pub total: u64,
    /// Most alive at one time.
    pub max_concurrent: Option<u64>,
    /// How many outlived the run.
    pub still_running: Option<u64>,
    /// The first 100.
    pub still_running_processes: Vec<Running>,
    /// Sums by name, most CPU time first; at most 10,000 and `(other)`.
    pub by_command: Vec<CommandUsage>,
    /// Why some commands' figures of calls are lower bounds or null.
    pub calls_reason: Option<String>,
    /// The `--heaviest` by CPU time, by peak RSS, and by GPU memory.
    pub heaviest: Vec<HeavyProcess>,
    /// Largest sum of processes' utilization, percent of one GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_sm_percent: Option<Groups<f64>>,
}

/// How a process ended. Both are null while it runs, and if its wait status was never seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Exit {
    /// Exit code.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
}

impl Exit {
    /// Whether a signal ended it, or its exit code is not 0.
    pub(crate) fn is_failure(self) -> bool {
        self.signal.is_some() || self.code.is_some_and(|code| code != 0)
    }
}

/// A process that was alive at the end of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Running {
    /// Its pid and name.
    pub pid: u32,
    /// Its pid and name.
    pub command: String,
}

/// All processes of one command name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CommandUsage {
    /// Command name.
    pub command: String,
    /// Processes that ended under it.
    pub count: u64,
    /// Their own CPU time, seconds.
    pub cpu_s: Option<f64>,
    /// Largest of a single one, bytes.
    pub peak_rss_bytes: Option<u64>,
    /// Their sum, seconds.
    pub wall_s: f64,
    /// What they passed by calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<CommandCalls>,
    /// Their use of GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<CommandGpu>,
}

/// What processes themselves passed by read and write calls, without their children.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CommandCalls {
    /// Passed by their own read calls, pipes and cached files included: see `io.read_call_bytes`.
    pub read_call_bytes: Option<u64>,
    /// Passed by their own write calls: see `io.write_call_bytes`.
    pub write_call_bytes: Option<u64>,
    /// Their own read calls.
    pub read_calls: Option<u64>,
    /// Their own write calls.
    pub write_calls: Option<u64>,
    /// How these four are known: `sampled`: at least, by readings once a second; `bound`: at most, with what a parent's short threads or
    /// unseen children did.
    pub quality: Quality,
}

/// A process that is reported singly.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeavyProcess {
    /// What it is, and what it used.
    #[serde(flatten)]
    pub usage: ProcessUsage,
    /// Its start, seconds after the command's start; in a merged report, after the first start.
    pub start_s: Option<f64>,
    /// Its node, in a merged report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// One process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessUsage {
    /// Its pid, as the launcher sees it.
    pub pid: u32,
    /// Its parent's pid.
    pub ppid: Option<u32>,
    /// Command name.
    pub command: String,
    /// Arguments; `None`: it ended before they could be read.
    pub args: Option<Vec<String>>,
    /// Its own, without that of children, seconds.
    pub cpu_s: Option<f64>,
    /// How well it is known.
    pub cpu_quality: Quality,
    /// Peak RSS, shared pages in full, bytes.
    pub peak_rss_bytes: Option<u64>,
    /// How well it is known.
    pub peak_quality: Quality,
    /// From its start to its end or the run's, seconds.
    pub wall_s: f64,
    /// How it ended.
    #[serde(default)]
    pub exit: Exit,
    /// Its use of GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<ProcessGpu>,
}
