//! What the report says of a run that attached to a process.

use super::Inputs;
use crate::model::command::base_name;
use crate::model::report::{AttachedTo, Exit, Stage};
use crate::model::timestamp;
use crate::run::RunState;

/// The report's entry on the process that the run attached to. `None`: the launcher started a command instead.
pub(super) fn attached(inputs: &Inputs) -> Option<AttachedTo> {
    let process = inputs.config.attached?;
    let run = inputs.run;
    let main = run.totals.main_process.as_ref();
    Some(AttachedTo {
        pid: process.pid,
        command: match (main, inputs.config.command.first()) {
            (Some(main), _) => main.command.to_string(),
            // The run did not track it: the base name of its program by its arguments, or empty without any.
            (None, program) => program.map_or("", |program| base_name(program)).to_owned(),
        },
        since: timestamp::representable(inputs.config.start.date(run.start_ns)),
        ran_before_s: process.before.at_ns.saturating_sub(process.start_ns) as f64 / 1e9,
        // Without the launcher's report, the process runs on as long as no source has seen its end.
        runs_on: match inputs.end.command_exit {
            Some(exit) => exit.runs_on,
            None => main.is_none_or(|main| main.exit.is_none()),
        },
    })
}

/// Why the block I/O of a run that attached to a process is not known.
pub(super) fn why_no_io(run: &RunState) -> String {
    match run.tree.io_before.and_then(|before| before.unread) {
        Some(pid) => format!("what process {pid} had read and written before the attach could not be read"),
        None => "it was not read".to_owned(),
    }
}

/// Why neither the exit code nor the signal of an attached process is known at the run's end. `None`: one of them is, the run is not
/// over, or the launcher started a command.
pub(super) fn exit_reason(inputs: &Inputs, exit: Exit) -> Option<String> {
    let attached = attached(inputs)?;
    let is_unknown = exit == Exit::default() && inputs.end.stage == Stage::Over;
    let reason = if inputs.run.totals.main_process.is_none() {
        "it was not tracked"
    } else if attached.runs_on {
        "it still ran when tracking ended"
    } else {
        "it was not gpu-track-run's child, and the kernel did not tell"
    };
    is_unknown.then(|| reason.to_owned())
}
