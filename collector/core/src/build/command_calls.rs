//! What each command passed by read and write calls.

use super::Inputs;
use super::io::calls_of_run;
use crate::model::io_calls::IoCalls;
use crate::model::quality::Quality;
use crate::model::report::{CommandCalls, CommandUsage, OTHER_COMMANDS, Stage};
use crate::run::calls_by_command::CommandSums;

/// Why the figures of some commands are bounds where the run's sum is known.
const MIXED: &str = "what processes did between two readings can't all be told apart";
/// Why those of [`OTHER_COMMANDS`] are unknown.
const TOO_MANY: &str = "there were too many commands: (other) has no figures";

/// Adds to each command what its processes passed by calls. Also returns why some of these figures are bounds or unknown.
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
    let doubt = doubt.filter(|_| !commands.is_empty());
    let reason = doubt.or_else(|| reason(&commands).map(str::to_owned));
    (commands, reason)
}

/// Why some figures are not exact although the run's sum is known. `None`: all are.
fn reason(commands: &[CommandUsage]) -> Option<&'static str> {
    let is_exact =
        |command: &&CommandUsage| command.calls.is_some_and(|calls| calls.quality == Quality::Exact);
    let mut inexact = commands.iter().filter(|command| !is_exact(command)).peekable();
    inexact.peek()?;
    Some(if inexact.all(|command| command.command == OTHER_COMMANDS) { TOO_MANY } else { MIXED })
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
    let is_complete = is_run_known && !sums.is_incomplete;
    let by_run = if is_run_known { sums.by_run } else { IoCalls::default() };
    let at_least = sums.by_readings.plus(by_run);
    if !is_complete && at_least == IoCalls::default() {
        return CommandCalls::default();
    }
    let (calls, quality) = match sums.at_most {
        _ if !is_complete => (at_least, Quality::Sampled),
        at_most if at_most == IoCalls::default() => (at_least, Quality::Exact),
        at_most => (at_least.plus(at_most), Quality::Bound),
    };
    CommandCalls {
        read_call_bytes: Some(calls.read_bytes),
        write_call_bytes: Some(calls.write_bytes),
        read_calls: Some(calls.reads),
        write_calls: Some(calls.writes),
        quality,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(read_bytes: u64) -> IoCalls {
        IoCalls { read_bytes, ..IoCalls::default() }
    }

    fn command(name: &str, quality: Quality) -> CommandUsage {
        CommandUsage {
            command: name.to_owned(),
            count: 1,
            cpu_s: None,
            peak_rss_bytes: None,
            wall_s: 0.0,
            calls: Some(CommandCalls { quality, ..CommandCalls::default() }),
            gpu: None,
        }
    }

    // Requirement: IO-59
    #[test]
    fn what_may_be_anothers_makes_an_upper_bound_and_is_in_no_lower_one() {
        let sums = CommandSums {
            by_readings: bytes(1),
            by_run: bytes(10),
            at_most: bytes(100),
            is_incomplete: false,
        };
        let of = |sums, is_run_known| {
            let calls = known(sums, is_run_known);
            (calls.read_call_bytes, calls.quality)
        };
        assert_eq!(of(sums, true), (Some(111), Quality::Bound));
        assert_eq!(of(sums, false), (Some(1), Quality::Sampled));
        assert_eq!(of(CommandSums { is_incomplete: true, ..sums }, true), (Some(11), Quality::Sampled));
        assert_eq!(of(CommandSums { at_most: bytes(0), ..sums }, true), (Some(11), Quality::Exact));
        let none = CommandSums { at_most: bytes(100), is_incomplete: true, ..CommandSums::default() };
        assert_eq!(of(none, true), (None, Quality::Unknown));
    }

    #[test]
    fn sum_of_other_commands_has_a_reason_of_its_own() {
        let (exact, other) = (command("cc1", Quality::Exact), command(OTHER_COMMANDS, Quality::Unknown));
        assert_eq!(reason(std::slice::from_ref(&exact)), None);
        assert_eq!(reason(&[exact, other.clone()]), Some(TOO_MANY));
        assert_eq!(reason(&[command("dd", Quality::Sampled), other]), Some(MIXED));
    }
}
