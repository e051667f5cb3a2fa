//! Reads tracking files (the run over time, `--tf`) back for `gpu-track report` and `watch --replay`. The Python program gpu_tracker
//! also writes `.csv` and `.sqlite`; those are read, too.

use std::cmp::Ordering;

use std::io::{self, BufReader};
use std::path::Path;

use rusqlite::Row;
use rusqlite::types::ValueRef;

use crate::bounded_lines;
use crate::database::{DatabaseReader, unreadable};
use crate::model::ended_process::EndedProcess;
use crate::model::quality::Quality;
use crate::model::report::{Exit, ProcessUsage};
use crate::model::sorting::Sorting;
use crate::report::over_time::{self, Detail, Fixed, MOST_CELLS, Moment, Recording};
use crate::sys::given_file;

/// Reads a file of one form. The error is a text to put after the file's name.
type Reader = fn(&Path, Detail) -> Result<Recording, String>;

/// The extensions of tracking files, each with the reader of its form.
const FORMS: [(&str, Reader); 4] = [("csv", csv), ("jsonl", lines), ("pftrace", trace), ("sqlite", database)];

/// Maximum number of processes, and of entries of commands, that are kept in memory.
const MOST_PROCESSES: usize = 1 << 22;
/// The columns that are read of `static_data`, the table of what does not change.
const FIXED: [&str; 3] = ["ram_unit", "gpu_ram_unit", "system_gpu_count"];
/// Further columns of `static_data`. A table need not have them.
const MACHINE: [&str; 2] = ["n_expected_cores", "ram_system_capacity"];
/// The columns of `processes` that are read.
const PROCESS: [&str; 12] = [
    "pid",
    "start_ns",
    "ppid",
    "command",
    "wall_s",
    "is_still_running",
    "exit_code",
    "exit_signal",
    "cpu_s",
    "cpu_quality",
    "peak_rss_bytes",
    "peak_quality",
];

/// Reads a tracking file. Its extension says the form. `None`: the extension is not that of a tracking file.
///
/// # Errors
/// If the file can't be read or has another form. The error is a text to put after the file's name.
pub fn read(path: &Path, detail: Detail) -> Option<Result<Recording, String>> {
    let extension = path.extension()?.to_str()?;
    let (_, reader) = FORMS.iter().find(|(form, _)| *form == extension)?;
    Some(reader(path, detail))
}

/// Reads a CSV file.
fn csv(path: &Path, _: Detail) -> Result<Recording, String> {
    of_lines(path, |lines| over_time::from_csv(lines))?
}

/// Reads a file of JSON lines.
fn lines(path: &Path, detail: Detail) -> Result<Recording, String> {
    of_lines(path, |lines| over_time::from_lines(lines, detail))
}

/// Hands the lines of a file to `read`. The file can be long, so only one line of its text is kept at a time.
fn of_lines<T>(path: &Path, read: impl FnOnce(&mut dyn Iterator<Item = String>) -> T) -> Result<T, String> {
    let mut failed: io::Result<()> = Ok(());
    let lines = bounded_lines(BufReader::new(given_file::open_rows(path)?));
    // `read` takes no errors. So a line that can't be read ends the lines, and its error is returned afterwards.
    let lines = lines.map_while(|line| line.map_err(|error| failed = Err(error)).ok());
    let result = read(&mut lines.map(|line| String::from_utf8_lossy(&line).into_owned()));
    failed.map_err(unreadable)?;
    Ok(result)
}

/// Refuses a trace, because it lacks figures that a report is made of. A file that can't be opened gets its own error.
fn trace(path: &Path, _: Detail) -> Result<Recording, String> {
    given_file::open_rows(path)?;
    Err("is a trace: open it at ui.perfetto.dev. Files in .csv, .jsonl and .sqlite can be shown here".into())
}

/// The table of the commands in each sample.
const BY_COMMAND: &str = "samples_by_command";

/// Reads the commands at each row of `data` that has a time. `names` and `rows` are those of `data`, sorted by time.
fn moments(
    reader: &DatabaseReader,
    names: &[String],
    rows: &[Vec<Option<f64>>],
) -> Result<Vec<Moment>, String> {
    let Some(column) = names.iter().position(|name| name == "at_ns") else { return Ok(Vec::new()) };
    let times: Vec<f64> = rows.iter().filter_map(|row| row[column]).collect();
    let mut moments = vec![Moment::default(); times.len()];
    let mut count = 0;
    reader.rows(BY_COMMAND, known(BY_COMMAND, reader, &["at_ns", "command", "added_bytes"])?, |row| {
        if count == MOST_PROCESSES {
            return Err(too_many(count, "commands"));
        }
        count += 1;
        let cells = |row: &Row| Ok((number(row, 0)?, row.get::<_, String>(1)?, whole(row, 2)?));
        let (at_ns, command, added_bytes) = cells(row).map_err(|error: rusqlite::Error| unreadable(error))?;
        let place = at_ns.and_then(|at_ns| times.binary_search_by(|time| time.total_cmp(&at_ns)).ok());
        // A command whose RAM is not known can't be drawn.
        if let (Some(place), Some(bytes)) = (place, added_bytes) {
            moments[place].commands.push((command.into(), bytes));
        }
        Ok(())
    })?;
    Ok(moments)
}

