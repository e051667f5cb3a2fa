//! The processes that crashed, whether the command failed or not.

use serde::{Deserialize, Serialize};

/// Processes of one command name that one signal ended: for a fault of their own, or (SIGKILL) for lack of memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crash {
    /// The command name. `None`: the kernel killed some of several processes, and it is not known which.
    pub command: Option<String>,
    /// The signal's number.
    pub signal: i32,
    /// Its name, such as `SIGSEGV`.
    pub signal_name: String,
    /// How many processes.
    pub count: u64,
    /// A build system made the program to test whether it runs, so its crash is a result of the test and no fault.
    pub is_probe: bool,
    /// Where they were: the first ones of a merged report. Empty in a report of one node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<CrashPlace>,
}

/// Where a process crashed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashPlace {
    /// The node.
    pub node: String,
    /// The rank, if the process was the first one of a rank.
    pub rank: Option<u32>,
}
