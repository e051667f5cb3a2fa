//! Reads tracking files back for `gpu-track report`. They can be gpu_tracker's own, too.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row};

use crate::bounded_lines;
use crate::model::report::Exit;
use crate::report::over_time::{self, Fixed, RecordedProcess, Recording};

/// Reads a file of one form. The error is a text to put behind the file's name.
type Reader = fn(&Path) -> Result<Recording, String>;

/// The extensions of tracking files, each with the reader of its form.
const FORMS: [(&str, Reader); 4] = [("csv", csv), ("jsonl", lines), ("pftrace", trace), ("sqlite", database)];

/// Reads a tracking file. Its extension says the form. `None`: the extension is not that of a tracking file.
///
/// # Errors
/// If the file can't be read or has another form. The error is a text to put behind the file's name.
#[must_use]
pub fn read(path: &Path) -> Option<Result<Recording, String>> {
    let extension = path.extension()?.to_str()?;
    let (_, reader) = FORMS.iter().find(|(form, _)| *form == extension)?;
    Some(reader(path))
}

/// Makes a text to put behind a file's name: that it can't be read, and why.
fn unreadable(error: impl std::fmt::Display) -> String {
    format!("cannot be read: {error}")
}

/// Reads a CSV file.
fn csv(path: &Path) -> Result<Recording, String> {
    over_time::from_csv(&fs::read_to_string(path).map_err(unreadable)?)
}

/// Reads a file of JSON lines. Such a file can be long, so only one line of its text is kept at a time.
fn lines(path: &Path) -> Result<Recording, String> {
    let mut failed: io::Result<()> = Ok(());
    let lines = bounded_lines(BufReader::new(File::open(path).map_err(unreadable)?));
    // `from_lines` takes no errors. So a line that can't be read ends the lines, and its error is returned afterwards.
    let lines = lines.map_while(|line| line.map_err(|error| failed = Err(error)).ok());
    let recording = over_time::from_lines(lines.map(|line| String::from_utf8_lossy(&line).into_owned()));
    failed.map_err(unreadable)?;
    Ok(recording)
}

/// Refuses a trace, because it lacks figures that a report is made of. A file that can't be opened gets its own error.
fn trace(path: &Path) -> Result<Recording, String> {
    File::open(path).map_err(unreadable)?;
    Err("is a trace: open it at ui.perfetto.dev. Files in .csv, .jsonl and .sqlite can be shown here".into())
}

/// Reads an SQLite database.
fn database(path: &Path) -> Result<Recording, String> {
    // SQLite must roll back what a killed run had begun to write, which needs permission to write. Without the permission, there
    // may be nothing to roll back.
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)
        .or_else(|_| Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY))
        .map_err(unreadable)?;
    tables(&connection).map_err(unreadable)?
}

/// Reads the tables of a database. The outer error is SQLite's. The inner one says that the tables are not those of a run.
fn tables(connection: &Connection) -> rusqlite::Result<Result<Recording, String>> {
    let fixed = "SELECT ram_unit, gpu_ram_unit, system_gpu_count FROM static_data";
    let fixed = connection.query_row(fixed, [], |row| {
        Ok(Fixed { ram_unit: row.get(0)?, gpu_ram_unit: row.get(1)?, gpus: whole(row, 2)? })
    })?;
    let mut statement = connection.prepare("SELECT * FROM data ORDER BY timestamp")?;
    let names: Vec<String> = statement.column_names().into_iter().map(str::to_owned).collect();
    let numbers = |row: &Row| (0..names.len()).map(|at| number(row, at)).collect();
    let rows: Vec<Vec<Option<f64>>> = statement.query_map([], numbers)?.collect::<Result<_, _>>()?;
    let mut recording = match over_time::from_table(&names, &rows, &fixed) {
        Ok(recording) => recording,
        Err(problem) => return Ok(Err(problem)),
    };
    let has_processes = "SELECT count(*) FROM sqlite_master WHERE name = 'processes'";
    // gpu_tracker has no such table.
    if connection.query_row(has_processes, [], |row| row.get::<_, i64>(0))? > 0 {
        recording.processes = Some(processes(connection)?);
    }
    Ok(Ok(recording))
}

/// Gives the number in a cell. `None`: the cell has no number.
fn number(row: &Row, at: usize) -> rusqlite::Result<Option<f64>> {
    Ok(match row.get_ref(at)? {
        ValueRef::Integer(number) => Some(number as f64),
        ValueRef::Real(number) => Some(number),
        ValueRef::Null | ValueRef::Text(_) | ValueRef::Blob(_) => None,
    })
}

/// Gives the count in a cell. `None`: the cell is empty, or its number is negative.
fn whole(row: &Row, at: usize) -> rusqlite::Result<Option<u64>> {
    Ok(row.get::<_, Option<i64>>(at)?.and_then(|number| u64::try_from(number).ok()))
}

/// Reads the processes of our table `processes`, in the order of their starts.
fn processes(connection: &Connection) -> rusqlite::Result<Vec<RecordedProcess>> {
    let mut statement = connection.prepare(
        "SELECT pid, start_ns, ppid, command, wall_s, is_still_running, exit_code, exit_signal, cpu_s, peak_rss_bytes
         FROM processes ORDER BY start_ns",
    )?;
    let process = |row: &Row| {
        Ok(RecordedProcess {
            pid: row.get(0)?,
            start_ns: whole(row, 1)?.unwrap_or(0),
            ppid: row.get(2)?,
            command: row.get(3)?,
            wall_s: row.get::<_, Option<f64>>(4)?.unwrap_or(0.0),
            is_still_running: row.get(5)?,
            exit: Exit { code: row.get(6)?, signal: row.get(7)? },
            cpu_s: row.get(8)?,
            peak_rss_bytes: whole(row, 9)?,
        })
    };
    statement.query_map([], process)?.collect()
}
