//! Joins sub-tracking files of several processes to one. Such a file has marks: when a process entered or left a block of code.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use rusqlite::params;

use super::{Form, Noted, csv, marks, named, torn_note};
use crate::database;
use crate::report::sub_track::{Mark, Position, number};

/// Takes a mark to write it to the target. Its error is a line that names the target.
type TakeMark<'a> = &'a mut dyn FnMut(Mark) -> Result<(), String>;

/// Writes the marks of all files, in the order of `files`, to a new file `target`.
///
/// # Errors
/// If a file can't be read or has another form than `target`, or if `target` exists or can't be written. The text names the
/// file. No `target` is left behind then.
pub fn combine(target: &Path, files: &[PathBuf]) -> Result<Noted<()>, String> {
    let form = Form::from_extension(target).map_err(|problem| named(target, &problem))?;
    if let Some(other) = files.iter().find(|file| Form::from_extension(file) != Ok(form)) {
        return Err(named(other, &format!("has another ending than \"{}\"", target.display())));
    }
    let file = File::create_new(target).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => named(target, "exists: name a file that does not"),
        _ => unwritable(target, error),
    })?;
    let mut notes = Vec::new();
    let copy_marks = |write: TakeMark| copy_marks(files, write, &mut notes);
    let written = match form {
        Form::Csv => to_csv(target, file, copy_marks),
        Form::Sqlite => to_database(target, copy_marks),
    };
    match written {
        Ok(()) => Ok(Noted { value: (), notes }),
        Err(problem) => {
            // The first error is the one to report.
            let _ = fs::remove_file(target);
            Err(problem)
        }
    }
}

/// Hands the marks of all files to `write`, in the order of `files`. Adds a note to `notes` for each file that ends within a row.
///
/// # Errors
/// If a file can't be read or a mark can't be written. The text names the file.
fn copy_marks(files: &[PathBuf], write: TakeMark, notes: &mut Vec<String>) -> Result<(), String> {
    for file in files {
        // The error of `write`, if it has failed. It names the target already, so it must not be reported as one of `file`.
        let mut unwritten = None;
        let read = marks::read(file, |mark| {
            let written = write(mark);
            unwritten = written.clone().err();
            written
        });
        match (unwritten, read) {
            (Some(problem), _) => return Err(problem),
            (None, Err(problem)) => return Err(named(file, &problem)),
            (None, Ok(torn_lines)) => notes.extend(torn_note(file, torn_lines)),
        }
    }
    Ok(())
}

/// Makes the line for the user that `target` can't be written.
fn unwritable(target: &Path, error: impl std::fmt::Display) -> String {
    named(target, &format!("cannot be written: {error}"))
}

/// The number that stands for a position in a file.
fn position_number(position: Position) -> u8 {
    match position {
        Position::Start => 0,
        Position::Stop => 1,
    }
}

/// Writes the names of the columns to the new file `target` as CSV, and then the marks that `copy_marks` hands on.
fn to_csv(
    target: &Path,
    file: File,
    copy_marks: impl FnOnce(TakeMark) -> Result<(), String>,
) -> Result<(), String> {
    let failed = |error: io::Error| unwritable(target, error);
    let mut file = BufWriter::new(file);
    writeln!(file, "{}", marks::COLUMNS.join(",")).map_err(failed)?;
    copy_marks(&mut |Mark { process_id, code_block, position, timestamp_s }| {
        let (name, position, time) = (csv::cell(&code_block), position_number(position), number(timestamp_s));
        writeln!(file, "{process_id},{name},{position},{time}").map_err(failed)
    })?;
    file.flush().map_err(failed)
}

