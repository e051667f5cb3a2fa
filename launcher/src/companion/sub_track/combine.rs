//! `gpu-track sub-track combine`: joins the sub-tracking files of several processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgAction, Args, ValueHint};
use gpu_track_collector::combine_sub_tracking;
use gpu_track_collector::model::sorting::Sorting;

use crate::cli::UsageError;
use crate::console::message;

/// The arguments of `gpu-track sub-track combine`.
#[derive(Debug, Args)]
pub(super) struct CombineArguments {
    /// The file to write, .csv or .sqlite as those of -p. It must not exist
    #[arg(long, value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    stf: PathBuf,

    /// Files to join, in this order; repeatable. A single directory stands for all files in it, by their names
    #[arg(short, value_name = "FILE", required = true, num_args = 1.., action = ArgAction::Append, value_hint = ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
}

/// Joins the files of `-p`, and writes the result to the file of `--stf`.
///
/// # Errors
/// If a file can't be read or has another form, or the joined one exists or can't be written.
pub(super) fn serve(arguments: &CombineArguments) -> Result<ExitCode, UsageError> {
    let files = match &arguments.paths[..] {
        [directory] if directory.is_dir() => files_in(directory)?,
        files => files.to_vec(),
    };
    let combined = combine_sub_tracking(&arguments.stf, &files).map_err(UsageError::new)?;
    combined.notes.iter().for_each(message);
    Ok(ExitCode::SUCCESS)
}

/// Lists the entries of a directory in the order of their names.
///
/// # Errors
/// If it can't be read, or is empty.
fn files_in(directory: &Path) -> Result<Vec<PathBuf>, UsageError> {
    let unreadable = |error| UsageError::of_file("-p", directory, format_args!("cannot be read: {error}"));
    let entries = fs::read_dir(directory).map_err(unreadable)?;
    let mut files: Vec<PathBuf> =
        entries.map(|entry| Ok(entry?.path())).collect::<Result<_, _>>().map_err(unreadable)?;
    if files.is_empty() {
        return Err(UsageError::of_file("-p", directory, "has no files"));
    }
    files.order_by(Ord::cmp);
    Ok(files)
}
