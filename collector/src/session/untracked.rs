//! The report of a run that tracked nothing: its command could not be executed, or tracking could not begin.

use crate::build::{self, Inputs};
use crate::model::config::Config;
use crate::model::report::Report;
use crate::model::run_end::RunEnd;
use crate::run::RunState;
use crate::sources::host;
use crate::sys::clock;
use crate::sys::proc_fs::ProcRoot;

/// A report without figures; the configuration's warnings say why. `status`: the wait status, if the command is over.
#[must_use]
pub fn untracked(config: &Config, status: Option<i32>) -> Report {
    let host = host::of_this_machine(&ProcRoot::default());
    let run = RunState::of_run(config, &host);
    let at_ns = clock::monotonic_ns();
    let end = RunEnd::of_status(at_ns, status);
    build::report(&Inputs { config, host_info: &host, run: &run, end: &end })
}
