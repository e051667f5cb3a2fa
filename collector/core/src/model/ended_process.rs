//! A process whose figures are final, as the sinks of a run write it.

use serde::{Deserialize, Serialize};

use super::report::ProcessUsage;

/// A process whose figures are final. Its pid and its start are its key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndedProcess {
    /// Its start, CLOCK_MONOTONIC nanoseconds.
    pub start_ns: u64,
    /// It was alive at the end of the run.
    pub is_still_running: bool,
    /// What it was and what it used. Its use of GPUs is not in it.
    #[serde(flatten)]
    pub usage: ProcessUsage,
}

impl EndedProcess {
    /// Its end, CLOCK_MONOTONIC nanoseconds.
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add((self.usage.wall_s.max(0.0) * 1e9) as u64)
    }
}
