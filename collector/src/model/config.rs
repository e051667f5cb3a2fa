//! What the launcher tells the collector: the configuration at its start, then what becomes of the command.
//!
//! All of it goes through one pipe, a JSON object a line. The end of the pipe without [`Message::Ended`] means that
//! the launcher is gone.

use serde::{Deserialize, Serialize};

use crate::model::cgroup::{OomCounter, RunCgroup};
use crate::model::gpu::GpuConfig;
use crate::model::style::Output;
use crate::model::style::Style;

/// Discovery layers in use (`--layers`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layers {
    /// The shim in every process.
    pub preload: bool,
    /// The shim's records of reaped children.
    pub wait: bool,
    /// The launcher as subreaper of orphans.
    pub subreaper: bool,
    /// Looking for children of known processes in /proc.
    pub scan: bool,
    /// The kernel's process connector.
    pub connector: bool,
}

/// All that a collector needs to know; the first line of the pipe.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Config {
    /// The launcher's pid, in the collector's pid namespace.
    pub launcher_pid: u32,
    /// Inode of the launcher's (and the collector's) pid namespace.
    pub pid_ns: u32,
    /// How many collectors of this run were killed before this one.
    pub restarts: u32,
    /// The command's pid, for a collector that comes while it runs.
    pub running_pid: Option<u32>,
    /// The command and its arguments (bytes that aren't UTF-8 replaced).
    pub command: Vec<String>,
    /// When the session began, CLOCK_MONOTONIC, nanoseconds.
    pub started_monotonic_ns: u64,
    /// When that was, nanoseconds since the epoch.
    pub started_realtime_ns: u64,
    /// Processes and threads that the machine had made by then, if it counts them.
    pub forks_before: Option<u64>,
    /// Sampling interval, nanoseconds.
    pub interval_ns: u64,
    /// `--n-expected-cores`.
    pub expected_cores: Option<u32>,
    /// `--heaviest`: most single processes in the report, by CPU time and by peak RSS each.
    pub most_heaviest: usize,
    /// Layers in use.
    pub layers: Layers,
    /// Why there is no process connector, where there is none.
    pub connector_absent: Option<String>,
    /// The command's own cgroup, if one was asked for, or why there is none.
    pub cgroup: Option<Result<RunCgroup, String>>,
    /// Whom the kernel kills in the group that the launcher was started in.
    pub oom: Option<OomCounter>,
    /// Where the report goes.
    pub output: Output,
    /// How it is written.
    pub style: Style,
    /// `--disable-logs`: no lines on stderr beside the report.
    pub disable_logs: bool,
    /// Which GPUs, and where to look for them.
    pub gpu: GpuConfig,
    /// What the launcher already had to say to the reader of the report.
    pub warnings: Vec<String>,
}

/// What becomes of the command; the lines after the first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// The command runs.
    Started {
        /// Its pid.
        pid: u32,
        /// CLOCK_MONOTONIC before its fork, nanoseconds.
        monotonic_ns: u64,
    },
    /// There is no command: it could not be executed.
    Cancelled,
    /// The command (with `--wait-all`: the whole tree) ended.
    Ended {
        /// The command's wait status.
        status: i32,
        /// CLOCK_MONOTONIC when its end was seen, nanoseconds.
        monotonic_ns: u64,
        /// RUSAGE_CHILDREN of the launcher since its start, less collectors that it reaped, microseconds.
        children_cpu_us: u64,
    },
}