/// Writes the marks that `copy_marks` hands on to the table `data` of the new database `target`, in one transaction.
fn to_database(target: &Path, copy_marks: impl FnOnce(TakeMark) -> Result<(), String>) -> Result<(), String> {
    let failed = |error: rusqlite::Error| unwritable(target, error);
    let path = fs::canonicalize(target).map_err(|error| unwritable(target, error))?;
    // No other user's file may be where SQLite would put its journal.
    database::check_journal(&path).map_err(|error| unwritable(target, error))?;
    let mut connection = database::open_to_write(&path).map_err(failed)?;
    let transaction = connection.transaction().map_err(failed)?;
    let table =
        "CREATE TABLE data (process_id INTEGER, code_block_name VARCHAR, position INTEGER, timestamp FLOAT)";
    transaction.execute(table, []).map_err(failed)?;
    {
        let mut insert = transaction.prepare("INSERT INTO data VALUES (?, ?, ?, ?)").map_err(failed)?;
        copy_marks(&mut |Mark { process_id, code_block, position, timestamp_s }| {
            let row = params![process_id, code_block, position_number(position), timestamp_s];
            insert.execute(row).map(|_| ()).map_err(failed)
        })?;
    }
    transaction.commit().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "process_id,code_block_name,position,timestamp\n";

    /// Makes files of one mark each, of processes 1, 2 and so on, and gives their paths.
    fn files(directory: &Path, count: usize) -> Vec<PathBuf> {
        let file = |number: usize| {
            let path = directory.join(format!("{number}.csv"));
            fs::write(&path, format!("{HEAD}{number},\"f(a, b)\",0,1746129778.99568\r\n")).unwrap();
            path
        };
        (1..=count).map(file).collect()
    }

    fn read(path: &Path) -> Vec<(i64, String, Position, f64)> {
        let mut all = Vec::new();
        marks::read(path, |Mark { process_id, code_block, position, timestamp_s }| {
            all.push((process_id, code_block, position, timestamp_s));
            Ok(())
        })
        .unwrap();
        all
    }

    // Requirement: CMD-40
    #[test]
    fn files_are_joined_in_their_order_in_either_form() {
        let directory = tempfile::tempdir().unwrap();
        let [joined, a, b, both] =
            ["joined.csv", "a.sqlite", "b.sqlite", "both.sqlite"].map(|name| directory.path().join(name));
        let files = files(directory.path(), 2);
        combine(&joined, &files).unwrap();
        let text = format!("{HEAD}1,\"f(a, b)\",0,1746129778.99568\n2,\"f(a, b)\",0,1746129778.99568\n");
        assert_eq!(fs::read_to_string(&joined).unwrap(), text);
        for (database, process_id) in [(&b, 8), (&a, 9)] {
            let block =
                Mark { process_id, code_block: "it's".into(), position: Position::Stop, timestamp_s: 2.5 };
            File::create(database).unwrap();
            to_database(database, |take| take(block)).unwrap();
        }
        combine(&both, &[b, a]).unwrap();
        let mark = |process_id| (process_id, "it's".to_owned(), Position::Stop, 2.5);
        assert_eq!(read(&both), [mark(8), mark(9)]);
    }

    // Requirement: CMD-40
    #[test]
    fn file_that_can_not_be_written_is_named_once() {
        let directory = tempfile::tempdir().unwrap();
        let files = files(directory.path(), 1);
        let full = File::options().write(true).open("/dev/full").unwrap();
        let take_all = |take: TakeMark| marks::read(&files[0], take).map(|_| ());
        let error = to_csv(Path::new("new.csv"), full, take_all).unwrap_err();
        assert!(error.starts_with("\"new.csv\" cannot be written: No space left"), "{error}");
        let error = combine(&directory.path().join("none/new.csv"), &files).unwrap_err();
        assert_eq!(error.matches('"').count(), 2, "{error}");
    }

    // Requirement: CMD-40
    #[test]
    fn file_that_exists_stays_and_a_failed_one_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let mut files = files(directory.path(), 2);
        fs::write(path("old.csv"), "old").unwrap();
        let error = combine(&path("old.csv"), &files).unwrap_err();
        assert!(error.ends_with("old.csv\" exists: name a file that does not"), "{error}");
        assert_eq!(fs::read_to_string(path("old.csv")).unwrap(), "old");
        let error = combine(&path("new.sqlite"), &files).unwrap_err();
        assert!(error.contains("1.csv\" has another ending than \""), "{error}");
        files.push(path("old.csv"));
        let error = combine(&path("new.csv"), &files).unwrap_err();
        assert!(
            error.ends_with("old.csv\" is no sub-tracking file: it has no column \"process_id\""),
            "{error}"
        );
        fs::write(path("old.sqlite"), "old").unwrap();
        let error = combine(&path("new.sqlite"), &[path("old.sqlite")]).unwrap_err();
        assert!(error.ends_with("old.sqlite\" cannot be read: file is not a database"), "{error}");
        assert!(!path("new.csv").exists() && !path("new.sqlite").exists());
    }
}
