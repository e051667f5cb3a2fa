//! The command's first process, whose job the launcher stands for: it gets the launcher's signals, and both stop and continue
//! together.

use std::fs::File;

use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;

/// A child that is not reaped yet, so the pid is its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MainProcess {
    pub(crate) pid: u32,
}

impl MainProcess {
    /// Stops the launcher after the command (Ctrl-Z): the shell waits for the launcher. When the shell continues the
    /// launcher, that continues the command.
    pub(crate) fn stop_with_it(self, signal: i32) {
        let is_job_control = matches!(signal, libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU);
        // Some programs handle SIGTSTP and then send SIGSTOP to themselves. Outside a foreground job, whoever sent a
        // SIGSTOP will continue only the command, so a stopped launcher would stay stopped.
        if is_job_control || (signal == libc::SIGSTOP && is_foreground()) {
            // SAFETY: raise has no preconditions; SIGSTOP can't be blocked, so this returns after a SIGCONT.
            unsafe { libc::raise(libc::SIGSTOP) };
            self.send(libc::SIGCONT);
        }
    }

    /// Sends it a signal. If the command has changed its user, the kernel may refuse that, and nothing else can be done.
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
