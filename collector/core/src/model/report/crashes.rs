//! The processes that crashed, whether the command failed or not.

use serde::{Deserialize, Serialize};

/// Processes of one command name that one signal ended: for a fault of their own, or (SIGKILL) for lack of memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Crash {
    /// Command name; `None`: the kernel killed one of several.
    pub command: Option<String>,
    /// The signal.
    pub signal: i32,
    /// The signal.
    pub signal_name: String,
    /// How many processes.
    pub count: u64,
    /// It is a test program of configure or CMake.
    pub is_probe: bool,
    /// In a merged report: the first ten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<CrashPlace>,
}

/// Where a process crashed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CrashPlace {
    /// The node.
    pub node: String,
    /// The rank whose first process it was.
    pub rank: Option<u32>,
}
