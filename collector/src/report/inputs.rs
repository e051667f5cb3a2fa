//! What a report is built from. Whatever had to be read for it is in here, so that building does no I/O.

use crate::model::config::Config;
use crate::model::host::{CommandExit, HostInfo};
use crate::model::report::{Cgroup, Stage};
use crate::run::RunState;

/// What a report is built from.
#[derive(Debug, Clone)]
pub(crate) struct Inputs<'a> {
    /// What the launcher asked for.
    pub(crate) config: &'a Config,
    /// The machine.
    pub(crate) host_info: &'a HostInfo,
    /// The run state, with all processes finalized.
    pub(crate) run: &'a RunState,
    /// CLOCK_MONOTONIC of the run's end, or of now, nanoseconds.
    pub(crate) at_ns: u64,
    /// The command's wait status.
    pub(crate) status: Option<i32>,
    /// How the command ended; `None` while it runs, or if the launcher was killed.
    pub(crate) command_exit: Option<CommandExit>,
    /// How far the run is.
    pub(crate) stage: Stage,
    /// Event records that were lost because ring and overflow file were full.
    pub(crate) dropped_events: u64,
    /// Whether the segment's file was truncated.
    pub(crate) is_truncated: bool,
    /// Out-of-memory kills in the launcher's cgroup since the start; `None` if it has no counter.
    pub(crate) oom_kills: Option<u64>,
    /// The kernel's figures of the command's own cgroup, if one was made.
    pub(crate) cgroup: Option<Cgroup>,
}
