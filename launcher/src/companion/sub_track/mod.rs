//! `gpu-track sub-track`: what the code blocks of a program used. It has the commands, options and forms of gpu_tracker's
//! `sub-track`, and reads its files and ours.

mod analyze;
mod calls;
mod combine;
mod compare;
mod place;
mod samples;
mod show;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use gpu_track_collector::report::sub_track::{Analysis, analysis_text, blocks_text};

use crate::cli::UsageError;
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
    Analyze(analyze::AnalyzeArguments),
    /// Compare analyses of several runs, block by block
    Compare(compare::CompareArguments),
    /// List the calls of each code block, with the times of their starts and stops
    Calls(calls::CallsArguments),
    /// Show an analysis that was written as JSON
    Show(show::ShowArguments),
    /// Write the samples of a database as CSV
    #[command(hide = true)]
    Samples(samples::SamplesArguments),
}

/// Runs the command of `sub-track` that the arguments name. `line`: the words that they are made of.
///
/// # Errors
/// If a file can't be used, or the result can't be written to its place.
pub(super) fn serve(arguments: SubTrackArguments, line: &[OsString]) -> Result<ExitCode, UsageError> {
    match arguments.command {
        SubTrackCommand::Combine(arguments) => combine::serve(&arguments),
        SubTrackCommand::Analyze(arguments) => analyze::serve(&arguments),
        SubTrackCommand::Compare(arguments) => compare::serve(arguments, line),
        SubTrackCommand::Calls(arguments) => calls::serve(&arguments),
        SubTrackCommand::Show(arguments) => show::serve(&arguments, line),
        SubTrackCommand::Samples(arguments) => samples::serve(&arguments),
    }
}

/// Writes an analysis as text: a table of its blocks, and below it the text of gpu_tracker. If this program was called as
/// gpu_tracker, there is no table.
fn text(analysis: &Analysis) -> String {
    let table = if name::is_this_gpu_tracker() { String::new() } else { blocks_text(analysis) };
    table + &analysis_text(analysis)
}
