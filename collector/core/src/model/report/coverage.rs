//! How the figures are known, and what may be missing.

use serde::{Deserialize, Serialize};

use crate::named;

/// How many processes are known from which source, and what was lost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Coverage {
    /// Why nothing was tracked.
    pub untracked_reason: Option<String>,
    /// As `processes.total`.
    pub processes: u64,
    /// Those whose CPU time is exact.
    pub exact: u64,
    /// Those whose CPU time is a lower bound, mostly by their last sample.
    pub sampled: u64,
    /// Those whose CPU time is unknown; mostly it is in their reaper's.
    pub unknown: u64,
    /// Why short processes may be missing.
    pub uncounted_reason: Option<String>,
    /// Processes with the session and no known parent, such as tasks of `srun`.
    pub joined: u64,
    /// Children that could not exec; also in `unknown`.
    pub failed_spawns: u64,
    /// Processes of gpu-track; in no other figure.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub helpers: u64,
    /// Processes without an EXIT record: static, setuid, 32-bit, other users'.
    pub uninstrumented: u64,
    /// The processes by the layer that found them first.
    pub layers: Layers,
    /// How the peak RSS of the processes is known.
    pub peaks: Peaks,
    /// Held by a process between samples: the largest RAM is a lower bound, bytes.
    pub ram_floor_bytes: Option<u64>,
    /// Why private and shared RAM are null.
    pub private_ram_reason: Option<String>,
    /// The first 100.
    pub static_executables: Vec<String>,
    /// Records lost for lack of space.
    pub dropped_events: u64,
    /// Why records were not read to the end.
    pub records_untrusted: Option<String>,
    /// Why the process connector was not used to the end.
    pub connector_absent: Option<String>,
    /// How often the connector lost events.
    pub connector_overruns: u64,
    /// Work handed to a daemon or host, in no figure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<StartedElsewhere>,
    /// Those in `uninstrumented` of other users.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_users: Vec<OtherUser>,
    /// Other machines with processes of the tree, in no figure.
    pub nodes: Option<Nodes>,
    /// Reports that stayed on their nodes, in no figure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_reports: Vec<LeftReport>,
    /// Ranks that wrote no record, in jobs of which other ranks did.
    pub ranks: Option<UnseenRanks>,
}

/// Work that was started outside of the tree, by one program and for one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StartedElsewhere {
    /// What runs it.
    pub kind: ElsewhereKind,
    /// The client, such as `docker`, or the daemon started there.
    pub program: String,
    /// Image or container, host, unit, pod or node.
    pub target: Option<String>,
    /// How often, or how many unnamed nodes.
    pub count: u64,
    /// Calls whose containers are in `containers`, or that an agent of the run tracks.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub followed: u64,
    /// Those of `followed` whose processes are in the tree, or in the report of all nodes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub in_tree: u64,
    /// Why others are not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// gpu-track-run was to run there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_tracked: bool,
}

named! {
    /// What runs work that was started elsewhere.
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum ElsewhereKind {
        /// A container's daemon.
        Container = "container",
        /// Another host.
        Host = "host",
        /// systemd.
        Unit = "unit",
        /// Kubernetes.
        Pod = "pod",
        /// A batch system or atd.
        Job = "job",
        /// Another node, for an MPI launcher or Slurm.
        Node = "node",
        /// A daemon of this machine that was there before: sccache's.
        Daemon = "daemon",
    }
}

/// Processes of another user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OtherUser {
    /// The user's number.
    pub uid: u32,
    /// How many processes.
    pub processes: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Ranks of jobs of which some ranks wrote records and others did not. The others run elsewhere, or can't carry the shim.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnseenRanks {
    /// Ranks without a record.
    pub unseen: u64,
    /// All ranks of these jobs.
    pub expected: u64,
}

/// Machines whose processes are in no figure.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Nodes {
    /// How many, at least.
    pub unseen: u64,
    /// Their names, where known.
    pub unseen_names: Vec<String>,
}

/// A report of another node that is on that node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeftReport {
    /// The node.
    pub node: String,
    /// The file there, else its directory.
    pub path: String,
    /// The node's agent said so; else there may be no report.
    pub is_certain: bool,
}

/// Processes by the layer that found them first. `None`: the layer was off, or could not be had.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Layers {
    /// Processes that it found first.
    pub preload: Option<u64>,
    /// Processes that it found first.
    pub wait: Option<u64>,
    /// Processes that it found first.
    pub subreaper: Option<u64>,
    /// Processes that it found first.
    pub scan: Option<u64>,
    /// Processes that it found first.
    pub connector: Option<u64>,
}

/// Processes by what is known of their peak RSS, as `Quality` has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Peaks {
    /// Processes whose peak RSS is known this well.
    pub exact: u64,
    /// Processes whose peak RSS is known this well.
    pub sampled: u64,
    /// Processes whose peak RSS is known this well.
    pub bound: u64,
    /// Processes whose peak RSS is known this well.
    pub unknown: u64,
}
