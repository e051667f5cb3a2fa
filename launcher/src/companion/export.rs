//! `gpu-track export`: the figures of a report in a file of another program's form.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueHint};
use gpu_track_collector::given_file::{self, MOST_OF_REPORT};
use gpu_track_collector::model::report::Report;
use gpu_track_collector::report::export::{Exported, nextflow_trace, snakemake_benchmark};
use gpu_track_collector::report::read::read as read_report;

use super::place;
use crate::cli::UsageError;
use crate::console::message;

/// Writes a report in a form.
type Writer = fn(&Report, Option<&str>) -> Result<Exported, String>;

/// The forms, by their names.
const FORMS: [(&str, Writer); 2] =
    [("snakemake-benchmark", snakemake_benchmark), ("nextflow-trace", nextflow_trace)];

/// The arguments of `gpu-track export`.
#[derive(Debug, Args)]
pub(super) struct ExportArguments {
    /// A report in JSON (-: stdin)
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,

    /// The form: Snakemake's benchmark with a row for each of its jobs, or Nextflow's .command.trace of a task
    #[arg(long = "as", value_name = "FORM", value_parser = PossibleValuesParser::new(FORMS.map(|(name, _)| name)))]
    form: String,

    /// Only the tasks of this name, or the jobs of this rule of Snakemake
    #[arg(long, value_name = "NAME")]
    task: Option<String>,

    /// Write to FILE instead of stdout
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
}

/// Writes the report's figures to stdout or the file of `-o`. A line on stderr says what they lack.
///
/// # Errors
/// If the file is no report, it lacks what the options ask for, or the output can't be written to its place.
pub(super) fn serve(arguments: &ExportArguments) -> Result<ExitCode, UsageError> {
    let ExportArguments { file, form, task, output } = arguments;
    let place = place::find(output.as_deref())?;
    let problem = |problem: String| UsageError::of_path(file, problem);
    let json = given_file::read_text(file, MOST_OF_REPORT).map_err(|error| problem(error.to_string()))?;
    let read = read_report(&json).map_err(|error| problem(format!("is no report: {error}")))?;
    let writer = FORMS.iter().find(|(name, _)| name == form).map(|(_, writer)| writer);
    // The parser of the options has refused other names.
    let Some(writer) = writer else { return Ok(ExitCode::FAILURE) };
    let exported = writer(&read.report, task.as_deref()).map_err(problem)?;
    read.note.iter().chain(&exported.note).for_each(message);
    Ok(place::write(&place, &exported.text))
}
