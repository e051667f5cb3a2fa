//! Where the run takes place, and how the command ended.

use serde::{Deserialize, Serialize};

use super::report::{Host, Limits};

/// Where it runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HostInfo {
    /// The machine.
    pub host: Host,
    /// Clock ticks a second.
    pub ticks_per_second: u64,
    /// What the command was allowed.
    pub limits: Limits,
}

/// The launcher's last word.
#[derive(Debug, Clone, Copy)]
pub struct CommandExit {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub at_ns: u64,
    /// RUSAGE_CHILDREN of the launcher over the run, microseconds.
    pub children_cpu_us: u64,
}
