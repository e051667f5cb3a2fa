//! What the launcher itself writes to its standard streams.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

/// Writes one line for the user to stderr. `eprintln!` panics if stderr cannot be written, and then the command would
/// not run.
pub(crate) fn message(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "gpu-track-run: {text}");
}

/// Writes `text` to stdout. Errors are ignored: the reader can have closed its end (`--help | head`).
pub(crate) fn print(text: &str) -> ExitCode {
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}
