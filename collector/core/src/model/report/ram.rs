//! RAM of main, descendants and the whole tree.

use serde::{Deserialize, Serialize};

use crate::model::groups::Groups;

/// RAM of a set of processes, bytes. `None`: no sample and no EXIT record gives the memory of any of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetRam {
    /// Largest footprint at one time: the distinct pages that the processes have mapped, whoever else maps them. Of one
    /// process that is its RSS; huge pages of hugetlbfs are added.
    #[serde(rename = "total_rss")]
    pub footprint_bytes: Option<u64>,
    /// Largest private part at one time, of the times at which it is known: pages that one process alone maps (USS).
    #[serde(rename = "private_rss")]
    pub private_bytes: Option<u64>,
    /// Largest shared part at one time: the footprint less its private part.
    #[serde(rename = "shared_rss")]
    pub shared_bytes: Option<u64>,
}

/// Largest RAM over time. Each figure is a maximum of its own, so they need not add up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MaxRam {
    /// MemTotal of /proc/meminfo, bytes.
    #[serde(rename = "system_capacity")]
    pub system_capacity_bytes: Option<u64>,
    /// Memory in use on the whole machine (MemTotal - MemAvailable), bytes; `None` if it was never read.
    #[serde(rename = "system")]
    pub system_bytes: Option<u64>,
    /// The command's first process.
    #[serde(default)]
    pub main: SetRam,
    /// All its descendants; 0 if there were none.
    #[serde(default)]
    pub descendants: SetRam,
    /// The whole tree.
    #[serde(default)]
    pub combined: SetRam,
}

/// Largest sums of proportional set sizes (PSS) at one time, bytes. A page counts with a part for each process that maps
/// it, those outside of the tree included. `None`: no sample knew how all of their memory was shared.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaxProportionalRam {
    /// Of each group.
    #[serde(flatten)]
    pub bytes: Groups<Option<u64>>,
    /// Why one of them is `None`.
    pub reason: Option<String>,
}

/// The moment of the tree's largest footprint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Peak {
    /// Seconds after the command's start.
    pub at_s: f64,
    /// The tree's footprint at that time, bytes.
    #[serde(rename = "combined_rss_bytes")]
    pub footprint_bytes: u64,
    /// The processes with the largest RSS at that time, largest first.
    pub processes: Vec<Holder>,
    /// The command names whose processes added most to the footprint then, largest sum first.
    pub by_command: Vec<CommandHolders>,
    /// The sum of all other command names; `None`: there are none.
    pub other_commands: Option<OtherHolders>,
}

/// The processes of one command name at the moment of the tree's largest RAM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandHolders {
    /// The name.
    pub command: String,
    /// How many processes had it.
    pub count: u64,
    /// What they added to the tree's footprint, bytes. The sums of all names are no more than the footprint.
    pub added_bytes: u64,
}

/// The processes of several command names at that moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherHolders {
    /// How many names.
    pub commands: u64,
    /// How many processes.
    pub count: u64,
    /// What they added to the tree's footprint, bytes.
    pub added_bytes: u64,
}

/// A process at the moment of the tree's largest RAM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its pid, as the launcher sees it.
    pub pid: u32,
    /// Its command name.
    pub command: String,
    /// Its RSS, and huge pages of hugetlbfs, bytes.
    pub rss_bytes: u64,
    /// Pages that no other process maps, bytes. `None`: for a part of its pages that was not read.
    pub private_bytes: Option<u64>,
    /// What it adds to the tree's footprint, bytes: pages that no older process of the tree maps.
    pub added_bytes: u64,
}
