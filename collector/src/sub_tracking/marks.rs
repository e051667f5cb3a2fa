//! Reads sub-tracking files: each row is a mark, which says that a process entered or left a block of code. Its columns are
//! `process_id`, `code_block_name`, `position` (0: entered, 1: left) and `timestamp`.

use std::io::BufReader;
use std::path::Path;

use rusqlite::Row;
use rusqlite::types::ValueRef;

use super::Form;
use super::csv::{self, Rows};
use super::sqlite;
use crate::database::{DatabaseReader, unreadable};
use crate::report::sub_track::{Mark, Position};
use crate::sys::given_file;

/// The columns of a sub-tracking file.
pub(super) const COLUMNS: [&str; 4] = ["process_id", "code_block_name", "position", "timestamp"];

/// Reads a file, and hands its marks to `take`. Returns how many lines at its end are left out, because the file ends within a row.
///
/// # Errors
/// If the file can't be read or has another form. The error is a text to put after the file's name. An error of `take` is
/// returned as it is, and ends the reading.
pub(super) fn read(path: &Path, take: impl FnMut(Mark) -> Result<(), String>) -> Result<u64, String> {
    match Form::from_extension(path)? {
        Form::Csv => read_csv(path, take),
        Form::Sqlite => read_database(path, take).map(|()| 0),
    }
}

/// The position that a number in a file stands for. `None`: it stands for none.
fn position(number: i64) -> Option<Position> {
    match number {
        0 => Some(Position::Start),
        1 => Some(Position::Stop),
        _ => None,
    }
}

/// Makes a text to put after a file's name: that it has no such column.
fn lacks_column(column: &str) -> String {
    format!("is no sub-tracking file: it has no column \"{column}\"")
}

/// Does what [`read`] does, for a CSV file.
fn read_csv(path: &Path, mut take: impl FnMut(Mark) -> Result<(), String>) -> Result<u64, String> {
    let mut rows = Rows::new(BufReader::new(given_file::open_rows(path)?));
    let (head, indices) = rows.head(&COLUMNS, lacks_column)?;
    rows.each(|row| {
        // If `cat` joined several files, each has a head.
        if row.texts() == head {
            return Ok(());
        }
        let mark = mark(row.cells(), &indices).filter(|_| row.cells().len() == head.len());
        let line = row.line_number();
        take(mark.ok_or_else(|| format!("is no sub-tracking file: its line {line} is no mark"))?)
    })
}

/// Makes a mark of the cells of a row. `indices`: the index of each of [`COLUMNS`] among them. `None`: a cell is missing, or is not
/// of its column's type.
fn mark(cells: &[Vec<u8>], indices: &[usize]) -> Option<Mark> {
    let cell = |column: usize| cells.get(*indices.get(column)?).map(Vec::as_slice);
    let whole = |column| str::from_utf8(cell(column)?).ok()?.trim().parse::<i64>().ok();
    Some(Mark {
        process_id: whole(0)?,
        code_block: String::from_utf8_lossy(cell(1)?).into_owned(),
        position: position(whole(2)?)?,
        timestamp_s: csv::number(cell(3)?)?,
    })
}

/// Does what [`read`] does, for the table `data` of a database. A row there is never torn.
fn read_database(path: &Path, mut take: impl FnMut(Mark) -> Result<(), String>) -> Result<(), String> {
    let reader = DatabaseReader::open(path)?;
    let names = reader.columns("data")?;
    if let Some(missing) = COLUMNS.iter().find(|column| !names.iter().any(|name| name == *column)) {
        return Err(lacks_column(missing));
    }
    let mut count = 0_u64;
    reader.rows("data", &COLUMNS, |row| {
        count += 1;
        let mark = mark_of_row(row).map_err(unreadable)?;
        take(mark.ok_or_else(|| format!("is no sub-tracking file: its row {count} is no mark"))?)
    })
}

/// Makes a mark of a row with the cells of [`COLUMNS`]. `None`: a cell is empty, or is not of its column's type.
fn mark_of_row(row: &Row) -> rusqlite::Result<Option<Mark>> {
    let name = match row.get_ref(1)? {
        ValueRef::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
        // Another program can have stored a name of digits as a number.
        ValueRef::Integer(number) => Some(number.to_string()),
        _ => None,
    };
    let process_id = sqlite::whole(row.get_ref(0)?);
    let position = sqlite::whole(row.get_ref(2)?).and_then(position);
    let timestamp_s = sqlite::number(row.get_ref(3)?);
    let mark = || {
        Some(Mark {
            process_id: process_id?,
            code_block: name?,
            position: position?,
            timestamp_s: timestamp_s?,
        })
    };
    Ok(mark())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const HEAD: &str = "process_id,code_block_name,position,timestamp\n";

    fn marks(text: &str) -> Result<(Vec<Mark>, u64), String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("marks.csv");
        fs::write(&path, text).unwrap();
        let mut all = Vec::new();
        let torn_lines = read(&path, |mark| {
            all.push(mark);
            Ok(())
        })?;
        Ok((all, torn_lines))
    }

    // Requirement: CMD-44
    #[test]
    fn columns_are_found_by_their_names_and_a_torn_row_is_left_out() {
        let mark = |process_id, code_block: &str, position, timestamp_s| Mark {
            process_id,
            code_block: code_block.into(),
            position,
            timestamp_s,
        };
        let text = "timestamp,host,code_block_name,position,process_id\n1.5,n1,\"f(a, b)\",0,7\n2.5,n1,g,1,8";
        assert_eq!(marks(text), Ok((vec![mark(7, "f(a, b)", Position::Start, 1.5)], 1)));
        // Two files that `cat` joined.
        let text = format!("{HEAD}7,b,0,1\n{HEAD}7,b,1,2\n");
        let both = vec![mark(7, "b", Position::Start, 1.0), mark(7, "b", Position::Stop, 2.0)];
        assert_eq!(marks(&text), Ok((both, 0)));
        assert_eq!(marks(HEAD), Ok((vec![], 0)));
    }

    // Requirement: CMD-44
    #[test]
    fn stray_quote_in_a_name_loses_no_later_mark() {
        let later = "7,b,0,2\n7,b,1,3\n".repeat(1_000);
        let (all, torn_lines) = marks(&format!("{HEAD}7,5\" disk,0,1\n7,5\" disk,1,2\n{later}")).unwrap();
        assert_eq!((all.len(), all[0].code_block.as_str(), torn_lines), (2_002, "5\" disk", 0));
    }

    // Requirement: CMD-44
    #[test]
    fn what_is_no_mark_is_named_by_its_line() {
        for row in ["7,b,2,1.0", "7,b,0,nan", "x,b,0,1.0", "7,b,0", "7,b,0,1.0,9"] {
            let expected = Err("is no sub-tracking file: its line 3 is no mark".to_owned());
            assert_eq!(marks(&format!("{HEAD}7,b,0,1.0\n{row}\n")), expected, "{row}");
        }
        for text in ["", "main_ram,timestamp\n1,2\n", "process_id,code_block_name,position,timestamp"] {
            let error = marks(text).unwrap_err();
            assert_eq!(error, "is no sub-tracking file: it has no column \"process_id\"", "{text}");
        }
    }
}
