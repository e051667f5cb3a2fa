//! What comes of the limits that the user sets for a run (`--limit`, `--signal-at`).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::rule::Rule;
use crate::with_defaults;

with_defaults! {
    /// The limits of a run.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct RunLimits {
        /// In the order of the command line.
        pub list: Vec<Rule> = Vec::new(),
        /// The time from SIGTERM to SIGKILL when the tree is ended.
        pub kill_after: Duration = Duration::from_secs(10),
    }
}

/// A limit that was exceeded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exceeded {
    /// By how much, and when.
    pub by: Excess,
    /// The process that held most RAM at the last sample, or most memory of GPUs if the limit is of that.
    pub largest: Option<LargestProcess>,
}

/// By how much a limit was exceeded, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Excess {
    /// When the excess was seen, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// How much is allowed: bytes, nanoseconds or processes.
    pub allowed: u64,
    /// How much there was then, in the same unit.
    pub amount: u64,
}

/// The process that held most RAM, or most memory of GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LargestProcess {
    /// Its pid and name.
    pub pid: Option<u32>,
    /// Its pid and name.
    pub command: String,
    /// Its RSS, bytes.
    pub rss_bytes: u64,
    /// On all GPUs, at a limit of that, bytes.
    pub gpu_ram_bytes: Option<u64>,
}

/// The processes that held most at a sample.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LargestProcesses {
    /// The one with the largest RSS.
    pub in_ram: Option<LargestProcess>,
    /// The one with most memory on GPUs; `None`: none has any.
    pub in_gpu_ram: Option<LargestProcess>,
}

impl LargestProcesses {
    /// The process that held most memory on GPUs, if `is_gpu_ram` and any held some, or else the one that held most RAM.
    pub fn holder(&self, is_gpu_ram: bool) -> Option<&LargestProcess> {
        self.in_gpu_ram.as_ref().filter(|_| is_gpu_ram).or(self.in_ram.as_ref())
    }
}

/// Whether the kernel enforces a limit of RAM besides the collector's samples.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum KernelLimit {
    /// It does: the launcher set memory.max of the command's cgroup to this many bytes.
    Set(u64),
    /// It does not, for this reason.
    Refused(String),
}

/// What came of ending the tree at a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeEnd {
    /// SIGKILL was needed for a process.
    pub is_killed: bool,
    /// Processes that could not be ended.
    pub left: u32,
}
