//! Runs the commands of a study one after another, and takes the signals that end it.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use libc::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::process::main_process::MainProcess;
use crate::process::signals::{self, SignalSet};
use crate::process::spawn::InheritedState;

/// How a command ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// By itself, with this wait status.
    With(ExitStatus),
    /// The user or a batch system ended the study by this signal, and the command has ended, too.
    Stopped(i32),
}

/// Runs commands. While it lives, signals that end the study are blocked, and taken by [`Runner::run`] and [`Runner::stopped`].
pub(super) struct Runner {
    inherited: InheritedState,
    /// The signals that end the study, and SIGCHLD.
    taken: SignalSet,
}

impl Runner {
    /// Blocks the signals that this takes from now on.
    pub(super) fn new() -> Self {
        let taken = signals::set(&[SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM]);
        Self { inherited: InheritedState::replace(&taken), taken }
    }

    /// Runs a command to its end. A signal that ends the study is passed on to the command, and the result has the first one. A
    /// signal of the terminal, which has no sender, is not passed on: the terminal has sent it to the command, too. If a signal
    /// that ends the study is pending already, the command is not started.
    ///
    /// # Errors
    /// If the command can't be executed.
    pub(super) fn run(&self, command: &mut Command) -> io::Result<Ended> {
        if let Some(signal) = self.stopped(Duration::ZERO) {
            return Ok(Ended::Stopped(signal));
        }
        let inherited = self.inherited;
        // SAFETY: what the closure calls is async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                inherited.restore_signals();
                Ok(())
            });
        }
        let mut child = command.spawn()?;
        let mut stopped = None;
        loop {
            // SIGCHLD is blocked. If the child ends after this check, the signal stays pending for the wait below.
            if let Some(status) = child.try_wait()? {
                return Ok(stopped.map_or(Ended::With(status), Ended::Stopped));
            }
            let Some(received) = signals::wait(&self.taken, None)?.filter(|taken| taken.signal != SIGCHLD)
            else {
                continue;
            };
            stopped.get_or_insert(received.signal);
            if received.sender.is_some() {
                MainProcess { pid: child.id() }.send(received.signal);
            }
        }
    }

    /// Waits for a signal that ends the study, up to `timeout`. `None`: no such signal came.
    pub(super) fn stopped(&self, timeout: Duration) -> Option<i32> {
        loop {
            let received = signals::wait(&self.taken, Some(timeout)).ok().flatten()?;
            // The SIGCHLD of the last command can be pending still, because `try_wait` saw the command's end without it.
            if received.signal != SIGCHLD {
                return Some(received.signal);
            }
        }
    }
}

impl Drop for Runner {
    /// Lets signals end this process again.
    fn drop(&mut self) {
        self.inherited.unblock();
    }
}
