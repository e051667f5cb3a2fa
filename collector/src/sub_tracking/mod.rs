//! Reads and joins the files of `gpu-track sub-track`: tracking files, ours and gpu_tracker's, and sub-tracking files. Also reads
//! files of metrics.
//!
//! Each file is read once, from its start to its end, a row at a time. What a killed writer left half-written is left out, and a
//! note says so.

mod combine;
mod csv;
mod marks;
mod metrics;
mod samples;
mod sqlite;

use std::path::Path;

use crate::report::sub_track::{Analysis, Blocks, Marks};

pub use combine::combine;
pub use metrics::read as read_metrics;

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
    let Noted { value: blocks, mut notes } = blocks(sub_tracking_file)?;
    let (value, torn_samples) =
        samples::analyze(tracking_file, blocks).map_err(|problem| named(tracking_file, &problem))?;
    notes.extend(torn_note(tracking_file, torn_samples));
    Ok(Noted { value, notes })
}

/// Reads the code blocks of a sub-tracking file, with their calls.
///
/// # Errors
/// If it can't be read, has another form, or has a stop without a start, as a line that names it.
pub fn blocks(sub_tracking_file: &Path) -> Result<Noted<Blocks>, String> {
    let in_marks = |problem: &str| named(sub_tracking_file, problem);
    let mut marks = Marks::default();
    let add_mark = |mark| marks.push(mark).map_err(|error| error.to_string());
    let torn_marks = marks::read(sub_tracking_file, add_mark).map_err(|problem| in_marks(&problem))?;
    let value = marks.pair().map_err(|error| in_marks(&error.to_string()))?;
    Ok(Noted { value, notes: torn_note(sub_tracking_file, torn_marks).into_iter().collect() })
}

/// Makes a line for the user of a problem with a file.
fn named(path: &Path, problem: &str) -> String {
    format!("\"{}\" {problem}", path.display())
}

/// Says that a file ends within a row, whose `lines` are left out. `None`: there are none.
fn torn_note(path: &Path, lines: u64) -> Option<String> {
    let path = path.display();
    match lines {
        0 => None,
        1 => Some(format!("\"{path}\" ends within a line: that line is left out")),
        _ => Some(format!(
            "\"{path}\" ends within quotes: its last {lines} lines, from the one with the opening quote on, are left out"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: CMD-44
    #[test]
    fn lines_that_are_left_out_are_counted() {
        let note = |lines| torn_note(Path::new("t.csv"), lines);
        assert_eq!(note(0), None);
        assert_eq!(note(1).unwrap(), "\"t.csv\" ends within a line: that line is left out");
        assert!(note(1_000).unwrap().starts_with("\"t.csv\" ends within quotes: its last 1000 lines, "));
    }
}
