//! What a report is built from. Whatever had to be read for it is in here, so that building does no I/O.

use crate::model::config::Config;
use crate::model::host_info::HostInfo;
use crate::model::run_end::RunEnd;
use crate::run::RunState;

/// What a report is built from.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// What the user asked for, and what the launcher found.
    pub config: &'a Config,
    /// The machine.
    pub host_info: &'a HostInfo,
    /// The run state, with the figures of all processes final.
    pub run: &'a RunState,
    /// How the run ended, or how far it is.
    pub end: &'a RunEnd,
}
