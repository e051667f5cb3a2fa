//! `--tf FILE` and `--trace-gpu FILE`: where the run over time goes. All that can be wrong with it is said before the command
//! starts.

use std::path::{Path, PathBuf};

use gpu_track_collector::tracking::{NoTrackingFile, TrackingFile, check_form, of_nodes};
use gpu_track_collector::{GpuTrace, NoLock, Output, OutputLock, ReportConfig};

use super::args::Options;
use super::groups::Preparations;
use super::output::{self, PatternValues};
use super::usage_error::UsageError;
use crate::console::message;

/// The option of the files that have all.
const OPTION: &str = "--tf";
/// The option of the log of GPUs.
const TRACE_OPTION: &str = "--trace-gpu";

/// A tracking file, and the lock that keeps other runs from it.
#[derive(Debug)]
pub(crate) struct HeldTrackingFile {
    pub(crate) file: TrackingFile,
    #[expect(dead_code, reason = "it is held until the end of the run")]
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
        check_form(given).map_err(|error| UsageError::of_file(OPTION, given, error))?;
        let path = match place(OPTION, given, report, patterns)? {
            Output::File(path) => path,
            _ => return Err(UsageError::of_file(OPTION, given, "is no file: give the name of one")),
        };
        if paths.contains(&path) {
            return Err(UsageError::of_file(OPTION, given, "stands for the same file as another --tf"));
        }
        paths.push(path);
    }
    Ok(paths)
}

/// Finds where the log of `--trace-gpu` goes. Refuses what is neither a file nor stdout, or has another output's name.
pub(super) fn find_trace(
    preparations: &mut Preparations,
    report: &ReportConfig,
    patterns: &PatternValues,
) -> Result<(), UsageError> {
    let Some(trace) = &mut preparations.gpu_trace else { return Ok(()) };
    let given = trace.file.clone();
    let refused = |problem: &str| Err(UsageError::of_file(TRACE_OPTION, &given, problem));
    match place(TRACE_OPTION, &given, report, patterns)? {
        Output::Stdout => trace.is_stdout = true,
        Output::File(path) if preparations.tracking_files.contains(&path) => {
            return refused("is the file of --tf: give another name");
        }
        Output::File(path) => trace.file = path,
        _ => return refused("is no file: give the name of one, or - for stdout"),
    }
    Ok(())
}

/// Finds the place that `given` names. Refuses the report's file.
fn place(
    option: &str,
    given: &Path,
    report: &ReportConfig,
    patterns: &PatternValues,
) -> Result<Output, UsageError> {
    let refused = |problem: &dyn std::fmt::Display| UsageError::of_file(option, given, problem);
    match output::output(given, patterns).map_err(|error| refused(&error))? {
        Output::File(path) if report.files().any(|file| file == path) => {
            Err(refused(&"is the file of the report: give another name"))
        }
        place => Ok(place),
    }
}

/// Makes the tracking files, and writes into the options how collectors find them.
///
/// # Errors
/// If one exists and is not to be replaced, another run writes to it, or it can't be made.
pub(crate) fn tracking_files(options: &mut Options) -> Result<Vec<HeldTrackingFile>, UsageError> {
    let (overwrite, warnings) = (options.preparations.overwrite, &mut options.report.warnings);
    let mut held = Vec::new();
    for path in options.preparations.tracking_files.clone() {
        held.push(hold(OPTION, path, overwrite, warnings, TrackingFile::create)?);
    }
    options.tracking.tracking_files = held.iter().map(|held| held.file.target()).collect();
    if let Some(trace) = options.preparations.gpu_trace.clone() {
        let make = || hold(TRACE_OPTION, trace.file, overwrite, warnings, TrackingFile::create_lines);
        let log = if trace.is_stdout { None } else { Some(make()?) };
        let file = log.as_ref().map(|held| held.file.target());
        options.tracking.gpu_trace = Some(GpuTrace { file, every: trace.every, fields: trace.fields });
        held.extend(log);
    }
    Ok(held)
}

/// Makes the files that `gpu-track merge` writes the figures of all nodes to.
///
/// # Errors
/// If one has a form without a place for them, or as [`paths`] and [`tracking_files`].
pub(crate) fn files_of_nodes(
    given: &[PathBuf],
    overwrite: bool,
    report: &ReportConfig,
    patterns: &PatternValues,
) -> Result<Vec<HeldTrackingFile>, UsageError> {
    if let Some(other) = given.iter().find(|path| !of_nodes::has_place(path)) {
        let problem = "has no form for several nodes: name a file that ends in .jsonl or .sqlite";
        return Err(UsageError::of_file(OPTION, other, problem));
    }
    let mut warnings = Vec::new();
    let paths = paths(given, report, patterns)?;
    let hold = |path| hold(OPTION, path, overwrite, &mut warnings, TrackingFile::create);
    let held = paths.into_iter().map(hold).collect::<Result<_, _>>()?;
    warnings.iter().for_each(message);
    Ok(held)
}

/// Makes the file of an option, and takes its lock. What keeps it from being locked becomes a warning.
fn hold(
    option: &str,
    path: PathBuf,
    overwrite: bool,
    warnings: &mut Vec<String>,
    create: fn(PathBuf, bool) -> Result<TrackingFile, NoTrackingFile>,
) -> Result<HeldTrackingFile, UsageError> {
    let refused = |problem: &dyn std::fmt::Display| UsageError::of_file(option, &path, problem);
    let lock = match OutputLock::take(&path) {
        Ok(lock) => lock,
        Err(NoLock::InUse) => return Err(refused(&"is the tracking file of another run that has not ended")),
        Err(foreign @ NoLock::Foreign { .. }) => {
            warnings.push(foreign.to_string());
            None
        }
    };
    let file = create(path.clone(), overwrite).map_err(|error| refused(&error))?;
    Ok(HeldTrackingFile { file, lock })
}
