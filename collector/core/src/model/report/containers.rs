//! The containers that a daemon ran for calls of the tree.

use serde::{Deserialize, Serialize};

use crate::named;

/// What a container used that a call of the tree had a daemon run, by its cgroup.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContainerUsage {
    /// The client, such as `docker`.
    pub client: String,
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: String,
    /// Its image.
    pub image: String,
    /// How it is known to be of the call.
    pub certainty: ContainerCertainty,
    /// Its processes are in the tree (`--containers`). Else they are in no other figure.
    pub in_tree: bool,
    /// When it was started, seconds after the command's start.
    pub start_s: Option<f64>,
    /// From then to its end, or to the end of the run, seconds.
    pub wall_s: Option<f64>,
    /// CPU time of its cgroup, its start by the runtime included, seconds.
    pub cpu_s: Option<f64>,
    /// Largest memory that its cgroup was charged for, page cache included, bytes.
    pub peak_memory_bytes: Option<u64>,
    /// Exit code of its first process; `None`: it runs, or the daemon did not tell.
    pub exit_code: Option<i64>,
    /// The kernel killed a process in it for want of memory; `None`: nothing says so, and its cgroup was not read at its end.
    pub oom_killed: Option<bool>,
    /// Why a figure is missing, or is no more than a bound.
    pub reason: Option<String>,
    /// Its node, in a merged report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

named! {
    /// How a container is known to be of a call.
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum ContainerCertainty {
        /// By a name or an id.
        Certain = "certain",
        /// By image and time.
        Matched = "matched",
    }
}
