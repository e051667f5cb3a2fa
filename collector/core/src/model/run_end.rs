//! How the command and its run ended.

use serde::{Deserialize, Serialize};

use super::cgroup::CgroupUse;
use super::io_calls::IoCalls;
use super::report::{DiskFull, Stage};

/// The end of the command, as the launcher reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandExit {
    /// The command's wait status. `None`: the launcher is not the parent of the process that it attached to.
    pub status: Option<i32>,
    /// Tracking of an attached process was ended, and the process runs on.
    pub runs_on: bool,
    /// With `--wait-all`: the user ended the wait while processes of the tree lived.
    pub is_wait_interrupted: bool,
    /// When the launcher saw the end, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// RUSAGE_CHILDREN of the launcher over the run, without collectors that it reaped, microseconds.
    pub children_cpu_us: u64,
    /// What the launcher's helpers that it reaped, such as collectors, had passed by calls. It is in the launcher's sums.
    pub helper_calls: IoCalls,
}

/// Programs that were started without the shim by processes that carry it, by the reason.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct ShimlessPrograms {
    /// They can't see the shim, or not the segment (the shared memory that records are written to).
    pub unreachable: u64,
    /// A seccomp filter applies to them.
    pub filtered: u64,
}

/// How the run ended, or how far it is: what a report needs beside the run state.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RunEnd {
    /// CLOCK_MONOTONIC of the run's end, or of now, nanoseconds.
    pub at_ns: u64,
    /// How far the run is when its report is made.
    pub stage: Stage,
    /// What the launcher reported; `None` while the command runs, or if the launcher was killed.
    pub command_exit: Option<CommandExit>,
    /// Event records that were lost because ring and overflow file were full.
    pub dropped_events: u64,
    /// Programs that were started without the shim.
    pub shimless: ShimlessPrograms,
    /// Whether the segment's file was truncated.
    pub is_truncated: bool,
    /// What the run did in its cgroups.
    pub cgroups: CgroupUse,
    /// File systems without space that the command may write to; looked for only if it failed.
    pub full_disks: Vec<DiskFull>,
    /// If the run was not tracked: the largest RSS of a process that the launcher reaped, bytes. `None`: the run was tracked, or no
    /// process is known to have had more than the launcher.
    pub largest_rss_bytes: Option<u64>,
}

impl RunEnd {
    /// Makes the end of a run of which only the command's exit is known. `at_ns`: the run's end, CLOCK_MONOTONIC. `command_exit`:
    /// `None` while the command runs.
    pub fn of_exit(at_ns: u64, command_exit: Option<CommandExit>) -> Self {
        Self {
            at_ns,
            stage: if command_exit.is_some() { Stage::Over } else { Stage::SoFar },
            command_exit,
            ..Self::default()
        }
    }
}
