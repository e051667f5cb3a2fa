//! `--tf FILE.sqlite`: the run over time as a database. Its tables `static_data` and `data` have the form of gpu_tracker 5.0.1,
//! whose `sub-track analyze` reads them. [`tables`] has the others.
//!
//! Rows and processes are gathered, and written once a second in one transaction. So the database is locked only for a moment, and
//! programs can read it between transactions.
//!
//! - `journal_mode=PERSIST`: a write-ahead log needs shared memory, which network file systems lack. The journal file stays, so
//!   that no transaction creates or removes a file. It is removed at the end.
//! - `synchronous=OFF`: no write waits for the disk. A kill of the process loses nothing that was written, but a crash of the
//!   machine can.
//!
//! SQLite finds the database by its name. So the launcher refuses a directory where another user could put another file in its place.

mod nodes;
mod tables;

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use rusqlite::{Connection, Error, ErrorCode};

use super::columns::{DataRow, Form, Gpus};
use super::intervals::{Intervals, Row};
use crate::database;
use crate::model::ended_process::EndedProcess;
use crate::model::ended_task::EndedTask;
use crate::model::report::{Report, Stage};
use crate::model::style::StreamFile;
use crate::model::tree_sample::{ItemKind, TreeSample, Wants};
use crate::run::task_summary::TaskSummary;
use crate::run::tree::ProcessSummary;
use crate::sinks::output::check_same;
use crate::sinks::sink::{Loss, Resume, Sink, SinkContext};
use crate::sys::clock;
pub(super) use nodes::write as write_nodes;

/// How long rows and processes are gathered for a transaction.
const BETWEEN: Duration = Duration::from_secs(1);
/// How long a transaction waits while another program has the database locked. At the end of the run, sinks have half a second.
const BUSY: Duration = Duration::from_millis(100);
/// How long the open waits for that. It can wait longer: without it there are no rows at all, and meanwhile samples wait in the queue of
/// the sink's thread.
const BUSY_AT_OPEN: Duration = Duration::from_secs(10);
/// A batch that has this many rows and processes is written before it is due.
const BATCH_ROWS: usize = 4096;
/// Maximum number of rows and processes that are kept while another program has the database locked.
const MOST_KEPT: usize = 65_536;
/// How many times the last transaction is tried.
const LAST_TRIES: u32 = 3;

/// What is gathered for a transaction.
#[derive(Default)]
struct Batch {
    rows: Vec<DataRow>,
    processes: Vec<EndedProcess>,
    tasks: Vec<EndedTask>,
    /// CLOCK_REALTIME - CLOCK_MONOTONIC, nanoseconds.
    epoch_ns: u64,
}

impl Batch {
    /// The number of rows, processes and tasks.
    fn len(&self) -> usize {
        self.rows.len() + self.processes.len() + self.tasks.len()
    }
}

struct Database {
    target: StreamFile,
    form: Form,
    intervals: Intervals,
    /// `None`: the sink is not open.
    connection: Option<Connection>,
    batch: Batch,
    /// When the batch is to be written. `None`: nothing is to be written.
    due: Option<Instant>,
    loss: Loss,
}

/// The sink of a file.
pub(super) fn make(context: &SinkContext, target: StreamFile) -> Box<dyn Sink> {
    Box::new(Database::new(target, Form::from_context(context), context.config.tracking.interval_ns()))
}

impl Sink for Database {
    fn name(&self) -> String {
        super::name(&self.target)
    }

    /// Opens the database, and reads the key of its last row, so that no sample is written twice.
    fn open(&mut self, _resume: Resume) -> io::Result<()> {
        check_file(&self.target)?;
        let open = || -> rusqlite::Result<(Connection, u64)> {
            let connection = database::open_to_write(&self.target.path)?;
            connection.busy_timeout(BUSY_AT_OPEN)?;
            connection.pragma_update(None, "journal_mode", "PERSIST")?;
            // The first access rolls back what a killed collector had begun.
            let last_ns = tables::last_key(&connection)?;
            connection.busy_timeout(BUSY)?;
            Ok((connection, last_ns))
        };
        let (connection, last_ns) = open().map_err(io::Error::other)?;
        // SQLite opened the database by its name, which must still be that of the launcher's file.
        check_file(&self.target)?;
        self.intervals.last_ns = last_ns;
        self.connection = Some(connection);
        Ok(())
    }

    fn wants(&self) -> Wants {
        Wants::from([ItemKind::Sample, ItemKind::Ended, ItemKind::Tasks])
    }