/// Reads an SQLite database.
fn database(path: &Path, detail: Detail) -> Result<Recording, String> {
    let reader = DatabaseReader::open(path)?;
    let mut fixed = reader.first_row("static_data", known("static_data", &reader, &FIXED)?, |row| {
        let (ram_unit, gpu_ram_unit, gpus) = (row.get(0)?, row.get(1)?, whole(row, 2)?);
        Ok(Fixed { ram_unit, gpu_ram_unit, gpus, ..Fixed::default() })
    })?;
    if let Ok(columns) = known("static_data", &reader, &MACHINE) {
        (fixed.cores, fixed.ram_capacity) =
            reader.first_row("static_data", columns, |row| Ok((whole(row, 0)?, number(row, 1)?)))?;
    }
    // `data` has a row for each sample.
    let names = reader.columns("data")?;
    let mut rows: Vec<Vec<Option<f64>>> = Vec::new();
    reader.rows("data", &names, |row| {
        if rows.len() == MOST_CELLS / names.len() {
            return Err(too_many(rows.len(), "samples"));
        }
        rows.push((0..names.len()).map(|at| number(row, at)).collect::<Result<_, _>>().map_err(unreadable)?);
        Ok(())
    })?;
    // `timestamp` is by the clock of the day, which can be set during a run, but gpu_tracker's own files have no `at_ns`.
    let place = |wanted: &str| names.iter().position(|name| name == wanted);
    if let Some(place) = place("at_ns").or_else(|| place("timestamp")) {
        rows.order_by(|a, b| a[place].partial_cmp(&b[place]).unwrap_or(Ordering::Equal));
    }
    let mut recording = over_time::from_table(&names, &rows, &fixed)?;
    if detail == Detail::Moments && reader.columns_if_any(BY_COMMAND)?.is_some() {
        recording.moments = moments(&reader, &names, &rows)?;
    }
    // gpu_tracker's own files have no such table.
    if reader.columns_if_any("processes")?.is_some() {
        recording.processes = Some(processes(&reader)?);
    }
    Ok(recording)
}

/// Returns `names`, the columns to read, if the table has all of them. An error names the first that is missing.
fn known<'a, const N: usize>(
    table: &str,
    reader: &DatabaseReader,
    names: &'a [&'a str; N],
) -> Result<&'a [&'a str; N], String> {
    let columns = reader.columns(table)?;
    match names.iter().find(|name| !columns.iter().any(|column| column == *name)) {
        None => Ok(names),
        Some(missing) => Err(format!("has no column \"{missing}\" in its table \"{table}\"")),
    }
}

/// Makes a text to put after a file's name: that it has more rows than are kept in memory.
fn too_many(read: usize, what: &str) -> String {
    format!("has more than {read} {what}, the most that are read")
}

/// The number in a cell. `None`: the cell has no number.
fn number(row: &Row, at: usize) -> rusqlite::Result<Option<f64>> {
    Ok(match row.get_ref(at)? {
        ValueRef::Integer(number) => Some(number as f64),
        ValueRef::Real(number) => Some(number).filter(|number| number.is_finite()),
        ValueRef::Null | ValueRef::Text(_) | ValueRef::Blob(_) => None,
    })
}

/// The whole number in a cell. `None`: the cell is empty, or its number is negative.
fn whole(row: &Row, at: usize) -> rusqlite::Result<Option<u64>> {
    Ok(row.get::<_, Option<i64>>(at)?.and_then(|number| u64::try_from(number).ok()))
}

/// Reads the table `processes`, which gpu_tracker does not have, and sorts the processes by their starts.
fn processes(reader: &DatabaseReader) -> Result<Vec<EndedProcess>, String> {
    let quality = |name: String| serde_json::from_value(name.into()).unwrap_or(Quality::Unknown);
    // The numbers are places in [`PROCESS`].
    let process = |row: &Row| {
        let usage = ProcessUsage {
            pid: row.get(0)?,
            ppid: row.get(2)?,
            command: row.get(3)?,
            args: None,
            wall_s: row.get::<_, Option<f64>>(4)?.unwrap_or(0.0),
            exit: Exit { code: row.get(6)?, signal: row.get(7)? },
            cpu_s: row.get(8)?,
            cpu_quality: quality(row.get(9)?),
            peak_rss_bytes: whole(row, 10)?,
            peak_quality: quality(row.get(11)?),
            gpu: None,
        };
        let start_ns = whole(row, 1)?.unwrap_or(0);
        Ok(EndedProcess { start_ns, is_still_running: row.get(5)?, usage })
    };
    let mut all = Vec::new();
    reader.rows("processes", known("processes", reader, &PROCESS)?, |row| {
        if all.len() == MOST_PROCESSES {
            return Err(too_many(all.len(), "processes"));
        }
        all.push(process(row).map_err(|error: rusqlite::Error| unreadable(error))?);
        Ok(())
    })?;
    all.order_by_key(|process| process.start_ns);
    Ok(all)
}
