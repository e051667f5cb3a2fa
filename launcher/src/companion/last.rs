//! `--last`: shows the newest report that was kept.

use std::process::ExitCode;

use gpu_track_collector::kept::directory::{self, KeptReport};
use gpu_track_collector::model::style::Style;

use crate::cli::{ReportPlaces, UsageError};
use crate::companion::show;
use crate::console;
use crate::keep;

/// Writes the newest report where the options say.
///
/// # Errors
/// If it can't be written there.
pub(crate) fn show(places: &ReportPlaces, style: Style) -> Result<ExitCode, UsageError> {
    match newest() {
        Ok(kept) => show::report(&kept.json, kept.path.display(), places, style),
        Err(problem) => Ok(console::failure(problem)),
    }
}

/// The newest report that was kept.
///
/// # Errors
/// If there is none, in a line for the user.
pub(crate) fn newest() -> Result<KeptReport, String> {
    let Some(keep) = keep::of_user(&keep::own_variable) else {
        return Err("no report is kept: neither XDG_STATE_HOME nor HOME names a directory".into());
    };
    let directory = keep.directory.display();
    match directory::newest(&keep) {
        Ok(Some(kept)) => Ok(kept),
        Ok(None) => Err(format!(
            "no report is kept in {directory}. Runs on a terminal are; GPU_TRACK_KEEP=20 keeps those of jobs, too"
        )),
        Err(error) => Err(format!("cannot read a kept report in {directory}: {error}")),
    }
}
