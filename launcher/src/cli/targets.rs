//! Where the report goes, and in which form: what `-o`, `-f` and `--summary` say together.

use std::path::Path;

use gpu_track_collector::model::config::{ReportConfig, ReportTarget};
use gpu_track_collector::model::style::Output;
use gpu_track_collector::report::format;
use gpu_track_collector::tracking::check_form;
use gpu_track_collector::{NoLock, OutputLock};

use super::args::ReportPlaces;
use super::output::{self, PatternValues};
use super::usage_error::UsageError;

const OPTION: &str = "--output";

/// Finds the places of the report that the options name, each with its form. If they name none, that is stderr. With `--summary`, stderr
/// is added.
///
/// # Errors
/// If a report can't be written to one of them, or two are the same.
pub(crate) fn targets(
    places: &ReportPlaces,
    patterns: &PatternValues,
) -> Result<Vec<ReportTarget>, UsageError> {
    let mut targets: Vec<ReportTarget> = Vec::new();
    for given in &places.outputs {
        let output =
            output::output(given, patterns).map_err(|error| UsageError::of_file(OPTION, given, error))?;
        if targets.iter().any(|other| other.output == output) {
            return Err(UsageError::of_file(OPTION, given, "stands for the same place as another -o"));
        }
        let form = form(given, places).ok_or_else(|| {
            if has_other_form(given) {
                let forms = format::names().map(|name| format!(".{}", format::extension(name)));
                let forms = forms.collect::<Vec<_>>().join(", ");
                let other = format!(
                    "has the name of a form that no report has: {forms} are written, and with -f text any"
                );
                return UsageError::of_file(OPTION, given, other);
            }
            let tracking =
                "is a name of a tracking file: --tf writes the run over time there, and -f text a report";
            UsageError::of_file(OPTION, given, tracking)
        })?;
        targets.push(ReportTarget { format: form.to_owned(), output });
    }
    // Without files, stderr gets the report itself. Beside files it gets the summary.
    let is_for_stderr = places.outputs.is_empty() || places.summary;
    if is_for_stderr && !targets.iter().any(|target| target.output == Output::Stderr) {
        let format = if places.outputs.is_empty() { places.format() } else { "text" };
        targets.push(ReportTarget { output: Output::Stderr, format: format.to_owned() });
    }
    Ok(targets)
}

/// The form of the report in the file `given`. `-f` beside a single `-o` is about that file. Beside several, a file's extension
/// goes before `-f`. `None`: `given` is the name of a file of another form, such as a tracking file, and there is no `-f`.
fn form<'a>(given: &Path, places: &'a ReportPlaces) -> Option<&'a str> {
    let has_format = places.format.is_some();
    if has_format && places.outputs.len() == 1 {
        return Some(places.format());
    }
    let extension = given.extension().and_then(|extension| extension.to_str());
    if let Some(named) = extension.and_then(format::of_extension) {
        return Some(named);
    }
    let is_other = check_form(given).is_ok() || has_other_form(given);
    (has_format || !is_other).then(|| places.format())
}

/// Whether a name has the extension of a form that people may expect, but in which no report is written.
fn has_other_form(given: &Path) -> bool {
    const OTHER_FORMS: [&str; 10] =
        ["yaml", "yml", "toml", "xml", "md", "tsv", "parquet", "pickle", "pkl", "xlsx"];
    let extension = given.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| OTHER_FORMS.contains(&extension))
}

/// Puts the number of a rank into the names of the report's files.
pub(crate) fn number_files(report: &mut ReportConfig, number: u32) {
    for target in &mut report.targets {
        if let Output::File(path) = &mut target.output {
            output::insert_number(path, number);
        }
    }
}

/// Takes the locks of the report's files, one for each target, in its order. A lock is held until it is dropped. `None`: the
/// target is no file, or it can't be locked. If its lock file is another user's, the report's warnings say so.
///
/// # Errors
/// If another run that still lives writes to one of them.
pub(crate) fn locks(report: &mut ReportConfig) -> Result<Vec<Option<OutputLock>>, UsageError> {
    let ReportConfig { targets, warnings, .. } = report;
    let mut lock = |target: &ReportTarget| match target.output.file() {
        Some(path) => lock_of(path, warnings),
        None => Ok(None),
    };
    targets.iter().map(&mut lock).collect()
}

/// Takes the lock of a report file, as [`take_lock`] does.
///
/// # Errors
/// If another run holds the lock.
fn lock_of(path: &Path, warnings: &mut Vec<String>) -> Result<Option<OutputLock>, UsageError> {
    take_lock(path, warnings).map_err(|in_use| {
        let problem = format!(
            "{in_use}: give each run a name of its own, with %p (the pid), %r (the rank), %h (the host) or %j (the job)"
        );
        UsageError::of_file(OPTION, path, problem)
    })
}

/// Takes the lock of a file. If another user has made the lock's file, there is no lock, and a warning is added. Nor is there a lock
/// where the file system has none.
///
/// # Errors
/// If another run holds the lock.
pub(super) fn take_lock(path: &Path, warnings: &mut Vec<String>) -> Result<Option<OutputLock>, NoLock> {
    match OutputLock::take(path) {
        Err(foreign @ NoLock::Foreign { .. }) => {
            warnings.push(foreign.to_string());
            Ok(None)
        }
        taken => taken,
    }
}
