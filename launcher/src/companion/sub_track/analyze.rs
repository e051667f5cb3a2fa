//! `gpu-track sub-track analyze`: what each code block used, from a tracking file and a sub-tracking file.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use gpu_track_collector::analyze_code_blocks;

use super::place::PlaceArgs;
use super::text;
use crate::cli::UsageError;
use crate::console::message;

/// The arguments of `gpu-track sub-track analyze`.
#[derive(Debug, Args)]
pub(super) struct AnalyzeArguments {
    /// A tracking file, .csv or .sqlite: what --tf of gpu-track-run or gpu_tracker wrote
    #[arg(long, value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    tf: PathBuf,

    /// A sub-tracking file, .csv or .sqlite, with the starts and stops of code blocks: what gpu_tracker's SubTracker wrote
    #[arg(long, value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    stf: PathBuf,

    #[command(flatten)]
    place: PlaceArgs,
}

/// Writes what each code block used.
///
/// # Errors
/// If a file can't be read, or the analysis can't be written to its place.
pub(super) fn serve(arguments: &AnalyzeArguments) -> Result<ExitCode, UsageError> {
    let place = arguments.place.find()?;
    let analyzed = analyze_code_blocks(&arguments.tf, &arguments.stf).map_err(UsageError::new)?;
    analyzed.notes.iter().for_each(message);
    Ok(place.write(&analyzed.value, text))
}
