//! `--tf FILE`: where the run over time goes. All that can be wrong with it is said before the command starts.

use std::path::{Path, PathBuf};

use gpu_track_collector::tracking::{TrackingFile, check_form};
use gpu_track_collector::{NoLock, Output, OutputLock, ReportConfig};

use super::args::Options;
use super::output::{self, PatternValues};
use super::usage_error::UsageError;

/// The option.
const OPTION: &str = "--tf";

/// A tracking file, and the lock that keeps other runs from it.
#[derive(Debug)]
#[expect(dead_code, reason = "they are held until the end of the run")]
pub(crate) struct HeldTrackingFile {
    file: TrackingFile,
    lock: Option<OutputLock>,
}

/// Finds the paths that the options name. Refuses what is no file, the report's, or named twice.
pub(super) fn paths(
    all_given: &[PathBuf],
    report: &ReportConfig,
    patterns: &PatternValues,
) -> Result<Vec<PathBuf>, UsageError> {
    let mut paths = Vec::new();
    for given in all_given {
        let path = path(given, report, patterns)?;
        if paths.contains(&path) {
            return Err(UsageError::of_file(OPTION, given, "stands for the same file as another --tf"));
        }
        paths.push(path);
    }
    Ok(paths)
}

/// Finds the path that `given` names.
fn path(given: &Path, report: &ReportConfig, patterns: &PatternValues) -> Result<PathBuf, UsageError> {
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

/// Makes the tracking files, and writes into the options how collectors find them.
///
/// # Errors
/// If one exists and is not to be replaced, another run writes to it, or it can't be made.
pub(crate) fn tracking_files(options: &mut Options) -> Result<Vec<HeldTrackingFile>, UsageError> {
    let mut held = Vec::new();
    for path in options.preparations.tracking_files.clone() {
        held.push(tracking_file(path, options)?);
    }
    options.tracking.tracking_files = held.iter().map(|held| held.file.target()).collect();
    Ok(held)
}

/// Makes a tracking file.
fn tracking_file(path: PathBuf, options: &mut Options) -> Result<HeldTrackingFile, UsageError> {
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
    Ok(HeldTrackingFile { file, lock })
}
