//! `gpu-track report`: shows a report that was written, or the newest one that was kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueHint};
use gpu_track_collector::{ReportConfig, Style};

use crate::cli::{ReportArgs, ReportPlaces, UsageError};
use crate::{last, show};

/// The arguments of `gpu-track report`.
#[derive(Debug, Args)]
pub(super) struct ReportArguments {
    /// A report in JSON [default: the newest that was kept]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,

    #[command(flatten)]
    places: ReportPlaces,
    #[command(flatten)]
    report: ReportArgs,
}

/// Shows a report on stdout, or writes it where `-o` says.
///
/// # Errors
/// If there is no such file, or the report can't be written to its place.
pub(super) fn serve(arguments: ReportArguments) -> Result<ExitCode, UsageError> {
    let style: Style = ReportConfig::from(arguments.report).style;
    match &arguments.file {
        None => last::show(&arguments.places, style),
        Some(path) => of_file(path, &arguments.places, style),
    }
}

/// Shows the report in a file.
fn of_file(path: &Path, places: &ReportPlaces, style: Style) -> Result<ExitCode, UsageError> {
    let problem = |problem: String| UsageError::new(format_args!("\"{}\" {problem}", path.display()));
    let json = fs::read_to_string(path).map_err(|error| problem(format!("cannot be read: {error}")))?;
    show::report(&json, path.display(), places, style)
}
