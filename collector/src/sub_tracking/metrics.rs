//! Reads files of metrics: each row is a value, with the columns `process_id`, `name`, `timestamp` and `value`.

use std::io::BufReader;
use std::path::Path;

use super::csv::{self, Rows};
use super::{named, torn_note};
use crate::report::metrics::MetricValue;
use crate::sys::given_file;

/// The columns of a file of metrics.
const COLUMNS: [&str; 4] = ["process_id", "name", "timestamp", "value"];

/// Reads a file, and hands its values to `take`. Returns lines for the user about rows that are left out.
///
/// # Errors
/// If it can't be read or has another form. The error is a line that names it.
pub fn read(path: &Path, take: impl FnMut(MetricValue)) -> Result<Vec<String>, String> {
    values(path, take).map_err(|problem| named(path, &problem))
}

/// Does what [`read`] does. An error is a text to put after the file's name.
fn values(path: &Path, mut take: impl FnMut(MetricValue)) -> Result<Vec<String>, String> {
    let mut rows = Rows::new(BufReader::new(given_file::open_rows(path)?));
    let lacks_column = |column: &str| format!("is no file of metrics: it has no column \"{column}\"");
    let (head, indices) = rows.head(&COLUMNS, lacks_column)?;
    // How many rows are no values.
    let mut others = 0_u64;
    let torn_lines = rows.each(|row| {
        let cells = row.cells();
        match value(cells, &indices).filter(|_| cells.len() == head.len()) {
            Some(value) => take(value),
            // Another head: processes that create the file at the same time each write one.
            None if row.texts() == head => {}
            // Another row was written into this one, as on a full disk.
            None => others += 1,
        }
        Ok(())
    })?;
    let mut notes = Vec::new();
    if others > 0 {
        notes.push(named(path, &format!("has {others} lines that are no metric: they are left out")));
    }
    notes.extend(torn_note(path, torn_lines));
    Ok(notes)
}

/// Makes a value of the cells of a row. `indices`: the index of each of [`COLUMNS`] among them. `None`: a cell is missing, or is
/// not of its column's type.
fn value(cells: &[Vec<u8>], indices: &[usize]) -> Option<MetricValue> {
    let cell = |column: usize| cells.get(*indices.get(column)?).map(Vec::as_slice);
    let text = |column| Some(str::from_utf8(cell(column)?).ok()?.trim());
    Some(MetricValue {
        process_id: text(0)?.parse().ok()?,
        name: String::from_utf8_lossy(cell(1)?).into_owned(),
        timestamp_s: csv::number(cell(2)?)?,
        // NaN and infinity are read, too: the loss of a training can be that.
        value: text(3)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const HEAD: &str = "process_id,name,timestamp,value\n";

    type Told = (i64, String, f64, f64);

    fn told(text: &str) -> Result<(Vec<Told>, Vec<String>), String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("m.csv");
        fs::write(&path, text).unwrap();
        let mut all = Vec::new();
        let notes = read(&path, |MetricValue { process_id, name, timestamp_s, value }| {
            all.push((process_id, name, timestamp_s, value));
        })?;
        let place = format!("\"{}\" ", path.display());
        Ok((all, notes.iter().map(|note| note.replace(&place, "")).collect()))
    }

    // Requirement: PY-27
    #[test]
    fn values_are_read_as_they_were_written() {
        let text = format!("{HEAD}7,loss,1.5,0.1\n8,\"a, \"\"b\"\"\",2.5,-1e-300\n{HEAD}7,loss,3.5,inf\n");
        let loss = |at_s, value| (7, "loss".to_owned(), at_s, value);
        let expected =
            vec![loss(1.5, 0.1), (8, "a, \"b\"".to_owned(), 2.5, -1e-300), loss(3.5, f64::INFINITY)];
        assert_eq!(told(&text), Ok((expected, vec![])));
        let (nan, _) = told(&format!("{HEAD}7,loss,1.5,nan\n")).unwrap();
        assert!(nan.len() == 1 && nan[0].3.is_nan());
    }

    // Requirement: PY-27
    #[test]
    fn what_is_no_metric_is_left_out_and_counted() {
        let text = format!("{HEAD}7,loss,1.7,loss,2.5,1\n7,loss,nan,1\n7,loss,2.5,1\n7,loss,2.5,x\n7,lo");
        let (all, notes) = told(&text).unwrap();
        assert_eq!(all, [(7, "loss".to_owned(), 2.5, 1.0)]);
        let expected = [
            "has 3 lines that are no metric: they are left out",
            "ends within a line: that line is left out",
        ];
        assert_eq!(notes, expected);
        assert_eq!(told(HEAD), Ok((vec![], vec![])));
        for text in ["", "process_id,code_block_name,position,timestamp\n7,b,0,1\n", "process_id,name"] {
            let error = told(text).unwrap_err();
            assert!(error.contains("is no file of metrics: it has no column \""), "{error}");
        }
    }
}
