//! Cores that others had while the run took place, and whether it waited for them.

use serde::{Deserialize, Serialize};

/// What others had of the cores that the run was allowed to use. All numbers but `allowed_cores` are means over the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Contention {
    /// The run waited for cores that others had.
    pub is_contended: Option<bool>,
    /// By sched_getaffinity.
    pub allowed_cores: Option<u32>,
    /// By /proc/stat, without gpu-track.
    pub others_cores: Option<f64>,
    /// The part of them that a hypervisor took.
    pub stolen_cores: Option<f64>,
    /// Waiting for a core (schedstat).
    pub waiting_threads: Option<f64>,
    /// Why one of these is null.
    pub reason: Option<String>,
}

impl Contention {
    /// Whether others may have kept the run from using more cores. That is so if they did, or if they had cores and it is not known
    /// whether they did.
    pub fn may_be_contended(&self) -> bool {
        // If others had too few cores to matter, the answer is known to be no. So if it is unknown, they had enough of them.
        self.is_contended.unwrap_or(self.others_cores.is_some())
    }
}
