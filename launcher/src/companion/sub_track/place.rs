//! Where an analysis or a comparison goes, and in which form.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use gpu_track_collector::sub_track::json;
use gpu_track_collector::{Output, output_at, write_report};
use serde::Serialize;

use crate::cli::UsageError;
use crate::console::{self, message};

/// The form for programs, and the end of its files' names.
const JSON: &str = "json";

/// The options that say where a result goes.
#[derive(Debug, Args)]
pub(super) struct PlaceArgs {
    /// Write to FILE instead of stdout
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,

    /// Format [default: json if FILE ends in .json, else text]
    #[arg(short, long, value_name = "FORMAT", value_parser = ["text", JSON])]
    format: Option<String>,
}

/// Where a result goes, and whether it is written as JSON or as text.
pub(super) struct Place {
    output: Output,
    is_json: bool,
}

impl PlaceArgs {
    /// Finds the place that the options name. To be called before anything is read, so that no work is done for a result that can't be
    /// written.
    ///
    /// # Errors
    /// If `-o` names a directory, or a file that can't be written.
    pub(super) fn find(&self) -> Result<Place, UsageError> {
        let output = match self.output.as_deref() {
            None => Output::Stdout,
            Some(path) if path == OsStr::new("-") => Output::Stdout,
            Some(path) if path.is_dir() => {
                return Err(UsageError::of_file("--output", path, "is a directory: name a file in it"));
            }
            Some(path) => output_at(path).map_err(|error| {
                UsageError::of_file("--output", path, format_args!("cannot be written: {error}"))
            })?,
        };
        let extension = self.output.as_deref().and_then(|path| path.extension()?.to_str());
        let is_json = self.format.as_deref().or(extension) == Some(JSON);
        Ok(Place { output, is_json })
    }
}

impl Place {
    /// Writes `value` as JSON, or as what `text` makes of it, and gives the exit status. As with gpu_tracker, a file gets no newline at
    /// its end, and stdout gets one. If writing fails, a line on stderr says so.
    pub(super) fn write<V: Serialize>(&self, value: &V, text: impl FnOnce(&V) -> String) -> ExitCode {
        let content = if self.is_json { json(value) } else { text(value) };
        if self.output == Output::Stdout {
            return console::print(&(content + "\n"));
        }
        match write_report(&self.output, &content) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                message(format_args!("cannot write to {}: {error}", self.output));
                ExitCode::FAILURE
            }
        }
    }
}
