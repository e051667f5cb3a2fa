//! Where an analysis or a comparison goes, and in which form.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use gpu_track_collector::model::style::Output;
use gpu_track_collector::report::sub_track::json;
use serde::Serialize;

use super::super::place;
use crate::cli::UsageError;

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
    /// Finds the place that the options name. To be called before anything is read, so that no work is done for a result that can't
    /// be written.
    ///
    /// # Errors
    /// If `-o` names a directory, or a file that can't be written.
    pub(super) fn find(&self) -> Result<Place, UsageError> {
        let output = place::find(self.output.as_deref())?;
        let extension = self.output.as_deref().and_then(|path| path.extension()?.to_str());
        let is_json = self.format.as_deref().or(extension) == Some(JSON);
        Ok(Place { output, is_json })
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
        place::write(&self.output, &content)
    }
}
