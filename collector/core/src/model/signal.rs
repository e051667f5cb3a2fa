//! Signals: their names, and those that other processes sent.

use serde::{Deserialize, Serialize};

/// What the launcher tells of a signal that a process sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalTold {
    /// Its number.
    pub signal: i32,
    /// When the launcher took it, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// The sender's pid, in the launcher's pid namespace; 0: in one above.
    pub sender_pid: u32,
    /// Its user.
    pub sender_uid: u32,
}

/// A signal that another process sent to the launcher alone, which passed it on to the command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalReceived {
    /// Its number.
    pub signal: i32,
    /// When the launcher took it, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// The process that sent it.
    pub sender: Sender,
    /// Its arguments; `None` if it was gone before they could be read.
    pub sender_args: Option<Vec<String>>,
}

/// A process that sent a signal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sender {
    /// Its pid; `None`: in a pid namespace above.
    pub pid: Option<u32>,
    /// Its user.
    pub uid: u32,
    /// Its name (/proc/PID/comm); `None`: it was gone.
    pub command: Option<String>,
}

/// The names as in signal(7), in the order of the numbers of x86-64, AArch64 and most other architectures, from 1 on.
const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// The number of a signal, by its name in capitals without `SIG`. `None`: no signal has this name.
pub fn signal_number(name: &str) -> Option<i32> {
    let at = NAMES.iter().position(|known| *known == name)?;
    i32::try_from(at + 1).ok()
}

/// A signal's name as `SIGTERM`, or `signal 34` where the number has no name.
pub fn signal_name(signal: i32) -> String {
    let name = usize::try_from(signal).ok().and_then(|n| NAMES.get(n.checked_sub(1)?));
    name.map_or_else(|| format!("signal {signal}"), |name| format!("SIG{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_their_names() {
        for (signal, name) in [
            (libc::SIGHUP, "SIGHUP"),
            (libc::SIGKILL, "SIGKILL"),
            (libc::SIGTERM, "SIGTERM"),
            (libc::SIGCHLD, "SIGCHLD"),
            (libc::SIGXCPU, "SIGXCPU"),
            (libc::SIGSYS, "SIGSYS"),
            (40, "signal 40"),
            (0, "signal 0"),
            (-1, "signal -1"),
        ] {
            assert_eq!(signal_name(signal), name);
        }
    }
}
