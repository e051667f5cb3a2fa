//! The cgroups of a run, as the launcher hands them to its collectors.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Counts the processes that the kernel killed in a group since memory ran out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OomCounter {
    pub(crate) file: PathBuf,
    /// The count at the session's begin.
    pub(crate) before: u64,
}

/// A v2 group for one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCgroup {
    /// Where we are.
    pub(crate) home: PathBuf,
    /// The command's group.
    pub(crate) dir: PathBuf,
    /// The launcher's, if it had to step aside.
    pub(crate) aside: Option<PathBuf>,
    /// Controllers that were switched on for it, and are off again without it.
    pub(crate) switched_on: Vec<String>,
    /// Why it has not all of them.
    pub(crate) without: Vec<String>,
}
