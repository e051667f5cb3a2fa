//! RAM of main, descendants and the whole tree.

use serde::{Deserialize, Serialize};

use crate::model::groups::Groups;

/// RAM of a part of the tree, bytes. `None`: no RAM of it is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SetRam {
    /// Largest footprint, with huge pages of hugetlbfs.
    #[serde(rename = "total_rss")]
    pub footprint_bytes: Option<u64>,
    /// Largest sum of pages that one process alone maps (USS).
    #[serde(rename = "private_rss")]
    pub private_bytes: Option<u64>,
    /// Largest footprint less private part.
    #[serde(rename = "shared_rss")]
    pub shared_bytes: Option<u64>,
}

/// Largest RAM over time. Each figure is a maximum of its own, so they need not add up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MaxRam {
    /// MemTotal of /proc/meminfo, bytes.
    #[serde(rename = "system_capacity")]
    pub system_capacity_bytes: Option<u64>,
    /// Most in use on the machine (MemTotal - MemAvailable), bytes.
    #[serde(rename = "system")]
    pub system_bytes: Option<u64>,
    /// This part of the tree.
    #[serde(default)]
    pub main: SetRam,
    /// This part of the tree.
    #[serde(default)]
    pub descendants: SetRam,
    /// This part of the tree.
    #[serde(default)]
    pub combined: SetRam,
}

impl MaxRam {
    /// The footprints of the parts of the tree, bytes.
    pub fn footprint_bytes(&self) -> Groups<Option<u64>> {
        let Self { main, descendants, combined, .. } = *self;
        Groups { main, descendants, combined }.map(|set| set.footprint_bytes)
    }
}

/// Largest sums of proportional set sizes (PSS) at one time, bytes. A page counts with a part for each process that maps
/// it, those outside of the tree included. `None`: no sample knew how all of their memory was shared.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MaxProportionalRam {
    /// Of each group.
    #[serde(flatten)]
    pub bytes: Groups<Option<u64>>,
    /// Why one of them is `None`.
    pub reason: Option<String>,
}

/// The moment of the tree's largest footprint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Peak {
    /// When, seconds after the command's start.
    pub at_s: f64,
    /// Combined footprint then, bytes.
    #[serde(rename = "combined_rss_bytes")]
    pub footprint_bytes: u64,
    /// Up to ten with the largest RSS then.
    pub processes: Vec<Holder>,
    /// The ten names with most RAM then.
    pub by_command: Vec<CommandHolders>,
    /// All other names.
    pub other_commands: Option<OtherHolders>,
}

/// The processes of one command name at the moment of the tree's largest RAM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CommandHolders {
    /// Command name.
    pub command: String,
    /// Its processes; 0: those that held this count by the name of a later program.
    pub count: u64,
    /// What they added to the footprint, bytes.
    pub added_bytes: u64,
}

/// The processes of several command names at that moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OtherHolders {
    /// How many names.
    pub commands: u64,
    /// How many processes.
    pub count: u64,
    /// What they added to the footprint, bytes.
    pub added_bytes: u64,
}

/// A process at the moment of the tree's largest RAM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Holder {
    /// Its pid and name.
    pub pid: u32,
    /// Its pid and name.
    pub command: String,
    /// As `ps` shows it, bytes.
    pub rss_bytes: u64,
    /// Pages that it alone maps, bytes; `None`: not all were read.
    pub private_bytes: Option<u64>,
    /// Pages that no older process of the tree maps, bytes.
    pub added_bytes: u64,
}