    fn sample(&mut self, sample: &TreeSample) -> io::Result<()> {
        let Some(row) = self.intervals.add(sample) else { return Ok(()) };
        self.gather_row(row);
        self.write_if_due()
    }

    fn process_ended(&mut self, process: &ProcessSummary) -> io::Result<()> {
        self.gather(|batch| batch.processes.push(process.ended()));
        self.write_if_due()
    }

    fn tasks_ended(&mut self, tasks: &[TaskSummary]) -> io::Result<()> {
        self.gather(|batch| batch.tasks.extend(tasks.iter().map(TaskSummary::ended)));
        self.write_if_due()
    }

    /// Writes all that was gathered, the samples that wait as the last row, and the report's figures of the GPUs.
    fn report(&mut self, report: &Report, _stage: Stage) -> io::Result<()> {
        if let Some(last) = self.intervals.take_rest() {
            self.gather_row(last);
        }
        self.finish(Gpus::from_report(report))
    }

    fn due(&self) -> Option<Instant> {
        self.due
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.due.is_some() { self.write(None) } else { Ok(()) }
    }

    fn is_written(&self) -> bool {
        self.due.is_none() && self.intervals.is_empty()
    }

    fn loss(&self) -> Loss {
        self.loss.clone()
    }
}

/// Checks that the file at the target's path is the one that the launcher made.
///
/// It is not opened for that, because a close would release the locks that SQLite has on it (fcntl(2)).
fn check_file(target: &StreamFile) -> io::Result<()> {
    check_same(target, &fs::symlink_metadata(&target.path)?)
}

impl Database {
    fn new(target: StreamFile, form: Form, interval_ns: u64) -> Self {
        let intervals = Intervals::new(interval_ns);
        Self {
            target,
            form,
            intervals,
            connection: None,
            batch: Batch::default(),
            due: None,
            loss: Loss::default(),
        }
    }

    /// Adds to the batch with `add`. If nothing was to be written yet, the batch is now due after [`BETWEEN`].
    fn gather(&mut self, add: impl FnOnce(&mut Batch)) {
        if self.due.is_none() {
            self.due = Some(Instant::now() + BETWEEN);
            self.batch.epoch_ns = clock::realtime_ns().saturating_sub(clock::monotonic_ns());
        }
        add(&mut self.batch);
    }

    /// Adds a row to the batch.
    fn gather_row(&mut self, row: Row) {
        let form = self.form;
        self.gather(|batch| batch.rows.push(DataRow { form, interval: row, epoch_ns: batch.epoch_ns }));
    }

    /// Writes the batch, if it is due or has just got [`BATCH_ROWS`] rows and processes.
    fn write_if_due(&mut self) -> io::Result<()> {
        let is_due = self.due.is_some_and(|due| due <= Instant::now());
        // Not `>=`: a larger batch has found the database locked, or has many tasks that ended at once. It is tried only once a second
        // (`due`).
        let is_full = self.batch.len() == BATCH_ROWS;
        if is_due || is_full { self.write(None) } else { Ok(()) }
    }

