//! Where the output of a subcommand goes: to stdout, or to the file of `-o`.

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use gpu_track_collector::model::style::Output;
use gpu_track_collector::{output_at, write_report};

use crate::cli::UsageError;
use crate::console;

/// Finds the place that `-o` names. Without `-o`, and for `-`, that is stdout. To be called before anything is read, so that no work is
/// done for a result that can't be written.
///
/// # Errors
/// If `-o` names a directory, or a file that can't be written.
pub(super) fn find(output: Option<&Path>) -> Result<Output, UsageError> {
    let Some(path) = output.filter(|path| *path != OsStr::new("-")) else { return Ok(Output::Stdout) };
    if path.is_dir() {
        return Err(UsageError::of_file("--output", path, "is a directory: name a file in it"));
    }
    output_at(path)
        .map_err(|error| UsageError::of_file("--output", path, format_args!("cannot be written: {error}")))
}

/// Writes a text there, and returns the exit status. If writing fails, a line on stderr says so.
pub(super) fn write(place: &Output, text: &str) -> ExitCode {
    if *place == Output::Stdout {
        return console::print(text);
    }
    match write_report(place, text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => console::failure(format_args!("cannot write to {place}: {error}")),
    }
}
