//! The command's first process. To a shell, the launcher is the job, in place of this process. The launcher hands signals on to it,
//! and both stop and continue together.

use std::fs::File;

use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;

use crate::process::reap;

/// A child that is not reaped yet, so no other process has its pid.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MainProcess {
    pub(crate) pid: u32,
}

impl MainProcess {
    /// Stops the launcher after `signal` has stopped the command (Ctrl-Z), because the shell waits for the launcher to stop. When
    /// the shell continues the launcher, this continues the command. A SIGSTOP outside a foreground job does nothing.
    pub(crate) fn stop_with_it(self, signal: i32) {
        let is_job_control = matches!(signal, libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU);
        // Some programs handle SIGTSTP and then send SIGSTOP to themselves. Outside a foreground job, the sender of a SIGSTOP will
        // continue only the command, so a stopped launcher would stay stopped.
        if is_job_control || (signal == libc::SIGSTOP && is_foreground()) {
            // SAFETY: raise has no preconditions; SIGSTOP can't be blocked, so this returns after a SIGCONT.
            unsafe { libc::raise(libc::SIGSTOP) };
            // A shell continues the whole process group. On a busy machine, the next Ctrl-Z can have stopped the command by now.
            if !reap::has_gone_on(self.pid) {
                self.send(libc::SIGCONT);
            }
        }
    }

    /// Sends the process a signal. The kernel may refuse that if the process has changed its user. The error is ignored.
    pub(crate) fn send(self, signal: i32) {
        // SAFETY: the pid is that of a child.
        unsafe { libc::kill(self.pid.cast_signed(), signal) };
    }
}

/// Whether the launcher belongs to the foreground process group of its terminal.
fn is_foreground() -> bool {
    let Ok(terminal) = File::open("/dev/tty") else { return false };
    tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp())
}
