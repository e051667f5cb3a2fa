//! `--last`: shows the newest report that was kept.

use std::process::ExitCode;

use gpu_track_collector::Style;
use gpu_track_collector::kept::directory;

use crate::cli::{ReportPlaces, UsageError};
use crate::console::message;
use crate::{keep, show};

/// Writes the newest report where the options say.
///
/// # Errors
/// If it can't be written there.
pub(crate) fn show(places: &ReportPlaces, style: Style) -> Result<ExitCode, UsageError> {
    let Some(place) = keep::place(&keep::here) else {
        message("no report is kept: neither XDG_STATE_HOME nor HOME names a directory");
        return Ok(ExitCode::FAILURE);
    };
    let directory = place.directory.display();
    match directory::newest(&place) {
        Ok(Some(kept)) => show::report(&kept.json, kept.path.display(), places, style),
        Ok(None) => {
            message(format_args!(
                "no report is kept in {directory}. Runs on a terminal are; GPU_TRACK_KEEP=20 keeps those of jobs, too"
            ));
            Ok(ExitCode::FAILURE)
        }
        Err(error) => {
            message(format_args!("cannot read a kept report in {directory}: {error}"));
            Ok(ExitCode::FAILURE)
        }
    }
}
