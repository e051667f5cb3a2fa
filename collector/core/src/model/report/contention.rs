//! Cores that others had while the run took place, and whether it waited for them.

use serde::{Deserialize, Serialize};

/// What others had of the cores that the run was allowed to use. Numbers of cores are means over the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Contention {
    /// Whether the run was slower for it; `None`: not known.
    pub is_contended: Option<bool>,
    /// Cores that the run was allowed to use (affinity), which all figures are of.
    pub allowed_cores: Option<u32>,
    /// How many of them others had: other processes, the kernel's own threads, the hypervisor.
    pub others_cores: Option<f64>,
    /// How many of these the hypervisor took.
    pub stolen_cores: Option<f64>,
    /// Threads of the run that were ready and waited for a core, on average.
    pub waiting_threads: Option<f64>,
    /// Why one of these is `None`.
    pub reason: Option<String>,
}

impl Contention {
    /// Whether others may have kept the run from using more cores. That is so if they did, or if they had cores and it is not known
    /// whether they did.
    pub fn may_be_contended(&self) -> bool {
        // If others had too few cores to matter, the answer is known. So where it is not, what they had was enough.
        self.is_contended.unwrap_or(self.others_cores.is_some())
    }
}
