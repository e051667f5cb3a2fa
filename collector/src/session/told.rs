//! Turns the launcher's messages into observations, and into how the run ended.

use crate::model::config::{Config, Message};
use crate::model::observation::Observation;
use crate::model::run_end::CommandExit;
use crate::sources::signal_sender;
use crate::store::replay_journal::JournaledRun;
use crate::sys::proc_fs::ProcRoot;

/// The base name of the command's program, or of the attached process's.
pub(super) fn command_name(config: &Config) -> String {
    let program = config.command.first().map_or("", String::as_str);
    program.rsplit('/').next().unwrap_or(program).to_owned()
}

/// What the launcher has said of the end of the run.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// The command's exit. `None`: the run has not ended, or the launcher is gone.
    pub(super) exit: Option<CommandExit>,
    /// The command could not be executed.
    pub(super) is_cancelled: bool,
}

impl Told {
    /// Takes in a message of the launcher: applies it to the run, or notes that the run ended. The sender of a signal is looked up
    /// in `root`.
    pub(super) fn take_in(
        &mut self,
        message: &Message,
        config: &Config,
        root: &ProcRoot,
        run: &mut JournaledRun,
    ) {
        match *message {
            Message::Started { pid, monotonic_ns: start_ns } => {
                run.apply_now(Observation::CommandStarted { pid, start_ns, command: command_name(config) });
            }
            Message::Signalled(told) => {
                run.apply_now(Observation::SignalReceived(signal_sender::received(root, told)));
            }
            Message::WaitingForTree { .. }
            | Message::OrderAnswered { .. }
            | Message::TreeEnded(_)
            | Message::AlertCommandFailed { .. } => run.apply_now(Observation::Told(*message)),
            // The session itself obeys it.
            Message::NodesJoin { .. } | Message::NodesReady { .. } | Message::NodesStayAway => {}
            Message::Cancelled => self.is_cancelled = true,
            Message::Ended(exit) => self.exit = Some(exit),
        }
    }
}
