//! Processes: the parts of this program, and others.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Ends this process by SIGALRM after a time.
pub(crate) fn end_after(time: Duration) {
    // SAFETY: no handler is set, so the signal ends the process.
    unsafe { libc::alarm(u32::try_from(time.as_secs()).unwrap_or(u32::MAX)) };
}

/// The command line of a part.
pub(crate) fn part(part: &str, arguments: &[String]) -> Vec<String> {
    let own = std::env::current_exe().unwrap_or_default().display().to_string();
    [own, format!("part:{part}")].into_iter().chain(arguments.iter().cloned()).collect()
}

/// What a command prints; `None`: it could not be started, or took longer than this.
pub(crate) fn output_within(program: &str, arguments: &[String], at_most: Duration) -> Option<Output> {
    let mut command = Command::new("timeout");
    command.arg(at_most.as_secs().to_string()).arg(program).args(arguments).stdin(Stdio::null());
    // timeout's own statuses: 124 for the time, 126 and 127 if it can't start the command.
    command.output().ok().filter(|output| !matches!(output.status.code(), Some(124 | 126 | 127)))
}

/// The numbers that a part wrote.
pub(crate) fn numbers(path: &Path) -> Vec<f64> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}
