//! What each command passed by read and write calls.

use super::Inputs;
use super::io::calls_of_run;
use crate::model::io_calls::IoCalls;
use crate::model::quality::Quality;
use crate::model::report::{CommandCalls, CommandUsage, Stage};
use crate::run::calls_by_command::CommandSums;

/// Why the figures of some commands are lower bounds where the run's sum is known.
const ENDED_BETWEEN: &str = "processes of several commands ended between two readings: \
                             what they did since the one before has no command";

/// Adds to each command what its processes passed by calls. Also returns why some of these figures are lower bounds or unknown.
pub(super) fn with_calls(
    inputs: &Inputs,
    mut commands: Vec<CommandUsage>,
) -> (Vec<CommandUsage>, Option<String>) {
    let doubt = doubt(inputs);
    // After an attach, the readings have what the processes did before.
    let is_read = inputs.config.attached.is_none();
    for command in &mut commands {
        let sums = inputs.run.calls.of(&command.command).filter(|_| is_read);
        command.calls = Some(sums.map(|sums| known(sums, doubt.is_none())).unwrap_or_default());
    }
    let is_exact =
        |command: &CommandUsage| command.calls.is_some_and(|calls| calls.quality == Quality::Exact);
    let reason = doubt.unwrap_or_else(|| ENDED_BETWEEN.to_owned());
    let reason = Some(reason).filter(|_| !commands.iter().all(is_exact));
    (commands, reason)
}

/// Why the run's sum does not tell what short processes did. `None`: it does.
fn doubt(inputs: &Inputs) -> Option<String> {
    let exit = inputs.end.command_exit;
    // The launcher tells at the end what its helpers have added to the sum meanwhile, and a killed collector is one.
    let helpers = exit.map(|exit| exit.helper_calls).unwrap_or_default();
    let is_mixed = helpers != IoCalls::default() || inputs.config.restarts > 0;
    let mixed = || "helpers of gpu-track-run were in the kernel's counts".to_owned();
    let so_far = || "the run is not over".to_owned();
    let reason = calls_of_run(inputs).err();
    reason.or_else(|| is_mixed.then(mixed)).or_else(|| (inputs.end.stage != Stage::Over).then(so_far))
}

/// The figures of a command. `is_run_known`: the run's sum tells what no reading has.
fn known(sums: CommandSums, is_run_known: bool) -> CommandCalls {
    let is_exact = is_run_known && !sums.is_incomplete;
    let by_run = if is_run_known { sums.by_run } else { IoCalls::default() };
    let calls = sums.by_readings.plus(by_run);
    if !is_exact && calls == IoCalls::default() {
        return CommandCalls::default();
    }
    CommandCalls {
        read_call_bytes: Some(calls.read_bytes),
        write_call_bytes: Some(calls.write_bytes),
        read_calls: Some(calls.reads),
        write_calls: Some(calls.writes),
        quality: if is_exact { Quality::Exact } else { Quality::Sampled },
    }
}
