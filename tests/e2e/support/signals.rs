//! Signals as a login shell leaves them, for the programs that tests start.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Signals that no process may change.
const FIXED: [i32; 2] = [libc::SIGKILL, libc::SIGSTOP];

/// Lets a command start with the default action of every signal that this process ignores. Ignored signals are inherited:
/// nohup, a script's `trap ''`, and a script's background job start the tests with some.
pub fn with_default_signals(command: &mut Command) -> &mut Command {
    // SAFETY: sigaction is async-signal-safe; nothing else is called.
    unsafe {
        command.pre_exec(|| {
            for signal in (1..=libc::SIGRTMAX()).filter(|signal| !FIXED.contains(signal)) {
                let mut action: libc::sigaction = std::mem::zeroed();
                let is_known = libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0;
                if is_known && action.sa_sigaction == libc::SIG_IGN {
                    action.sa_sigaction = libc::SIG_DFL;
                    libc::sigaction(signal, &raw const action, std::ptr::null_mut());
                }
            }
            Ok(())
        })
    }
}
