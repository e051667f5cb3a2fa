//! `gpu-track metrics`: what the metrics of a program were, such as its loss.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueHint};
use gpu_track_collector::read_metrics;
use gpu_track_collector::report::format;
use gpu_track_collector::report::metrics::{self, MetricRow, MetricSummary};

use super::place::OutputArg;
use crate::cli::UsageError;
use crate::console::{self, message};

/// The name of the form for spreadsheets.
const CSV: &str = "csv";

/// The arguments of `gpu-track metrics`.
#[derive(Debug, Args)]
pub(super) struct MetricsArguments {
    /// Files of metrics: metrics_file of gpu_track.Tracker, or what GPU_TRACK_METRICS named
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,

    #[command(flatten)]
    output: OutputArg,

    /// Format [default: json or csv if FILE ends so, else text]
    #[arg(short, long, value_name = "FORMAT",
          value_parser = PossibleValuesParser::new([format::TEXT_NAME, format::JSON_NAME, CSV]))]
    format: Option<String>,
}

/// Writes a table with a line for each metric of each process, to stdout or the file of `-o`. Lines on stderr say which rows were
/// left out.
///
/// # Errors
/// If a file can't be read, or the output can't be written to its place.
pub(super) fn serve(arguments: &MetricsArguments) -> Result<ExitCode, UsageError> {
    let MetricsArguments { files, output, format } = arguments;
    let place = output.find()?;
    let mut summary = MetricSummary::default();
    for file in files {
        read_metrics(file, |value| summary.add(value)).map_err(UsageError::new)?.iter().for_each(message);
    }
    let write: fn(&[MetricRow]) -> String = match format.as_deref().or(output.extension()) {
        Some(format::JSON_NAME) => metrics::json,
        Some(CSV) => metrics::csv,
        _ => metrics::text,
    };
    Ok(console::write([(&place, write(&summary.rows()))]))
}
