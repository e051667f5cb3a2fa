//! The machine that a run takes place on.

use gpu_track_abi::rank::Rank;
use serde::{Deserialize, Serialize};

use super::report::{Allowed, Host};

/// The machine, and what the command is allowed to use.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HostInfo {
    /// The machine.
    pub host: Host,
    /// Clock ticks per second.
    pub ticks_per_second: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// What the command is allowed to use.
    pub allowed: Allowed,
    /// The ranks of the jobs that the launcher is itself a part of.
    pub own_ranks: Vec<Rank>,
}

impl HostInfo {
    /// The length of a clock tick, microseconds.
    pub fn tick_us(&self) -> u64 {
        1_000_000 / self.ticks_per_second.max(1)
    }
}
