//! The machine that a run takes place on, and the end of its command.

use serde::{Deserialize, Serialize};

use super::report::{Host, Limits};

/// The machine, and the limits that the command starts with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HostInfo {
    /// The machine.
    pub host: Host,
    /// Clock ticks per second.
    pub ticks_per_second: u64,
    /// Limits of the command.
    pub limits: Limits,
}

/// The end of the command, as the launcher reports it.
#[derive(Debug, Clone, Copy)]
pub struct CommandExit {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub at_ns: u64,
    /// RUSAGE_CHILDREN of the launcher over the run, microseconds.
    pub children_cpu_us: u64,
}
