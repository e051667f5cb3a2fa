//! The files of `--tf FILE`, `--trace-gpu FILE` and `--events FILE`, which the run over time is written to. First the files are found,
//! then they are locked and made, both before the command starts: a file that can't be written refuses the run.

use std::path::{Path, PathBuf};

use gpu_track_collector::OutputLock;
use gpu_track_collector::model::config::ReportConfig;
use gpu_track_collector::model::gpu_trace::GpuTrace;
use gpu_track_collector::model::style::Output;
use gpu_track_collector::tracking::{NoTrackingFile, TrackingFile, check_form, of_nodes};

use super::args::Options;
use super::groups::Preparations;
use super::output::{self, PatternValues};
use super::targets::take_lock;
use super::usage_error::UsageError;
use crate::console::message;

/// The option for a tracking file, which has the whole run over time.
const TRACKING_OPTION: &str = "--tf";
/// The option for the GPU log, which has the figures of GPUs over time: a file, or `-` for stdout.
const GPU_LOG_OPTION: &str = "--trace-gpu";
/// The option for the file of events.
const EVENTS_OPTION: &str = "--events";

/// A tracking file or GPU log, and the lock that keeps other runs from it.
#[derive(Debug)]
pub(crate) struct HeldTrackingFile {
    pub(crate) file: TrackingFile,
    #[expect(dead_code, reason = "it is held until the end of the run")]
    lock: Option<OutputLock>,
}

/// What the files are found by.
#[derive(Clone, Copy)]
pub(crate) struct Naming<'a> {
    /// The report, whose files none of them may be.
    pub(crate) report: &'a ReportConfig,
    /// What patterns in their names stand for.
    pub(crate) patterns: &'a PatternValues,
}

/// Finds the files that `--tf` names, in the given order. Refuses one without a known form, one that is no file, the report's file,
/// and a file that two of them name.
pub(super) fn find_tracking_files(all_given: &[PathBuf], naming: Naming) -> Result<Vec<PathBuf>, UsageError> {
    let mut paths = Vec::new();
    for given in all_given {
        check_form(given).map_err(|error| UsageError::of_file(TRACKING_OPTION, given, error))?;
        let path = match find_output(TRACKING_OPTION, given, naming)? {
            Output::File(path) => path,
            _ => return Err(UsageError::of_file(TRACKING_OPTION, given, "is no file: give the name of one")),
        };
        if paths.contains(&path) {
            return Err(UsageError::of_file(
                TRACKING_OPTION,
                given,
                "stands for the same file as another --tf",
            ));
        }
        paths.push(path);
    }
    Ok(paths)
}

/// Finds the output of the GPU log, if there is one, and writes it into `preparations` in place of what was given. Refuses an
/// output that is neither a file nor stdout, and the file of a report or of `--tf`.
pub(super) fn find_gpu_log(preparations: &mut Preparations, naming: Naming) -> Result<(), UsageError> {
    let Some(trace) = &mut preparations.gpu_trace else { return Ok(()) };
    let given = trace.file.clone();
    let refused = |problem: &str| Err(UsageError::of_file(GPU_LOG_OPTION, &given, problem));
    match find_output(GPU_LOG_OPTION, &given, naming)? {
        Output::Stdout => trace.is_stdout = true,
        Output::File(path) if preparations.tracking_files.contains(&path) => {
            return refused("is the file of --tf: give another name");
        }
        Output::File(path) => trace.file = path,
        _ => return refused("is no file: give the name of one, or - for stdout"),
    }
    Ok(())
}

/// Finds the file of `--events`, if it is given, and writes its path into `preparations`. Refuses what is no file, and the file of
/// another output.
pub(super) fn find_events(preparations: &mut Preparations, naming: Naming) -> Result<(), UsageError> {
    let Some(given) = preparations.events.clone() else { return Ok(()) };
    let refused = |problem: &str| Err(UsageError::of_file(EVENTS_OPTION, &given, problem));
    let Output::File(path) = find_output(EVENTS_OPTION, &given, naming)? else {
        return refused("is no file: give the name of one");
    };
    let is_traced = preparations.gpu_trace.as_ref().is_some_and(|trace| trace.file == path);
    if is_traced || preparations.tracking_files.contains(&path) {
        return refused("is the file of --tf or --trace-gpu: give another name");
    }
    preparations.events = Some(path);
    Ok(())
}

/// Finds the output that `given`, a value of `option`, names: its patterns are filled in, and symbolic links are resolved. Refuses
/// one that can't be written, and a file that the report goes to.
fn find_output(option: &str, given: &Path, naming: Naming) -> Result<Output, UsageError> {
    let refused = |problem: &dyn std::fmt::Display| UsageError::of_file(option, given, problem);
    match output::output(given, naming.patterns).map_err(|error| refused(&error))? {
        Output::File(path) if naming.report.files().any(|file| file == path) => {
            Err(refused(&"is the file of the report: give another name"))
        }
        output => Ok(output),
    }
}

