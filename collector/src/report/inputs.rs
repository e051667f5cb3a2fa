//! What a report is built from. Whatever had to be read for it is in here, so that building does no I/O.

use crate::model::config::Config;
use crate::model::host::{HostInfo, RunEnd};
use crate::run::RunState;

/// What a report is built from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inputs<'a> {
    /// What the launcher asked for.
    pub(crate) config: &'a Config,
    /// The machine.
    pub(crate) host_info: &'a HostInfo,
    /// The run state, with the figures of all processes final.
    pub(crate) run: &'a RunState,
    /// How the run ended, or how far it is.
    pub(crate) end: &'a RunEnd,
}
