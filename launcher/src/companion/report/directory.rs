//! A table of the reports in a directory.

use std::path::Path;
use std::process::ExitCode;

use gpu_track_collector::report::format;
use gpu_track_collector::report::read::read as read_report;
use gpu_track_collector::report::runs::{self, RunRow};
use gpu_track_collector::report::study::Plan;

use super::super::report_files;
use super::CSV;
use crate::cli::{ReportPlaces, UsageError};
use crate::console::message;

/// Shows a table of the reports in a directory, the oldest run first. A line on stderr counts the files that are no reports.
///
/// # Errors
/// If the directory can't be read or has no report, or a place can't be used.
pub(super) fn show(directory: &Path, places: &ReportPlaces) -> Result<ExitCode, UsageError> {
    let problem = |problem: String| UsageError::new(format_args!("\"{}\" {problem}", directory.display()));
    let listed =
        report_files::in_directory(directory).map_err(|error| problem(format!("cannot be read: {error}")))?;
    let mut unreadable = Vec::new();
    let mut rows: Vec<RunRow> = Vec::new();
    for path in listed {
        // A link to a report counts as a run of this directory.
        let refuses_links = false;
        let json = report_files::read(&path, refuses_links).unwrap_or_default();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match read_report(&json) {
            Ok(read) => rows.push(runs::row(name, &read.report)),
            // The plan of a study lies beside its reports.
            Err(_) if Plan::read(&json).is_ok() => {}
            Err(_) => unreadable.push(name),
        }
    }
    if let Some(first) = unreadable.iter().min() {
        message(format_args!(
            "{} of the .json files can't be read as reports, such as {first}",
            unreadable.len()
        ));
    }
    if rows.is_empty() {
        return Err(problem("has no report: their names end in .json".into()));
    }
    rows.sort_by(|a, b| (a.started_at, &a.file).cmp(&(b.started_at, &b.file)));
    super::write(places, |form| match form {
        format::JSON_NAME => runs::json(&rows),
        CSV => runs::csv(&rows),
        _ => runs::text(&rows),
    })
}
