//! `gpu-track sub-track`: what the code blocks of a program used. It has the commands, options and forms of gpu_tracker's
//! `sub-track`, and reads its files and ours.

mod combine;
mod compare;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use gpu_track_collector::report::sub_track::{Analysis, analysis_text, blocks_text, calls_text};
use gpu_track_collector::{analyze_code_blocks, code_blocks, samples_of_database};

use self::compare::read_analysis;
use super::place::PlaceArgs;
use crate::cli::UsageError;
use crate::console::{self, message};
use crate::name;

/// The arguments of `gpu-track sub-track`.
#[derive(Debug, Args)]
pub(super) struct SubTrackArguments {
    #[command(subcommand)]
    command: SubTrackCommand,
}

#[derive(Debug, clap::Subcommand)]
enum SubTrackCommand {
    /// Join the sub-tracking files of several processes to one
    Combine(combine::CombineArguments),
    /// Show what each code block used: RAM, GPU RAM, utilization, threads and time
    Analyze {
        /// A tracking file, .csv or .sqlite: what --tf of gpu-track-run or gpu_tracker wrote
        #[arg(long, value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
        tf: PathBuf,

        /// A sub-tracking file, .csv or .sqlite, with the starts and stops of code blocks: what gpu_tracker's SubTracker wrote
        #[arg(long, value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
        stf: PathBuf,

        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Compare analyses of several runs, block by block
    Compare(compare::CompareArguments),
    /// List the calls of each code block, with the times of their starts and stops
    Calls {
        /// A sub-tracking file, .csv or .sqlite, with the starts and stops of code blocks
        #[arg(long, value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
        stf: PathBuf,

        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Show an analysis that was written as JSON
    Show {
        /// An analysis in JSON, as `analyze -f json` writes it
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,

        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Write the samples of a database as CSV
    // The Python module asks for them, so that it opens no database that another program made.
    #[command(hide = true)]
    Samples {
        /// A tracking file, .sqlite
        #[arg(long, value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
        tf: PathBuf,
    },
}

/// Runs the command of `sub-track` that the arguments name. `line`: the words that they are made of.
///
/// # Errors
/// If a file can't be used, or the result can't be written to its place.
pub(super) fn serve(arguments: SubTrackArguments, line: &[OsString]) -> Result<ExitCode, UsageError> {
    match arguments.command {
        SubTrackCommand::Combine(arguments) => combine::serve(&arguments),
        SubTrackCommand::Analyze { tf, stf, place } => {
            let place = place.find()?;
            let analyzed = analyze_code_blocks(&tf, &stf).map_err(UsageError::new)?;
            analyzed.notes.iter().for_each(message);
            Ok(place.write(&analyzed.value, text))
        }
        SubTrackCommand::Compare(arguments) => compare::serve(arguments, line),
        SubTrackCommand::Calls { stf, place } => {
            let place = place.find()?;
            let blocks = code_blocks(&stf).map_err(UsageError::new)?;
            blocks.notes.iter().for_each(message);
            Ok(place.write(&blocks.value.calls(), calls_text))
        }
        SubTrackCommand::Show { file, place } => {
            let place = place.find()?;
            Ok(place.write(&read_analysis(&file, line)?, text))
        }
        SubTrackCommand::Samples { tf } => {
            Ok(console::print(&samples_of_database(&tf).map_err(UsageError::new)?))
        }
    }
}

/// Writes an analysis as text: a table of its blocks, and below it the text of gpu_tracker. If this program was called as
/// gpu_tracker, there is no table.
fn text(analysis: &Analysis) -> String {
    let table = if name::is_this_gpu_tracker() { String::new() } else { blocks_text(analysis) };
    table + &analysis_text(analysis)
}
