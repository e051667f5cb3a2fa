//! `--last`: shows the newest report that was kept.

use std::process::ExitCode;

use gpu_track_collector::kept::directory;
use gpu_track_collector::{read_report, render, write_report};

use crate::cli::{self, Options, PatternValues, UsageError};
use crate::console::message;
use crate::{console, keep};

/// Writes the newest report where the options say; without `-o` to stdout, since that has nothing else here.
///
/// # Errors
/// If it can't be written there.
pub(crate) fn show(options: &Options) -> Result<ExitCode, UsageError> {
    let Some(place) = keep::place(&keep::here) else {
        message("no report is kept: neither XDG_STATE_HOME nor HOME names a directory");
        return Ok(ExitCode::FAILURE);
    };
    let directory = place.directory.display();
    let kept = match directory::newest(&place) {
        Ok(Some(kept)) => kept,
        Ok(None) => {
            message(format_args!(
                "no report is kept in {directory}. Runs on a terminal are; GPU_TRACK_KEEP=20 keeps those of jobs, too"
            ));
            return Ok(ExitCode::FAILURE);
        }
        Err(error) => {
            message(format_args!("cannot read a kept report in {directory}: {error}"));
            return Ok(ExitCode::FAILURE);
        }
    };
    let path = kept.path.display();
    let read = match read_report(&kept.json) {
        Ok(read) => read,
        Err(problem) => {
            message(format_args!("cannot show {path}: {problem}"));
            return Ok(ExitCode::FAILURE);
        }
    };
    if let Some(note) = &read.note {
        message(note);
    }
    let values = PatternValues { time: read.report.started_at, number: None, ..PatternValues::here() };
    let targets = cli::targets(&options.places, &values)?;
    let mut style = options.report.style;
    if options.places.outputs.is_empty() {
        // The form that stderr would have, since that is for people.
        style.console = console::of_stdout();
        let texts: Vec<_> = targets.iter().map(|target| render(&read.report, target, style)).collect();
        return Ok(console::print(&texts.concat()));
    }
    style.console = console::of_stderr();
    let mut status = ExitCode::SUCCESS;
    for target in &targets {
        let output = &target.output;
        if let Err(error) = write_report(output, &render(&read.report, target, style)) {
            message(format_args!("cannot write the report to {output}: {error}"));
            status = ExitCode::FAILURE;
        }
    }
    Ok(status)
}