/// Locks and makes the files of `--tf`, `--trace-gpu` and `--events` that were found, and writes into the options how collectors find
/// them.
///
/// # Errors
/// If one exists and is not to be replaced, another run writes to it, or it can't be made.
pub(crate) fn make_tracking_files(options: &mut Options) -> Result<Vec<HeldTrackingFile>, UsageError> {
    let (overwrite, warnings) = (options.preparations.overwrite, &mut options.report.warnings);
    let trace = options.preparations.gpu_trace.clone();
    let log = trace.as_ref().filter(|trace| !trace.is_stdout).map(|trace| trace.file.clone());
    // All locks come first: a file that is made replaces one that is lost, even if another file is refused after it.
    let mut lock = |option, path| LockedPath::new(option, path, warnings);
    let rows =
        options.preparations.tracking_files.clone().into_iter().map(|path| lock(TRACKING_OPTION, path));
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    let log = log.map(|path| lock(GPU_LOG_OPTION, path)).transpose()?;
    let events = options.preparations.events.clone().map(|path| lock(EVENTS_OPTION, path)).transpose()?;
    let make_rows = |locked: LockedPath| locked.make(overwrite, TrackingFile::create);
    let make_lines = |locked: LockedPath| locked.make(overwrite, TrackingFile::create_lines);
    let mut held = rows.into_iter().map(make_rows).collect::<Result<Vec<_>, _>>()?;
    options.tracking.tracking_files = held.iter().map(|held| held.file.target()).collect();
    if let Some(trace) = trace {
        let log = log.map(make_lines).transpose()?;
        let file = log.as_ref().map(|held| held.file.target());
        options.gpu.on_request = trace.fields.iter().any(|field| field.is_on_request());
        options.tracking.gpu_trace =
            Some(GpuTrace { file, every: trace.every, fields: trace.fields, style: trace.style });
        held.extend(log);
    }
    let events = events.map(make_lines).transpose()?;
    options.tracking.alerts.events_file = events.as_ref().map(|held| held.file.target());
    held.extend(events);
    Ok(held)
}

/// Finds, locks and makes the tracking files of `gpu-track merge`, which have the figures of all nodes.
///
/// # Errors
/// If the form of one has no place for nodes, or as [`find_tracking_files`] and [`make_tracking_files`].
pub(crate) fn make_files_of_nodes(
    given: &[PathBuf],
    overwrite: bool,
    naming: Naming,
) -> Result<Vec<HeldTrackingFile>, UsageError> {
    if let Some(other) = given.iter().find(|path| !of_nodes::has_place(path)) {
        let problem = "has no form for several nodes: name a file that ends in .jsonl or .sqlite";
        return Err(UsageError::of_file(TRACKING_OPTION, other, problem));
    }
    let mut warnings = Vec::new();
    let paths = find_tracking_files(given, naming)?;
    let locked = paths.into_iter().map(|path| LockedPath::new(TRACKING_OPTION, path, &mut warnings));
    let locked = locked.collect::<Result<Vec<_>, _>>()?;
    let held = locked.into_iter().map(|locked| locked.make(overwrite, TrackingFile::create));
    let held = held.collect::<Result<_, _>>()?;
    warnings.iter().for_each(message);
    Ok(held)
}

/// A path of a file of this run, locked against other runs.
struct LockedPath {
    option: &'static str,
    path: PathBuf,
    /// `None`: files can't be locked there.
    lock: Option<OutputLock>,
}

impl LockedPath {
    /// Locks `path`, a value of `option`. If another user has made the lock's file, there is no lock, and a warning is added.
    ///
    /// # Errors
    /// If another run holds the lock.
    fn new(option: &'static str, path: PathBuf, warnings: &mut Vec<String>) -> Result<Self, UsageError> {
        let in_use = "is the tracking file of another run that has not ended";
        match take_lock(&path, warnings) {
            Ok(lock) => Ok(Self { option, path, lock }),
            Err(_) => Err(UsageError::of_file(option, &path, in_use)),
        }
    }

    /// Makes the file by `create`.
    ///
    /// # Errors
    /// If the file can't be made.
    fn make(
        self,
        overwrite: bool,
        create: fn(PathBuf, bool) -> Result<TrackingFile, NoTrackingFile>,
    ) -> Result<HeldTrackingFile, UsageError> {
        let file = create(self.path.clone(), overwrite)
            .map_err(|error| UsageError::of_file(self.option, &self.path, &error))?;
        Ok(HeldTrackingFile { file, lock: self.lock })
    }
}
