//! Shows a report that was read back: on stdout, or where the options say.

use std::fmt::Display;
use std::process::ExitCode;

use gpu_track_collector::model::config::ReportTarget;
use gpu_track_collector::model::report::Report;
use gpu_track_collector::model::style::Style;
use gpu_track_collector::report::format::render;
use gpu_track_collector::report::read::read as read_report;

use crate::cli::{self, PatternValues, ReportPlaces, UsageError};
use crate::console::{self, message};

/// Writes the report in `json`, which was read from `path`, to the places that the options name. Without `-o` it goes to stdout,
/// since no command writes there.
///
/// # Errors
/// If a place that the options name can't be used.
pub(crate) fn report(
    json: &str,
    path: impl Display,
    places: &ReportPlaces,
    style: Style,
) -> Result<ExitCode, UsageError> {
    let read = match read_report(json) {
        Ok(read) => read,
        Err(problem) => return Ok(console::failure(format_args!("cannot show {path}: {problem}"))),
    };
    read.note.iter().for_each(message);
    let values = PatternValues { time: read.report.started_at, rank_number: None, ..PatternValues::here() };
    let targets = cli::targets(places, &values)?;
    Ok(written(&read.report, &targets, places, style))
}

/// Writes a report to `targets`, which were found for `places`. Without `-o` it goes to stdout. Returns the exit status. Lines on stderr
/// say where writing failed.
pub(crate) fn written(
    report: &Report,
    targets: &[ReportTarget],
    places: &ReportPlaces,
    mut style: Style,
) -> ExitCode {
    if places.outputs.is_empty() {
        // `targets` is stderr then. stdout gets the same form.
        style.console = console::of_stdout();
        let texts: Vec<_> = targets.iter().map(|target| render(report, target, style)).collect();
        return console::print(&texts.concat());
    }
    style.console = console::of_stderr();
    console::write(targets.iter().map(|target| (&target.output, render(report, target, style))))
}
