//! Limits that the user sets for a run (`--limit`, `--signal-at`): what may be used, and what happens above that.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::named;

named! {
    /// What a limit is about. Each is of the whole tree.
    pub enum Quantity {
        /// The footprint, bytes.
        Ram = "ram",
        /// Memory on all GPUs, bytes.
        GpuRam = "gpu_ram",
        /// CPU time, nanoseconds.
        Cpu = "cpu",
        /// Time since the start of the command, nanoseconds.
        Wall = "wall",
        /// Live processes.
        Processes = "processes",
        /// Time without CPU time, block I/O and work on GPUs, nanoseconds.
        Stall = "stall",
        /// Time without work on GPUs, nanoseconds.
        GpuIdle = "gpu_idle",
    }
}

impl Quantity {
    /// Its unit in a report.
    #[must_use]
    pub fn unit(self) -> Unit {
        match self {
            Self::Ram | Self::GpuRam => Unit::Bytes,
            Self::Cpu | Self::Wall | Self::Stall | Self::GpuIdle => Unit::Seconds,
            Self::Processes => Unit::Processes,
        }
    }
}

named! {
    /// The unit of a quantity in a report.
    pub enum Unit {
        /// Bytes.
        Bytes = "bytes",
        /// Seconds.
        Seconds = "seconds",
        /// Number of processes.
        Processes = "processes",
        /// Percent.
        Percent = "percent",
    }
}

impl Unit {
    /// Gives an amount as reports have it; `amount` is in bytes, nanoseconds, processes or percent.
    #[must_use]
    pub fn of_report(self, amount: u64) -> f64 {
        match self {
            Self::Seconds => amount as f64 / 1e9,
            Self::Bytes | Self::Processes | Self::Percent => amount as f64,
        }
    }
}

/// How much is too much.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Threshold {
    /// More than this many bytes, nanoseconds or processes.
    Amount(u64),
    /// More than this part of what the run may use, percent.
    Percent(f64),
}

/// What happens when a limit is exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LimitAction {
    /// Every process of the tree is ended.
    End,
    /// The command's first process gets this signal.
    Signal(i32),
}

/// A limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunLimit {
    /// The user's words, such as `ram=8G`.
    pub words: String,
    /// What it is about.
    pub quantity: Quantity,
    /// How much is too much.
    pub threshold: Threshold,
    /// What happens then.
    pub action: LimitAction,
}

/// The limits of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunLimits {
    /// In the order of the command line.
    pub list: Vec<RunLimit>,
    /// From SIGTERM to SIGKILL.
    pub kill_after: Duration,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self { list: Vec::new(), kill_after: Duration::from_secs(10) }
    }
}

/// A limit that was exceeded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exceeded {
    /// By how much, and when.
    pub by: Excess,
    /// The process that held most memory at the last sample.
    pub largest: Option<LargestProcess>,
}

/// By how much a limit was exceeded, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Excess {
    /// When that was seen, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// How much is allowed: bytes, nanoseconds or processes.
    pub allowed: u64,
    /// How much there was then, in the same unit.
    pub amount: u64,
}

/// The process with the largest RSS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LargestProcess {
    /// Its pid, as the launcher sees it; `None`: it can't be seen from there.
    pub pid: Option<u32>,
    /// Its command name.
    pub command: String,
    /// Its RSS, bytes.
    pub rss_bytes: u64,
}

/// How a limit of RAM is held beside the samples.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum KernelLimit {
    /// By the cgroup of the command (memory.max), at this many bytes.
    Set(u64),
    /// It can't be, for this reason.
    Refused(String),
}

/// What came of ending the tree at a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeEnd {
    /// Some process ended by SIGKILL only.
    pub is_killed: bool,
    /// Processes that could not be ended.
    pub left: u32,
}
