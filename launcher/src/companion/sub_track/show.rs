//! `gpu-track sub-track show`: an analysis that was kept as JSON, in either form.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};

use super::compare::read_analysis;
use super::place::PlaceArgs;
use super::text;
use crate::cli::UsageError;

/// The arguments of `gpu-track sub-track show`.
#[derive(Debug, Args)]
pub(super) struct ShowArguments {
    /// An analysis in JSON, as `analyze -f json` writes it
    #[arg(value_hint = ValueHint::FilePath)]
    file: PathBuf,

    #[command(flatten)]
    place: PlaceArgs,
}

/// Writes the analysis. `line`: this program's command line.
///
/// # Errors
/// If the file can't be read, or the analysis can't be written to its place.
pub(super) fn serve(arguments: &ShowArguments, line: &[OsString]) -> Result<ExitCode, UsageError> {
    let place = arguments.place.find()?;
    Ok(place.write(&read_analysis(&arguments.file, line)?, text))
}
