//! Where the output of a subcommand goes: to stdout, or to the file of `-o`.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use gpu_track_collector::model::style::Output;
use gpu_track_collector::output_at;
use gpu_track_collector::report::sub_track::json;
use serde::Serialize;

use crate::cli::UsageError;
use crate::console;

/// The option that says where an output goes.
#[derive(Debug, Args)]
pub(super) struct OutputArg {
    /// Write to FILE instead of stdout
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
}

impl OutputArg {
    /// Finds the place that `-o` names. Without `-o`, and for `-`, that is stdout. To be called before anything is read, so that no
    /// work is done for a result that can't be written.
    ///
    /// # Errors
    /// If `-o` names a directory, or a file that can't be written.
    pub(super) fn find(&self) -> Result<Output, UsageError> {
        let path = self.output.as_deref().filter(|path| *path != OsStr::new("-"));
        let Some(path) = path else { return Ok(Output::Stdout) };
        if path.is_dir() {
            return Err(UsageError::of_file("--output", path, "is a directory: name a file in it"));
        }
        output_at(path).map_err(|error| {
            UsageError::of_file("--output", path, format_args!("cannot be written: {error}"))
        })
    }

    /// What follows the last dot of the file's name.
    pub(super) fn extension(&self) -> Option<&str> {
        self.output.as_deref()?.extension()?.to_str()
    }
}

/// The form for programs, and the end of its files' names.
const JSON: &str = "json";

/// The options of `sub-track` that say where an analysis or a comparison goes, and in which form.
#[derive(Debug, Args)]
pub(super) struct PlaceArgs {
    #[command(flatten)]
    output: OutputArg,

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
    /// Finds the place that the options name, as [`OutputArg::find`] does.
    ///
    /// # Errors
    /// As there.
    pub(super) fn find(&self) -> Result<Place, UsageError> {
        let is_json = self.format.as_deref().or(self.output.extension()) == Some(JSON);
        Ok(Place { output: self.output.find()?, is_json })
    }
}

impl Place {
    /// Writes `value` as JSON, or as what `text` makes of it, and returns the exit status. As with gpu_tracker, a file gets no newline at
    /// its end, and stdout gets one. If writing fails, a line on stderr says so.
    pub(super) fn write<V: Serialize>(&self, value: &V, text: impl FnOnce(&V) -> String) -> ExitCode {
        let mut content = if self.is_json { json(value) } else { text(value) };
        if self.output == Output::Stdout {
            content.push('\n');
        }
        console::write([(&self.output, content)])
    }
}
