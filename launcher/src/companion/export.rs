//! `gpu-track export`: the figures of a report in a file of another program's form.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use gpu_track_collector::model::report::Report;
use gpu_track_collector::report::export::{Exported, nextflow_trace, snakemake_benchmark};

use super::place::OutputArg;
use super::report_files;
use crate::cli::{self, UsageError};
use crate::console::{self, message};

/// Writes a report in a form.
type Writer = fn(&Report, Option<&str>) -> Result<Exported, String>;

/// A form: its name, and what writes it.
#[derive(Debug, Clone, Copy)]
struct Form(&'static str, Writer);

const FORMS: [Form; 2] =
    [Form("snakemake-benchmark", snakemake_benchmark), Form("nextflow-trace", nextflow_trace)];

/// The arguments of `gpu-track export`.
#[derive(Debug, Args)]
pub(super) struct ExportArguments {
    /// A report in JSON (-: stdin)
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,

    /// The form: Snakemake's benchmark with a row for each of its jobs, or Nextflow's .command.trace of a task
    #[arg(long = "as", value_name = "FORM", value_parser = cli::one_of(&FORMS, |form| form.0))]
    form: Form,

    /// Only the tasks of this name, or the jobs of this rule of Snakemake
    #[arg(long, value_name = "NAME")]
    task: Option<String>,

    #[command(flatten)]
    output: OutputArg,
}

/// Writes the report's figures to stdout or the file of `-o`. A line on stderr says what they lack.
///
/// # Errors
/// If the file is no report, it lacks what the options ask for, or the output can't be written to its place.
pub(super) fn serve(arguments: &ExportArguments) -> Result<ExitCode, UsageError> {
    let ExportArguments { file, form, task, output } = arguments;
    let place = output.find()?;
    let read = report_files::parsed(&report_files::text(file)?, file)?;
    let Form(_, writer) = form;
    let exported =
        writer(&read.report, task.as_deref()).map_err(|problem| UsageError::of_path(file, problem))?;
    read.note.iter().chain(&exported.note).for_each(message);
    Ok(console::write([(&place, exported.text)]))
}
