//! Reads tracking files for an analysis: the static data, which do not change during a run, then a row for each sample.

use std::io::BufReader;
use std::path::Path;

use rusqlite::types::ValueRef;
use serde_json::{Number, Value};

use super::csv::{self, Next, Rows};
use super::sqlite;
use super::{Form, named};
use crate::database::{DatabaseReader, unreadable};
use crate::report::sub_track::{Analysis, Analyzer, Blocks, Cell, Ordered};
use crate::sys::given_file;

/// Computes what the code blocks used, from the samples of a file. Also returns how many lines at the file's end are left out,
/// because it ends within a row.
///
/// # Errors
/// If the file can't be read or has another form. The error is a text to put after the file's name.
pub(super) fn analyze(path: &Path, blocks: Blocks) -> Result<(Analysis, u64), String> {
    match Form::from_extension(path)? {
        Form::Csv => analyze_csv(path, blocks),
        Form::Sqlite => Ok((analyze_database(path, blocks)?, 0)),
    }
}

/// Does what [`analyze`] does, for a CSV file.
fn analyze_csv(path: &Path, blocks: Blocks) -> Result<(Analysis, u64), String> {
    let mut rows = Rows::new(BufReader::new(given_file::open_rows(path)?));
    let mut next_line = || match rows.next().map_err(unreadable)? {
        Next::Row => Ok(rows.texts()),
        Next::End | Next::Torn(_) => Err("is no tracking file: it has fewer than three lines".to_owned()),
    };
    let static_names = next_line()?;
    let static_values = next_line()?;
    let names = next_line()?;
    // If there are fewer values than names, those of the last names are empty.
    let static_values = static_values.iter().map(String::as_str).chain(std::iter::repeat(""));
    let static_data: Ordered<Value> = static_names.into_iter().zip(static_values.map(static_value)).collect();
    let mut analyzer = Analyzer::new(&names, blocks)?;
    let mut cells = Vec::new();
    let torn_lines = rows.each(|row| {
        // A row with more or fewer cells is left out: another row was written into it, as on a full disk.
        if row.cells().len() == names.len() {
            cells.clear();
            cells.extend(row.cells().iter().map(|bytes| cell(bytes)));
            analyzer.add_row(&cells);
        }
        Ok(())
    })?;
    Ok((analyzer.finish(static_data), torn_lines))
}

/// A cell of the static data as JSON: null if it is empty, else a whole number, a number or a text. JSON has no infinite
/// number and no NaN, which become texts. A whole number of more than 64 bits is rounded.
fn static_value(cell: &str) -> Value {
    let whole = cell.parse().ok().and_then(Number::from_i128);
    let number = whole.or_else(|| cell.parse().ok().and_then(Number::from_f64));
    match number {
        Some(number) => Value::Number(number),
        None if cell.is_empty() => Value::Null,
        None => Value::String(cell.to_owned()),
    }
}

/// A cell of a sample. One that is empty or has no finite number is unknown.
fn cell(bytes: &[u8]) -> Cell {
    let has_word = |word: &str| bytes.trim_ascii().eq_ignore_ascii_case(word.as_bytes());
    match csv::number(bytes) {
        Some(number) => Cell::Number(number),
        None if ["", "nan", "inf", "-inf"].into_iter().any(has_word) => Cell::Unknown,
        None => Cell::Text,
    }
}

/// Does what [`analyze`] does, for the table `data` of a database. A row there is never torn.
fn analyze_database(path: &Path, blocks: Blocks) -> Result<Analysis, String> {
    let reader = DatabaseReader::open(path)?;
    let static_data = static_data(&reader)?;
    let names = reader.columns("data")?;
    let mut analyzer = Analyzer::new(&names, blocks)?;
    let mut cells = Vec::new();
    reader.rows("data", &names, |row| {
        cells.clear();
        for at in 0..names.len() {
            let value = row.get_ref(at).map_err(unreadable)?;
            cells.push(match (value, sqlite::number(value)) {
                (_, Some(number)) => Cell::Number(number),
                (ValueRef::Text(_), None) => Cell::Text,
                _ => Cell::Unknown,
            });
        }
        analyzer.add_row(&cells);
        Ok(())
    })?;
    Ok(analyzer.finish(static_data))
}

