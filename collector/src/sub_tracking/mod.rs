//! Reads and joins the files of `gpu-track sub-track`: tracking files, ours and gpu_tracker's, and sub-tracking files.
//!
//! Each file is read once, from its start to its end, a row at a time. What a killed writer left half-written is left out, and a
//! note says so.

mod combine;
mod csv;
mod marks;
mod samples;
mod sqlite;

use std::path::Path;

use crate::report::sub_track::{Analysis, Marks};

pub use combine::combine;

/// What the name of a file ends in, which says its form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Csv,
    Sqlite,
}

impl Form {
    /// Gives the form of the file of this name.
    ///
    /// # Errors
    /// If there is none, as a text to put behind the file's name.
    fn of(path: &Path) -> Result<Self, String> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("csv") => Ok(Self::Csv),
            Some("sqlite") => Ok(Self::Sqlite),
            _ => Err("has a name that ends in neither .csv nor .sqlite".into()),
        }
    }
}

/// A result, and what the user should know of it.
#[derive(Debug)]
pub struct Noted<T> {
    /// The result.
    pub value: T,
    /// Lines for the user.
    pub notes: Vec<String>,
}

/// Tells what the code blocks of `sub_tracking_file` used, by the samples of `tracking_file`.
///
/// # Errors
/// If one of them can't be read or has another form, as a line that names it.
pub fn analyze(tracking_file: &Path, sub_tracking_file: &Path) -> Result<Noted<Analysis>, String> {
    let named = |path: &Path, problem: String| format!("\"{}\" {problem}", path.display());
    let mut all = Marks::default();
    let of_marks = |problem| named(sub_tracking_file, problem);
    let is_torn = marks::read(sub_tracking_file, |mark| all.push(mark).map_err(|error| error.to_string()));
    let torn_marks = is_torn.map_err(of_marks)?.then_some(sub_tracking_file);
    let blocks = all.pair().map_err(|error| of_marks(error.to_string()))?;
    let (value, is_torn) =
        samples::analyze(tracking_file, blocks).map_err(|problem| named(tracking_file, problem))?;
    let torn = [torn_marks, is_torn.then_some(tracking_file)];
    Ok(Noted { value, notes: torn.into_iter().flatten().map(torn_note).collect() })
}

/// Says that a file ends within a row.
fn torn_note(path: &Path) -> String {
    format!("\"{}\" ends within a line: that line is left out", path.display())
}
