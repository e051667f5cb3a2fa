//! `gpu-track sub-track calls`: when each call of a code block began and ended.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use gpu_track_collector::code_blocks;
use gpu_track_collector::report::sub_track::calls_text;

use super::place::PlaceArgs;
use crate::cli::UsageError;
use crate::console::message;

/// The arguments of `gpu-track sub-track calls`.
#[derive(Debug, Args)]
pub(super) struct CallsArguments {
    /// A sub-tracking file, .csv or .sqlite, with the starts and stops of code blocks
    #[arg(long, value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    stf: PathBuf,

    #[command(flatten)]
    place: PlaceArgs,
}

/// Writes the calls of all code blocks, each with its start and stop.
///
/// # Errors
/// If the file can't be read, or the list can't be written to its place.
pub(super) fn serve(arguments: &CallsArguments) -> Result<ExitCode, UsageError> {
    let place = arguments.place.find()?;
    let blocks = code_blocks(&arguments.stf).map_err(UsageError::new)?;
    blocks.notes.iter().for_each(message);
    Ok(place.write(&blocks.value.calls(), calls_text))
}
