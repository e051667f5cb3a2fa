//! The rows of a tracking file.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// A tracking file.
pub struct Rows {
    /// What does not change.
    pub fixed: HashMap<String, String>,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

fn cells(line: &str) -> Vec<String> {
    line.trim_end().split(',').map(str::to_owned).collect()
}

impl Rows {
    /// Reads a file, whose lines must be whole.
    pub fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.ends_with('\n'), "its last line is torn: {text}");
        let lines: Vec<_> = text.lines().map(cells).collect();
        let [names, values, columns, rows @ ..] = &lines[..] else { panic!("{text}") };
        assert!(rows.iter().all(|row| row.len() == columns.len()), "{text}");
        let fixed = names.iter().cloned().zip(values.iter().cloned()).collect();
        Self { fixed, columns: columns.clone(), rows: rows.to_vec() }
    }

    /// A column, from the first row to the last.
    pub fn column(&self, name: &str) -> Vec<f64> {
        self.known(name).into_iter().map(|value| value.unwrap_or_else(|| panic!("{name} is empty"))).collect()
    }

    /// A column of which cells may be empty.
    pub fn known(&self, name: &str) -> Vec<Option<f64>> {
        let place = self.columns.iter().position(|column| column == name).unwrap();
        let parse = |row: &Vec<String>| row[place].parse().unwrap_or_else(|_| panic!("{name}: {row:?}"));
        self.rows.iter().map(|row| (!row[place].is_empty()).then(|| parse(row))).collect()
    }

    /// The largest value of a column of which cells may be empty.
    pub fn known_max(&self, name: &str) -> f64 {
        self.known(name).into_iter().flatten().fold(f64::NEG_INFINITY, f64::max)
    }

    /// The largest value of a column.
    pub fn max(&self, name: &str) -> f64 {
        self.column(name).into_iter().fold(f64::NEG_INFINITY, f64::max)
    }

    /// The value of a column in the last row.
    pub fn last(&self, name: &str) -> f64 {
        *self.column(name).last().unwrap()
    }

    /// Keys of the rows, CLOCK_MONOTONIC nanoseconds.
    pub fn keys(&self) -> Vec<u64> {
        self.column("at_ns").into_iter().map(|at_ns| at_ns as u64).collect()
    }
}

/// The lines of a tracking file in the form .jsonl.
pub struct JsonLines(pub Vec<Value>);

impl JsonLines {
    /// Reads a file. Only its last line may be torn.
    pub fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let whole = &text[..text.rfind('\n').map_or(0, |last| last + 1)];
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        Self(whole.lines().map(parse).collect())
    }

    /// The lines of a kind.
    pub fn of(&self, kind: &str) -> Vec<&Value> {
        self.0.iter().map(|line| &line[kind]).filter(|line| !line.is_null()).collect()
    }

    /// Keys of the samples, CLOCK_MONOTONIC nanoseconds.
    pub fn keys(&self) -> Vec<u64> {
        self.of("sample").iter().map(|sample| sample["at_ns"].as_u64().unwrap()).collect()
    }

    /// Keys of the processes: pid and start.
    pub fn processes(&self) -> Vec<(u64, u64)> {
        let number = |process: &Value, key: &str| process[key].as_u64().unwrap();
        let of = self.of("process").into_iter();
        of.map(|process| (number(process, "pid"), number(process, "start_ns"))).collect()
    }
}

/// What the tables of a database have, as JSON: a list of columns and one of rows for each. Python's SQLite reads it.
const DUMP: &str = "import json, sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=60)
assert db.execute('PRAGMA integrity_check').fetchall() == [('ok',)]
tables = [name for name, in db.execute(\"SELECT name FROM sqlite_master WHERE type = 'table'\")]
def dump(name):
    found = db.execute('SELECT * FROM ' + name)
    return [dict(zip([column[0] for column in found.description], row)) for row in found]
print(json.dumps({name: dump(name) for name in tables}))";

/// A tracking file in the form .sqlite.
pub struct Database(Value);

impl Database {
    /// Reads a database, which must not be corrupt.
    pub fn read(path: &Path) -> Self {
        let read = Command::new("python3").args(["-c", DUMP]).arg(path).output().unwrap();
        assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
        Self(serde_json::from_slice(&read.stdout).unwrap())
    }

    /// The rows of a table, each with its columns; none if there is no such table.
    pub fn rows(&self, table: &str) -> &[Value] {
        self.0[table].as_array().map_or(&[], Vec::as_slice)
    }

    /// A column of which values may be null.
    pub fn known(&self, table: &str, name: &str) -> Vec<Option<f64>> {
        self.rows(table).iter().map(|row| row[name].as_f64()).collect()
    }

    /// A column.
    pub fn column(&self, table: &str, name: &str) -> Vec<f64> {
        let number = |row: &Value| row[name].as_f64().unwrap_or_else(|| panic!("{name}: {row}"));
        self.rows(table).iter().map(number).collect()
    }

    /// Keys of the rows of `data`, CLOCK_MONOTONIC nanoseconds.
    pub fn keys(&self) -> Vec<u64> {
        self.rows("data").iter().map(|row| row["at_ns"].as_u64().unwrap()).collect()
    }

    /// Keys of the processes: pid and start.
    pub fn processes(&self) -> Vec<(u64, u64)> {
        let number = |process: &Value, key: &str| process[key].as_u64().unwrap();
        let of = self.rows("processes").iter();
        of.map(|process| (number(process, "pid"), number(process, "start_ns"))).collect()
    }
}
