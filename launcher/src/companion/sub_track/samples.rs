//! `gpu-track sub-track samples`: the samples of a database as CSV. The Python module asks for them, so that it opens no database that
//! another program made.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use gpu_track_collector::samples_of_database;

use crate::cli::UsageError;
use crate::console;

/// The arguments of `gpu-track sub-track samples`.
#[derive(Debug, Args)]
pub(super) struct SamplesArguments {
    /// A tracking file, .sqlite
    #[arg(long, value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    tf: PathBuf,
}

/// Writes the samples to stdout.
///
/// # Errors
/// If the file can't be read.
pub(super) fn serve(arguments: &SamplesArguments) -> Result<ExitCode, UsageError> {
    Ok(console::print(&samples_of_database(&arguments.tf).map_err(UsageError::new)?))
}
