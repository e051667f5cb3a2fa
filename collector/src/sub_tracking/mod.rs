//! Reads and joins the files of `gpu-track sub-track`: tracking files, which have samples, and sub-tracking files, which say when code
//! blocks ran. Those of the Python program gpu_tracker are read, too. Also reads files of metrics.
//!
//! Each file is read once, from its start to its end, a row at a time. If a killed writer left its last row half-written, that
//! row is left out, and a note says so.

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
pub use samples::of_database_as_csv as samples_of_database;

/// The form of a file, which its extension says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Csv,
    Sqlite,
}

impl Form {
    /// The form that the extension of a path says.
    ///
    /// # Errors
    /// If it says none. The error is a text to put after the file's name.
    fn from_extension(path: &Path) -> Result<Self, String> {
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
    /// Lines for the user, such as that the end of a file is left out.
    pub notes: Vec<String>,
}

/// Computes what the code blocks of `sub_tracking_file` used, from the samples of `tracking_file`.
///
/// # Errors
/// If one of them can't be read or has another form. The error is a line that names it.
pub fn analyze(tracking_file: &Path, sub_tracking_file: &Path) -> Result<Noted<Analysis>, String> {
    let Noted { value: blocks, mut notes } = blocks(sub_tracking_file)?;
    let (value, torn_lines) =
        samples::analyze(tracking_file, blocks).map_err(|problem| named(tracking_file, &problem))?;
    notes.extend(torn_note(tracking_file, torn_lines));
    Ok(Noted { value, notes })
}

/// Reads the code blocks of a sub-tracking file, with their calls.
///
/// # Errors
/// If it can't be read, has another form, or has a stop without a start. The error is a line that names it.
pub fn blocks(sub_tracking_file: &Path) -> Result<Noted<Blocks>, String> {
    let name_file = |problem: &str| named(sub_tracking_file, problem);
    let mut marks = Marks::default();
    let add_mark = |mark| marks.push(mark);
    let torn_lines = marks::read(sub_tracking_file, add_mark).map_err(|problem| name_file(&problem))?;
    let value = marks.pair().map_err(|problem| name_file(&problem))?;
    Ok(Noted { value, notes: torn_note(sub_tracking_file, torn_lines).into_iter().collect() })
}

/// Makes a line for the user: the name of a file, and a problem with it.
fn named(path: &Path, problem: &str) -> String {
    format!("\"{}\" {problem}", path.display())
}

/// Makes a line for the user about a file that ends within a row. `lines`: how many lines that row has; they are left out. `None`: the
/// file does not end within a row.
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
