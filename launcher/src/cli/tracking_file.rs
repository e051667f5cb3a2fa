//! `--tf FILE`: where the run over time goes. All that can be wrong with it is said before the command starts.

use std::path::{Path, PathBuf};

use gpu_track_collector::tracking_file::{TrackingFile, check_form};
use gpu_track_collector::{NoLock, Output, OutputLock, ReportConfig};

use super::args::Options;
use super::output::{self, PatternValues};
use super::usage_error::UsageError;

/// The option.
const OPTION: &str = "--tf";

/// The tracking file, and the lock that keeps other runs from it.
#[derive(Debug)]
#[expect(dead_code, reason = "they are held until the end of the run")]
pub(crate) struct HeldTrackingFile {
    file: TrackingFile,
    lock: Option<OutputLock>,
}

/// Finds the path that `given` names. Refuses what is no file, or the report's.
pub(super) fn path(
    given: &Path,
    report: &ReportConfig,
    patterns: &PatternValues,
) -> Result<PathBuf, UsageError> {
    let refused = |problem: &dyn std::fmt::Display| UsageError::of_file(OPTION, given, problem);
    check_form(given).map_err(|error| refused(&error))?;
    match output::output(given, patterns).map_err(|error| refused(&error))? {
        Output::File(path) if report.files().any(|file| file == path) => {
            Err(refused(&"is the file of the report: give another name"))
        }
        Output::File(path) => Ok(path),
        _ => Err(refused(&"is no file: give the name of one")),
    }
}

/// Makes the tracking file, and writes into the options how collectors find it.
///
/// # Errors
/// If it exists and is not to be replaced, another run writes to it, or it can't be made.
pub(crate) fn tracking_file(options: &mut Options) -> Result<Option<HeldTrackingFile>, UsageError> {
    let Some(path) = options.preparations.tracking_file.clone() else { return Ok(None) };
    let refused = |problem: &dyn std::fmt::Display| UsageError::of_file(OPTION, &path, problem);
    let lock = match OutputLock::take(&path) {
        Ok(lock) => lock,
        Err(NoLock::InUse) => return Err(refused(&"is the tracking file of another run that has not ended")),
        Err(foreign @ NoLock::Foreign { .. }) => {
            options.report.warnings.push(foreign.to_string());
            None
        }
    };
    let file = TrackingFile::create(path.clone(), options.preparations.overwrite)
        .map_err(|error| refused(&error))?;
    options.tracking.tracking_target = Some(file.target());
    Ok(Some(HeldTrackingFile { file, lock }))
}
