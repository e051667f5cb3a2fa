//! The machine that a run takes place on.

use gpu_track_abi::rank::Rank;
use serde::{Deserialize, Serialize};

use super::report::{Host, Limits};

/// The machine, and the limits that the command starts with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HostInfo {
    /// The machine.
    pub host: Host,
    /// Clock ticks per second.
    pub ticks_per_second: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Limits of the command.
    pub limits: Limits,
    /// The ranks of the jobs that the launcher is itself a part of.
    pub own_ranks: Vec<Rank>,
}

impl HostInfo {
    /// Gives the length of a clock tick, microseconds.
    #[must_use]
    pub fn tick_us(&self) -> u64 {
        1_000_000 / self.ticks_per_second.max(1)
    }
}
