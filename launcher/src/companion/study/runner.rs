//! Runs the commands of a study one after another, and takes the signals that end it.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use libc::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::main_process::MainProcess;
use crate::signals::{self, SignalSet};
use crate::spawn::InheritedState;

/// How a command ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// By itself.
    With(ExitStatus),
    /// The user or a batch system ended the study by this signal, and the command has ended, too.
    Stopped(i32),
}

/// Runs commands. While it lives, signals that end the study wait until they are taken.
pub(super) struct Runner {
    inherited: InheritedState,
    taken: SignalSet,
}

impl Runner {
    /// Begins to take signals.
    pub(super) fn new() -> Self {
        let taken = signals::of(&[SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM]);
        Self { inherited: InheritedState::replace(&taken), taken }
    }

    /// Runs a command to its end. A signal that ends the study is passed on, unless it came from the terminal, which sent it to the
    /// command, too.
    ///
    /// # Errors
    /// If it can't be executed.
    pub(super) fn run(&self, command: &mut Command) -> io::Result<Ended> {
        if let Some(signal) = self.stopped(Duration::ZERO) {
            return Ok(Ended::Stopped(signal));
        }
        let inherited = self.inherited;
        // SAFETY: what it calls is async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                inherited.restore_signals();
                Ok(())
            });
        }
        let mut child = command.spawn()?;
        let mut stopped = None;
        loop {
            // SIGCHLD is blocked, so the end of the child after this is not missed.
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

    /// Waits for a signal that ends the study, up to `timeout`. `None`: none came.
    pub(super) fn stopped(&self, timeout: Duration) -> Option<i32> {
        let received = signals::wait(&self.taken, Some(timeout)).ok().flatten()?;
        if received.signal != SIGCHLD {
            return Some(received.signal);
        }
        // SIGCHLD of the last command is still pending: `try_wait` saw its end before. It is taken, and the next one counts.
        self.stopped(timeout)
    }
}

impl Drop for Runner {
    /// Lets signals end this process again.
    fn drop(&mut self) {
        self.inherited.unblock();
    }
}
