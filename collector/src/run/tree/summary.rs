//! The final figures of a process.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::process::Bounds;
use super::rusage::Rusage;
use crate::model::ids::{FoundBy, ProcessId};
use crate::model::quality::Quality;
use crate::model::report::Exit;

/// RSS of single processes, bytes: lower bounds of what all held at that time. 0: nothing is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownRss {
    /// The process's own.
    pub own: u64,
    /// The part of it that a fork child may share with its parent.
    pub copied: u64,
    /// A descendant's.
    pub below: u64,
    /// Either of the two: it is not known which.
    pub either: u64,
}

/// What the run keeps of a process whose figures are final.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProcessSummary {
    /// Its id in this run.
    pub id: ProcessId,
    /// Its start, CLOCK_MONOTONIC nanoseconds.
    pub start_ns: u64,
    /// Its pid in the launcher's namespace, where that is known.
    pub host_pid: Option<u32>,
    /// Its pid in its own namespace.
    pub own_pid: u32,
    /// The first of these two that is known.
    pub pid: u32,
    /// Its parent's pid.
    pub parent_pid: Option<u32>,
    /// It is the command's first process.
    pub is_main: bool,
    /// It was alive at the end of the run.
    pub is_still_running: bool,
    /// Command name.
    pub command: Arc<str>,
    /// Arguments, where known.
    pub args: Option<Vec<String>>,
    /// What it used itself.
    pub own: Rusage,
    /// How that is known.
    pub quality: Quality,
    /// Its peak RSS, bytes.
    pub peak_rss_bytes: Option<u64>,
    /// How that is known.
    pub peak_quality: Quality,
    /// RSS that it, or a process below it, is known to have had.
    pub known_rss: KnownRss,
    /// The tree's RAM lacks its memory.
    pub is_ram_missing: bool,
    /// From start to end, nanoseconds.
    pub wall_ns: u64,
    /// How it ended.
    pub exit: Exit,
    /// How close it came to its resource limits.
    pub(crate) bounds: Bounds,
    /// It wrote a record itself.
    pub has_record: bool,
    /// Its last program ended without an EXIT record.
    pub ended_without_exit_record: bool,
    /// The layer that found it first.
    pub found_by: FoundBy,
    /// It carries the session and is no descendant.
    pub joined: bool,
    /// Its executable, if that has no dynamic loader.
    pub static_executable: Option<String>,
    /// CPU time of waited-for children that no source knows, microseconds.
    pub unattributed_us: u64,
}

impl ProcessSummary {
    /// Its end, CLOCK_MONOTONIC nanoseconds.
    pub(crate) fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.wall_ns)
    }

    /// The largest part of its limit of address space that a sample saw it use; 0 without a limit.
    pub(crate) fn address_space_used(&self) -> f64 {
        let limit = self.bounds.limits.address_space_bytes.filter(|limit| *limit > 0);
        limit.map_or(0.0, |limit| self.bounds.peak_virtual_bytes as f64 / limit as f64)
    }
}
