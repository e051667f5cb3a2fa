//! What the run used on GPUs.

pub mod pid_table;
pub mod usage;

use serde::{Deserialize, Serialize};

pub use usage::GpuUsage;

use crate::run::tree::{Settled, Tree};
use pid_table::Roster;

/// Who is who, and what it comes to: all that outlives a collector.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct GpuAccount {
    /// There are backends, so it is worth to remember who lived.
    pub(crate) is_on: bool,
    pub(crate) roster: Roster,
    /// What it comes to.
    pub usage: GpuUsage,
}

impl GpuAccount {
    /// A process is over. Gives the GPU memory that it is known to have held, bytes, if it used a GPU.
    pub fn settled(&mut self, process: &Settled) -> Option<u64> {
        if !self.is_on {
            return None;
        }
        self.roster.settled(process);
        self.usage.processes.get(&process.id.0).map(|used| used.peak_bytes.unwrap_or(0))
    }

    /// No more readings come: who was there, and who of them was ever looked at.
    pub fn finish(&mut self, tree: &Tree) {
        if self.is_on {
            self.roster.update(tree);
            for person in self.roster.people() {
                self.usage.ended(person);
            }
        }
    }
}
