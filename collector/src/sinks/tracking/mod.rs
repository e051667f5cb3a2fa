//! `--tf FILE`: the run over time in files. A file's extension says its form. Each form is a module here and a row of [`FORMS`].

mod columns;
mod csv;
mod file;
mod growing;
mod intervals;
mod jsonl;
mod lines;
pub mod of_nodes;
mod pftrace;
mod recent;
mod rows;
mod sqlite;

use std::path::Path;

use super::sink::{Sink, SinkContext};
use crate::model::style::StreamFile;
pub use file::{NoTrackingFile, TrackingFile};
pub(super) use lines::LineFile;

/// A form of tracking files.
pub(crate) struct Form {
    /// The extension of its files, without the dot.
    pub extension: &'static str,
    /// The sink that writes a file.
    pub make: fn(&SinkContext, StreamFile) -> Box<dyn Sink>,
    /// Whether SQLite writes its files. The launcher then checks more, since SQLite opens files by name, and needs locks.
    pub is_database: bool,
}

/// All forms.
pub(crate) const FORMS: &[Form] = &[
    Form { extension: "csv", make: csv::make, is_database: false },
    Form { extension: "jsonl", make: jsonl::make, is_database: false },
    Form { extension: "pftrace", make: pftrace::make, is_database: false },
    Form { extension: "sqlite", make: sqlite::make, is_database: true },
];

/// Checks that the extension of a path is that of a form of tracking files.
///
/// # Errors
/// If it is not.
pub fn check_form(path: &Path) -> Result<(), NoTrackingFile> {
    form_of(path).map(|_| ()).ok_or(NoTrackingFile::Form)
}

/// The form that the extension of a path asks for. `None`: it is that of no form.
fn form_of(path: &Path) -> Option<&'static Form> {
    let extension = path.extension()?;
    FORMS.iter().find(|form| extension == form.extension)
}

/// The extensions of all forms as a message lists them: ".a, .b or .c".
fn extensions() -> String {
    let all: Vec<String> = FORMS.iter().map(|form| format!(".{}", form.extension)).collect();
    match &all[..] {
        [before @ .., last] if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        _ => all.concat(),
    }
}

/// A sink for each `--tf`.
pub(super) fn make(context: &SinkContext) -> Vec<Box<dyn Sink>> {
    let files = context.config.tracking.tracking_files.iter();
    // The launcher has refused files whose extension is of no form, so none is dropped here.
    files.filter_map(|file| Some((form_of(&file.path)?.make)(context, file.clone()))).collect()
}

/// The name of a tracking file's sink, for the report.
fn name(target: &StreamFile) -> String {
    format!("The tracking file {}", target.path.display())
}
