//! The processes of the tree: counts, sums by command, and the heaviest ones.

use serde::{Deserialize, Serialize};

use super::gpu::{CommandGpu, ProcessGpu};
use crate::model::groups::Groups;
use crate::model::quality::Quality;

/// The processes of the tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Processes {
    /// All that ever lived, the command's first process included.
    pub total: u64,
    /// Most alive at one time; `None`: the run was not tracked.
    pub max_concurrent: Option<u64>,
    /// How many were alive at the end of the run; `None`: the run was not tracked, and /proc could not be read.
    pub still_running: Option<u64>,
    /// The first 100 of those.
    pub still_running_processes: Vec<Running>,
    /// By command name, most CPU time first.
    pub by_command: Vec<CommandUsage>,
    /// Single processes: most CPU time first, then those of largest peak RSS, then of largest GPU memory.
    pub heaviest: Vec<HeavyProcess>,
    /// Largest sum over the processes of their GPU utilisation at one time, percent of one GPU; `None` if no driver reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_sm_percent: Option<Groups<f64>>,
}

/// How a process ended. At most one is known; neither while it runs, or if its wait status was never seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Exit code.
    pub code: Option<i32>,
    /// Number of the signal that ended it.
    pub signal: Option<i32>,
}

/// A process that was alive at the end of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// Its pid, as the launcher sees it.
    pub pid: u32,
    /// Its command name.
    pub command: String,
}

/// All processes of one command name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandUsage {
    /// Base name of the program; for an interpreter, with the base name of its script.
    pub command: String,
    /// How many processes had this name at their end.
    pub count: u64,
    /// Sum of their own CPU times, seconds; `None` if none is known.
    pub cpu_s: Option<f64>,
    /// Largest peak RSS of any one of them, bytes; `None` if none is known.
    pub peak_rss_bytes: Option<u64>,
    /// Sum of their wall times, seconds.
    pub wall_s: f64,
    /// Their use of GPUs; `None` if none was seen on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<CommandGpu>,
}

/// A process that is reported singly.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeavyProcess {
    /// What it is, and what it used.
    #[serde(flatten)]
    pub usage: ProcessUsage,
    /// Its start, seconds after the command's start, in a merged report after the first start. `None`: a version wrote the report
    /// that did not have it, or the report that was merged is of another time.
    pub start_s: Option<f64>,
    /// Its node, in a merged report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// One process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessUsage {
    /// Its pid, as the launcher sees it. In another pid namespace, and never seen from outside: its pid in there.
    pub pid: u32,
    /// Its parent's pid.
    pub ppid: Option<u32>,
    /// Base name of the program; for an interpreter, with the base name of its script.
    pub command: String,
    /// Its arguments; `None` if it ended before they could be read.
    pub args: Option<Vec<String>>,
    /// Its own CPU time, seconds.
    pub cpu_s: Option<f64>,
    /// Source of `cpu_s`; `unknown` where that is null.
    pub cpu_quality: Quality,
    /// Peak RSS, bytes.
    pub peak_rss_bytes: Option<u64>,
    /// Source of `peak_rss_bytes`; `unknown` where that is null.
    pub peak_quality: Quality,
    /// From its start to its end, or to the end of the run, seconds.
    pub wall_s: f64,
    /// How it ended.
    #[serde(default)]
    pub exit: Exit,
    /// Its use of GPUs; `None` if it was seen on none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<ProcessGpu>,
}