/// The samples of a database as CSV, for the Python module, which reads tables with pandas. The CSV has the names of the columns,
/// and a line for each row. What is no number and no text is empty.
///
/// # Errors
/// If the file can't be read or has another form. The error is a line that names it.
pub fn of_database_as_csv(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let mut written = || {
        let reader = DatabaseReader::open(path)?;
        let names = reader.columns("data")?;
        text = names.iter().map(|name| csv::cell(name)).collect::<Vec<_>>().join(",") + "\n";
        reader.rows("data", &names, |row| {
            let cell = |at| {
                Ok(match row.get_ref(at).map_err(unreadable)? {
                    ValueRef::Integer(number) => number.to_string(),
                    // Always with a point or an exponent, so that another reader takes it for a real number, too.
                    ValueRef::Real(number) => format!("{number:?}"),
                    ValueRef::Text(text) => csv::cell(&String::from_utf8_lossy(text)),
                    ValueRef::Null | ValueRef::Blob(_) => String::new(),
                })
            };
            text += &((0..names.len()).map(cell).collect::<Result<Vec<_>, String>>()?.join(",") + "\n");
            Ok(())
        })
    };
    written().map_err(|problem: String| named(path, &problem))?;
    Ok(text)
}

/// Reads the static data: the names of the columns of the table `static_data`, and the values in its first row.
fn static_data(reader: &DatabaseReader) -> Result<Ordered<Value>, String> {
    let names = reader.columns("static_data")?;
    let named_value = |row: &rusqlite::Row, at: usize, name: &String| {
        let value = match row.get_ref(at)? {
            ValueRef::Integer(number) => number.into(),
            ValueRef::Real(number) => Number::from_f64(number).map_or(Value::Null, Value::Number),
            ValueRef::Text(text) => String::from_utf8_lossy(text).into(),
            ValueRef::Null | ValueRef::Blob(_) => Value::Null,
        };
        Ok((name.clone(), value))
    };
    reader.first_row("static_data", &names, |row| {
        names.iter().enumerate().map(|(at, name)| named_value(row, at, name)).collect()
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn analyzed(text: &str) -> Result<(Analysis, u64), String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.csv");
        fs::write(&path, text).unwrap();
        analyze(&path, Blocks::default())
    }

    // Requirement: CMD-44
    #[test]
    fn rows_that_are_torn_are_left_out() {
        let text = "ram_unit,n_expected_cores,system_gpu_count\r\nbytes,2\r\nmain_ram,timestamp\r\n5,1.0\r\n7,2.\r\n6\r\n9,3.25";
        let (analysis, torn_lines) = analyzed(text).unwrap();
        assert_eq!(torn_lines, 1);
        let ram = analysis.overall.get("main_ram").unwrap();
        assert_eq!(ram.max, Number::from_f64(7.0));
        let fixed: Vec<_> = analysis.static_data.iter().collect();
        let expected = [
            ("ram_unit", &"bytes".into()),
            ("n_expected_cores", &2.into()),
            ("system_gpu_count", &Value::Null),
        ];
        assert_eq!(fixed, expected);
    }

    // Requirement: CMD-44
    #[test]
    fn database_with_a_generated_column_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.sqlite");
        let tables = "CREATE TABLE static_data (ram_unit TEXT); INSERT INTO static_data VALUES ('bytes');
            CREATE TABLE data (twice AS (main_ram * 2), main_ram INTEGER, timestamp FLOAT);
            INSERT INTO data VALUES (5, 1.0);";
        rusqlite::Connection::open(&path).unwrap().execute_batch(tables).unwrap();
        let error = analyze(&path, Blocks::default()).unwrap_err();
        assert_eq!(error, "has a generated column \"twice\" in its table \"data\", which is not read");
    }

    // Requirement: CMD-44
    #[test]
    fn other_files_are_refused() {
        assert_eq!(analyzed("a,b\n1,2\n").unwrap_err(), "is no tracking file: it has fewer than three lines");
        let marks = "process_id,code_block_name,position,timestamp\n7,b,0,1\n7,b,1,2\n";
        assert_eq!(analyzed(marks).unwrap_err(), "is no tracking file: it has no column \"timestamp\"");
        let other = analyze(Path::new("t.txt"), Blocks::default()).unwrap_err();
        assert_eq!(other, "has a name that ends in neither .csv nor .sqlite");
    }
}
