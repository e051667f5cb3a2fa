//! What the report says of a run that attached to a process.

use super::Inputs;
use crate::model::report::{AttachedTo, Exit, Stage};
use crate::model::timestamp;

/// Names the process, and says since when it counts. `None`: the launcher started a command.
pub(super) fn attached(inputs: &Inputs) -> Option<AttachedTo> {
    let process = inputs.config.attached?;
    let run = inputs.run;
    let main = run.totals.main_process.as_ref();
    Some(AttachedTo {
        pid: process.pid,
        command: main.map(|main| main.command.to_string()).unwrap_or_default(),
        since: timestamp::representable(inputs.config.start.date(run.start_ns)),
        ran_before_s: process.before.at_ns.saturating_sub(process.start_ns) as f64 / 1e9,
        runs_on: main.is_none_or(|main| main.exit.is_none()),
    })
}

/// Gives how the attached process ended. Its parent is another program, so only the kernel may have told.
pub(super) fn exit(inputs: &Inputs) -> Exit {
    inputs.run.totals.main_process.as_ref().and_then(|main| main.exit).unwrap_or_default()
}

/// Gives why neither exit code nor signal is known at the run's end. `None`: one is, or the launcher started a command.
pub(super) fn exit_reason(inputs: &Inputs, exit: Exit) -> Option<String> {
    let attached = attached(inputs)?;
    let is_unknown = exit == Exit::default() && inputs.end.stage == Stage::Over;
    let reason = if attached.runs_on {
        "it still ran when tracking ended"
    } else {
        "it was not gpu-track-run's child, and the kernel did not tell"
    };
    is_unknown.then(|| reason.to_owned())
}