    /// Writes the batch, and at the end of the run also `gpus`, and empties the batch.
    ///
    /// If another program has the database locked, the batch stays, and is due again after [`BETWEEN`]. It is lost if it has
    /// [`MOST_KEPT`] rows and processes then, or if there is no space.
    fn write(&mut self, gpus: Option<Gpus>) -> io::Result<()> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        let Err(error) = tables::write(connection, self.form, &self.batch, gpus) else {
            (self.batch, self.due) = (Batch::default(), None);
            return Ok(());
        };
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy) if self.batch.len() < MOST_KEPT => {
                self.due = Some(Instant::now() + BETWEEN);
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DiskFull | ErrorCode::SystemIoFailure) => {
                self.lose(&error);
            }
            _ => return Err(io::Error::other(error)),
        }
        Ok(())
    }

    /// Drops the batch, and counts it as lost. Later rows may find space.
    fn lose(&mut self, error: &Error) {
        // If only the GPUs were to be written, they count as one line.
        self.loss.lines += self.batch.len().max(1) as u64;
        self.loss.error.get_or_insert(error.to_string());
        (self.batch, self.due) = (Batch::default(), None);
    }

    /// Writes the batch and the GPUs, and removes the journal. Another program may have the database locked, so this tries
    /// [`LAST_TRIES`] times, and then counts the batch as lost.
    fn finish(&mut self, gpus: Gpus) -> io::Result<()> {
        // gpu_tracker's reader fails on tables without rows, so the GPUs alone make no tables.
        let has_rows = !self.batch.rows.is_empty() || self.intervals.last_ns > 0;
        // The GPUs have to be written even if nothing else waits.
        self.due = self.due.or(has_rows.then(Instant::now));
        for _ in 0..LAST_TRIES {
            // A try that found the database locked leaves `due` set.
            if self.due.is_some() {
                self.write(has_rows.then_some(gpus))?;
            }
        }
        if self.due.is_some() {
            self.lose(&Error::SqliteFailure(
                rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY),
                Some("another program has the database locked".into()),
            ));
        }
        if let Some(connection) = &self.connection {
            // The journal stays if another program reads the database at this moment, or there is no space. It does no harm.
            let _ = connection.pragma_update(None, "journal_mode", "DELETE");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, chown, symlink};
    use std::path::Path;
    use std::sync::Arc;

    use gpu_track_core::fixtures;

    use super::*;
    use crate::model::gpu::{Device, Figure};
    use crate::model::groups::Groups;
    use crate::model::report::{ProcessUsage, TaskUsage};
    use crate::model::style::{RamUnit, TimeUnit};
    use crate::model::tree_sample::{CommandSample, GpuSample, Span};
    use crate::sinks::tracking::TrackingFile;

    const MS: u64 = 1_000_000;

    fn sink(target: StreamFile) -> Database {
        let form = Form {
            ram_unit: RamUnit::Bytes,
            gpu_ram_unit: RamUnit::Bytes,
            time_unit: TimeUnit::Hours,
            ram_bytes: Some(8_000_000_000),
            cores: 4,
            expected_cores: 2,
        };
        let mut sink = Database::new(target, form, 100 * MS);
        sink.open(Resume::Continued).unwrap();
        sink
    }

    fn sample(n: u64) -> TreeSample {
        let all = Groups { main: n, descendants: 0, combined: n };
        TreeSample {
            from_ns: (n - 1) * 100 * MS,
            at_ns: n * 100 * MS,
            footprint_bytes: all.map(Span::at_end),
            commands: vec![CommandSample { command: "a".into(), processes: n, ..CommandSample::default() }],
            ..TreeSample::default()
        }
    }

    fn process(n: u64) -> EndedProcess {
        let usage = ProcessUsage { pid: 7, ..fixtures::full().processes.heaviest[0].usage.clone() };
        EndedProcess { start_ns: n, is_still_running: false, usage }
    }

    /// A task with this number, after so many processes. Some of it is unknown.
    fn task(n: u64, processes: u64) -> EndedTask {
        let name = "a\tb\nc'; DROP TABLE tasks".into();
        let usage =
            TaskUsage { id: n as u32, name, processes, cpu_s: None, ..fixtures::tasks().swap_remove(1) };
        EndedTask { start_ns: n, end_ns: n + 1, usage, began_ns: None, around: Vec::new() }
    }

    fn give(sink: &mut Database, numbers: std::ops::RangeInclusive<u64>) {
        for n in numbers {
            sink.sample(&sample(n)).unwrap();
            sink.gather(|batch| batch.processes.push(process(n)));
            // Each task ends twice.
            sink.gather(|batch| batch.tasks.extend([task(n, n), task(n, n + 100)]));
        }
    }

    fn new_file(directory: &tempfile::TempDir) -> TrackingFile {
        TrackingFile::create(directory.path().canonicalize().unwrap().join("t.sqlite"), false).unwrap()
    }

    fn numbers(path: &Path, sql: &str) -> Vec<i64> {
        let connection = Connection::open(path).unwrap();
        let mut statement = connection.prepare(sql).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    // Requirement: TIME-12, TIME-2
    #[test]
    fn successor_goes_on_after_the_last_transaction_and_nothing_is_there_twice() {
        let directory = tempfile::tempdir().unwrap();
        let file = new_file(&directory);
        let path = file.target().path;
        let mut first = sink(file.target());
        give(&mut first, 1..=20);
        assert!(!first.is_written());
        first.flush().unwrap();
        assert!(first.is_written());
        // Gathered, and never written.
        give(&mut first, 21..=30);
        drop(first);
        let mut next = sink(file.target());
        give(&mut next, 15..=40);
        next.report(&fixtures::full(), Stage::Over).unwrap();
        let expected: Vec<i64> = (1..=40).collect();
        assert_eq!(numbers(&path, "SELECT at_ns / 100000000 FROM data ORDER BY rowid"), expected);
        assert_eq!(numbers(&path, "SELECT start_ns FROM processes ORDER BY start_ns"), expected);
        assert_eq!(numbers(&path, "SELECT processes FROM samples_by_command ORDER BY at_ns"), expected);
        assert_eq!(numbers(&path, "SELECT processes - 100 FROM tasks ORDER BY id"), expected);
        let whole = "SELECT count(*) FROM tasks WHERE name = 'a' || char(9) || 'b' || char(10) || 'c''; DROP TABLE tasks'
            AND cpu_s IS NULL AND parent = 2 AND kind = 'parallel' AND peak_quality = 'exact' AND exit_signal = 9
            AND write_bytes = 8192 AND start_timestamp > 1e9 AND end_timestamp >= start_timestamp AND failed_starts = 1";
        assert_eq!(numbers(&path, whole), [40]);
        assert_eq!(numbers(&path, "SELECT count(*) FROM static_data"), [1]);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "the journal is gone");
        assert_eq!(next.loss(), Loss::default());
    }

    // Requirement: TIME-4
    #[test]
    fn rows_wait_while_another_program_has_the_database_locked() {
        let directory = tempfile::tempdir().unwrap();
        let file = new_file(&directory);
        let mut sink = sink(file.target());
        give(&mut sink, 1..=2);
        let other = Connection::open(file.target().path).unwrap();
        other.execute_batch("BEGIN EXCLUSIVE").unwrap();
        sink.flush().unwrap();
        assert!(!sink.is_written() && sink.due().is_some() && sink.loss().lines == 0);
        other.execute_batch("ROLLBACK").unwrap();
        sink.flush().unwrap();
        assert!(sink.is_written() && sink.due().is_none());
        assert_eq!(numbers(&file.target().path, "SELECT count(*) FROM data"), [2]);
        // At the end there is no time to wait.
        give(&mut sink, 3..=4);
        other.execute_batch("BEGIN EXCLUSIVE").unwrap();
        sink.report(&fixtures::full(), Stage::Over).unwrap();
        let loss = sink.loss();
        assert!(loss.lines == 8 && loss.error.unwrap().contains("locked"));
    }

    // Requirement: TIME-12
    #[test]
    fn successor_waits_for_a_program_that_has_the_database_locked() {
        let directory = tempfile::tempdir().unwrap();
        let file = new_file(&directory);
        let other = Connection::open(file.target().path).unwrap();
        other.execute_batch("BEGIN EXCLUSIVE").unwrap();
        let locking = std::thread::spawn(move || {
            std::thread::sleep(3 * BUSY);
            other.execute_batch("ROLLBACK").unwrap();
        });
        let mut next = sink(file.target());
        locking.join().unwrap();
        give(&mut next, 1..=2);
        next.flush().unwrap();
        assert!(next.is_written());
    }

    // Requirement: TIME-12
    #[test]
    fn each_gpu_has_a_row_and_what_is_not_known_is_null() {
        let directory = tempfile::tempdir().unwrap();
        let file = new_file(&directory);
        let mut sink = sink(file.target());
        let device = |id: &str| Arc::new(Device { id: id.into(), ..Device::default() });
        let mut one = sample(1);
        one.gpu.devices = vec![
            GpuSample {
                device: device("GPU-a"),
                used_bytes: Some(5),
                gauges: [(Figure::Power, 70.5), (Figure::Pstate, 2.0)].into(),
                ..GpuSample::default()
            },
            GpuSample { device: device("GPU-b"), ..GpuSample::default() },
        ];
        sink.sample(&one).unwrap();
        sink.flush().unwrap();
        let path = file.target().path;
        let has = |gpu: &str, column: &str| {
            let sql = format!("SELECT count(*) FROM gpus WHERE gpu = '{gpu}' AND {column}");
            numbers(&path, &sql) == [1]
        };
        assert!(has("GPU-a", "used_bytes = 5 AND power_w = 70.5 AND pstate = 2 AND temperature_c IS NULL"));
        assert!(has("GPU-b", "used_bytes IS NULL AND combined_bytes IS NULL AND read_ns IS NULL"));
    }

    // Requirement: TIME-5
    #[test]
    fn another_file_of_the_name_is_not_written_to() {
        let directory = tempfile::tempdir().unwrap();
        let file = new_file(&directory);
        let path = file.target().path;
        let mut sink = sink(file.target());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "not to be touched").unwrap();
        assert!(sink.open(Resume::New).unwrap_err().to_string().contains("another file"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "not to be touched");
    }

    /// The names beside the database, each with its mode and the number of its links.
    fn beside(directory: &tempfile::TempDir) -> Vec<(String, u32, u64)> {
        let file = |entry: io::Result<fs::DirEntry>| {
            let entry = entry.unwrap();
            let found = fs::symlink_metadata(entry.path()).unwrap();
            (entry.file_name().into_string().unwrap(), found.mode() & 0o777, found.nlink())
        };
        let mut all: Vec<_> = fs::read_dir(directory).unwrap().map(file).collect();
        all.retain(|(name, ..)| name != "t.sqlite");
        all.sort();
        all
    }

    // Requirement: SQL-3
    #[test]
    fn journal_is_there_from_the_start_and_of_this_user_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.sqlite-journal");
        // That of an earlier run is not this one's.
        fs::write(&path, "old").unwrap();
        let file = new_file(&directory);
        let journal = ("t.sqlite-journal".to_owned(), 0o600, 1);
        assert_eq!(beside(&directory), std::slice::from_ref(&journal));
        assert_eq!(fs::read(&path).unwrap(), b"");
        let mut sink = sink(file.target());
        give(&mut sink, 1..=20);
        sink.flush().unwrap();
        assert_eq!(beside(&directory), [journal]);
        assert!(path.metadata().unwrap().len() > 0);
        sink.report(&fixtures::full(), Stage::Over).unwrap();
        assert_eq!(beside(&directory), []);
        // Without rows, nothing stays.
        drop(sink);
        fs::remove_file(file.target().path).unwrap();
        drop(new_file(&directory));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    // Requirement: SQL-3
    #[test]
    fn file_of_another_user_in_place_of_the_journal_is_refused_and_stays() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: needs root, for a file of another user");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let [path, journal] = ["t.sqlite", "t.sqlite-journal"].map(|name| directory.path().join(name));
        fs::write(&path, "old").unwrap();
        fs::write(&journal, "theirs").unwrap();
        chown(&journal, Some(12_345), None).unwrap();
        for overwrite in [false, true] {
            let made = TrackingFile::create(path.canonicalize().unwrap(), overwrite);
            let problem = made.unwrap_err().to_string();
            assert!(!overwrite || problem.contains("t.sqlite-journal is there, of user 12345"), "{problem}");
        }
        assert_eq!(fs::read(&path).unwrap(), b"old");
        // One that comes in its place while the run goes on.
        fs::remove_file(&journal).unwrap();
        fs::remove_file(&path).unwrap();
        let file = new_file(&directory);
        let mut sink = sink(file.target());
        give(&mut sink, 1..=2);
        fs::remove_file(&journal).unwrap();
        fs::write(&journal, "theirs").unwrap();
        chown(&journal, Some(12_345), None).unwrap();
        assert!(sink.flush().is_err());
        assert_eq!(fs::read(&journal).unwrap(), b"theirs");
        // One that would have this user write into another file.
        let other = directory.path().join("other");
        fs::remove_file(&journal).unwrap();
        fs::write(&other, "").unwrap();
        for link in [fs::hard_link::<&Path, &Path>, symlink] {
            link(&other, &journal).unwrap();
            assert!(sink.flush().is_err());
            fs::remove_file(&journal).unwrap();
        }
        assert_eq!(fs::read(&other).unwrap(), b"");
        sink.flush().unwrap();
    }

    // Requirement: SQL-3
    #[test]
    fn write_ahead_log_that_comes_beside_it_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        // The log of another database of this form: its pages would take the place of ours.
        let other = tempfile::tempdir().unwrap();
        let from = new_file(&other);
        let mut writer = sink(from.target());
        give(&mut writer, 1..=1);
        writer.flush().unwrap();
        let connection = Connection::open(from.target().path).unwrap();
        connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
        connection.execute_batch("DELETE FROM data; DELETE FROM processes").unwrap();
        let file = new_file(&directory);
        let mut first = sink(file.target());
        give(&mut first, 1..=1);
        first.flush().unwrap();
        let log = directory.path().join("t.sqlite-wal");
        fs::copy(other.path().join("t.sqlite-wal"), &log).unwrap();
        let content = fs::read(&log).unwrap();
        give(&mut first, 2..=2);
        first.flush().unwrap();
        let mut next = sink(file.target());
        give(&mut next, 3..=3);
        next.report(&fixtures::full(), Stage::Over).unwrap();
        assert_eq!(fs::read(&log).unwrap(), content);
        fs::remove_file(&log).unwrap();
        assert_eq!(beside(&directory), []);
        assert_eq!(
            numbers(&file.target().path, "SELECT at_ns / 100000000 FROM data ORDER BY rowid"),
            [1, 2, 3]
        );
    }
}
