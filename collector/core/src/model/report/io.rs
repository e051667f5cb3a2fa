//! Block I/O, page faults and context switches: sums of the processes' rusage at their ends. Processes that are known from samples
//! only add nothing. `None`: no process's rusage is known. If the run attached to a process, block I/O and faults come from samples.

use serde::{Deserialize, Serialize};

/// Block I/O, bytes: rusage's 512-byte blocks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Io {
    /// Read from storage.
    pub read_bytes: Option<u64>,
    /// Written to storage.
    pub write_bytes: Option<u64>,
    /// Part of `write_bytes` that was truncated or removed before, bytes.
    #[serde(default)]
    pub cancelled_write_bytes: Option<u64>,
    /// Why the first two are null.
    pub reason: Option<String>,
}

/// Page faults.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Faults {
    /// A major one needs I/O.
    pub minor: Option<u64>,
    /// A major one needs I/O.
    pub major: Option<u64>,
}

/// Context switches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContextSwitches {
    /// Involuntary ones preempt the process.
    pub voluntary: Option<u64>,
    /// Involuntary ones preempt the process.
    pub involuntary: Option<u64>,
}
