//! `--tf FILE.csv`: the run over time in the form of gpu_tracker 5.0.1, whose `sub-track analyze` reads it.
//!
//! ```text
//! ram_unit,gpu_ram_unit,...      what does not change; the row below has spare room, as GPUs are known later
//! gigabytes,gigabytes,...
//! main_ram,descendants_ram,...   gpu_tracker's columns, then ours
//! 0.0017,0.0,...                 a row for each interval
//! ```
//!
//! [`columns`](super::columns) has what the rows are, [`rows`](super::rows) how the lines are written.

use std::io;

use super::columns::{Column, DATA, DataRow, Fixed, Form, Gpus, STATIC};
use super::intervals::{Intervals, Row};
use super::rows::RowFile;
use crate::model::report::{Report, Stage};
use crate::model::style::StreamFile;
use crate::model::tree_sample::{ItemKind, TreeSample, Wants};
use crate::sinks::sink::{Loss, Resume, Sink, SinkContext};
use crate::sys::clock;

/// Bytes of the second line of the file, with its line break.
const STATIC_ROW: usize = 256;

struct CsvFile {
    target: StreamFile,
    form: Form,
    intervals: Intervals,
    rows: Option<RowFile>,
}

/// The sink of a file.
pub(super) fn make(context: &SinkContext, target: StreamFile) -> Box<dyn Sink> {
    let intervals = Intervals::new(context.config.tracking.interval_ns());
    Box::new(CsvFile { target, form: Form::from_context(context), intervals, rows: None })
}

impl Sink for CsvFile {
    fn name(&self) -> String {
        super::name(&self.target)
    }

    /// Opens the file, and reads the key of its last row, so that no sample is written twice.
    fn open(&mut self, _resume: Resume) -> io::Result<()> {
        let rows = RowFile::open(&self.target, head(self.form).len() as u64)?;
        // The key is `at_ns`, the last column. Spaces after it lengthen a row to the end of its page.
        let key = |row: &str| row.rsplit(',').next()?.trim().parse().ok();
        self.intervals.last_ns = rows.find_last(key)?.unwrap_or(0);
        self.rows = Some(rows);
        Ok(())
    }

    fn wants(&self) -> Wants {
        Wants::from([ItemKind::Sample])
    }

    fn sample(&mut self, sample: &TreeSample) -> io::Result<()> {
        self.intervals.add(sample).map_or(Ok(()), |row| self.write_row(row))
    }

    /// Writes the samples that wait as the last row. Then writes the second line again, with the report's figures of the GPUs.
    fn report(&mut self, report: &Report, _stage: Stage) -> io::Result<()> {
        if let Some(last) = self.intervals.take_rest() {
            self.write_row(last)?;
        }
        // A file without rows has no head, so no second line.
        match &self.rows {
            Some(rows) if !rows.is_empty() => {
                let second_line = names(STATIC).len() as u64 + 1;
                rows.replace(second_line, &static_row(self.form, Gpus::from_report(report)))
            }
            _ => Ok(()),
        }
    }

    fn is_written(&self) -> bool {
        self.intervals.is_empty()
    }

    fn loss(&self) -> Loss {
        self.rows.as_ref().map(RowFile::loss).unwrap_or_default()
    }
}

impl CsvFile {
    /// Writes a row. In an empty file, writes the head before it.
    fn write_row(&mut self, row: Row) -> io::Result<()> {
        let Some(rows) = &mut self.rows else { return Ok(()) };
        let mut lines = Vec::new();
        if rows.is_empty() {
            lines.push(head(self.form));
        }
        let epoch_ns = clock::realtime_ns().saturating_sub(clock::monotonic_ns());
        lines.push(line(self.form, row, epoch_ns) + "\n");
        rows.append(&lines).map(drop)
    }
}

/// The three lines before the first row: names and values of what does not change, and the names of the columns.
fn head(form: Form) -> String {
    format!("{}\n{}{}\n", names(STATIC), static_row(form, Gpus::default()), names(DATA))
}

/// The names of columns, with commas between them.
fn names<S>(columns: &[Column<S>]) -> String {
    columns.iter().map(|column| column.name).collect::<Vec<_>>().join(",")
}

/// The values that columns have for `source`, with commas between them.
fn values<S>(columns: &[Column<S>], source: &S) -> String {
    columns.iter().map(|column| (column.value)(source).to_string()).collect::<Vec<_>>().join(",")
}

/// The second line, with its line break. Spaces make it [`STATIC_ROW`] bytes long, so that it can be overwritten when the
/// GPUs are known.
fn static_row(form: Form, gpus: Gpus) -> String {
    format!("{:<width$}\n", values(STATIC, &Fixed { form, gpus }), width = STATIC_ROW - 1)
}

/// A row without its line break. `epoch_ns` is CLOCK_REALTIME - CLOCK_MONOTONIC.
fn line(form: Form, row: Row, epoch_ns: u64) -> String {
    values(DATA, &DataRow { form, interval: row, epoch_ns })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::model::groups::Groups;
    use crate::model::style::{RamUnit, TimeUnit};
    use crate::model::time_groups::ByTimeGroup;
    use crate::model::tree_sample::{GpuSample, MaximumSource, RamMaximum, Span, SystemSample};
    use crate::sinks::tracking::TrackingFile;
    use crate::sinks::tracking::rows::PAGE;

    const MS: u64 = 1_000_000;

    fn form() -> Form {
        Form {
            ram_unit: RamUnit::Megabytes,
            gpu_ram_unit: RamUnit::Megabytes,
            time_unit: TimeUnit::Hours,
            ram_bytes: Some(8_000_000_000),
            cores: 4,
            expected_cores: 2,
        }
    }

    fn sample(from_ms: u64, at_ms: u64, bytes: u64) -> TreeSample {
        let all = |bytes| Groups { main: bytes, descendants: 0, combined: bytes };
        TreeSample {
            from_ns: from_ms * MS,
            at_ns: at_ms * MS,
            footprint_bytes: all(bytes).map(Span::at_end),
            max_ram: all(bytes).map(|bytes| RamMaximum { bytes, source: MaximumSource::Sample }),
            ..TreeSample::default()
        }
    }

    fn new_sink(target: StreamFile) -> CsvFile {
        CsvFile { target, form: form(), intervals: Intervals::new(100 * MS), rows: None }
    }

    fn sink(target: StreamFile) -> CsvFile {
        let mut sink = new_sink(target);
        sink.open(Resume::Continued).unwrap();
        sink
    }

    /// The rows of a file, each with its combined RAM and its key in milliseconds.
    fn rows(path: &Path) -> Vec<(f64, u64)> {
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'), "{text}");
        let cells = |line: &str| line.trim().split(',').map(str::to_owned).collect::<Vec<_>>();
        let columns = cells(text.lines().nth(2).unwrap_or_default());
        let place = |name: &str| columns.iter().position(|column| column == name).unwrap();
        let row = |line: &str| {
            let cells = cells(line);
            assert_eq!(cells.len(), columns.len(), "{line}");
            (
                cells[place("combined_ram")].parse().unwrap(),
                cells[place("at_ns")].parse::<u64>().unwrap() / MS,
            )
        };
        text.lines().skip(3).map(row).collect()
    }

    fn new_file(directory: &tempfile::TempDir) -> TrackingFile {
        TrackingFile::create(directory.path().canonicalize().unwrap().join("t.csv"), false).unwrap()
    }

    // Requirement: TIME-1
    #[test]
    fn row_has_the_largest_of_an_interval_in_gpu_trackers_units() {
        let directory = tempfile::tempdir().unwrap();
        let file = new_file(&directory);
        let mut sink = sink(file.target());
        for (from_ms, at_ms, megabytes) in [(0, 2, 7), (2, 50, 9), (50, 100, 3), (100, 196, 4), (196, 230, 5)]
        {
            sink.sample(&sample(from_ms, at_ms, megabytes * 1_000_000)).unwrap();
        }
        assert!(!sink.is_written());
        let path = file.target().path;
        assert_eq!(rows(&path), [(9.0, 100), (4.0, 196)]);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.lines().nth(1).unwrap().starts_with("megabytes,megabytes,hours,8000.0,,4,2,, "),
            "{text}"
        );
    }

    #[test]
    fn unknown_figures_of_the_machine_are_those_of_the_tree_and_gpus_are_0_where_there_is_none() {
        let mut one = sample(0, 100, 2_000_000);
        one.cpu.combined.percent = Some(150.0);
        let cells = |sample: &TreeSample| {
            let row = Row { sample: sample.clone(), count: 1 };
            line(form(), row, 0).split(',').map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(cells(&one)[2..10].join(","), "2.0,2.0,0.0,0.0,0.0,0.0,0.0,0.0");
        assert_eq!(cells(&one)[13..15], ["150.0", "37.5"]);
        assert_eq!(cells(&one)[19..22], ["150.0", "75.0", "0.100000"]);
        one.system = SystemSample { read_ns: 1, ram_bytes: Some(3_000_000), cpu_percent: Some(200.0) };
        one.gpu.devices = vec![GpuSample::default(), GpuSample::default()];
        (one.gpu.expected, one.gpu.busy_percent) = (2, Some(90.0));
        assert_eq!(cells(&one)[3..10].join(","), "3.0,,,,,90.0,45.0", "a device that gave no memory");
        assert_eq!(cells(&one)[13..15], ["200.0", "50.0"]);
    }

    // Requirement: SLOW-12
    #[test]
    fn time_is_in_percent_of_the_rows_known_time_and_empty_without_a_reading() {
        let mut intervals = Intervals::new(100 * MS);
        let groups = ByTimeGroup { computing: 30 * MS, storage: 15 * MS, ..ByTimeGroup::default() };
        let read = TreeSample { time_ns: Some(groups), ..sample(0, 45, 1) };
        assert!(intervals.add(&read).is_none());
        let joined = intervals.add(&sample(45, 100, 1)).unwrap();
        let unread = intervals.add(&sample(100, 200, 1)).unwrap();
        let first = DATA.iter().position(|column| column.name == "time_computing_percent").unwrap();
        let cells = |row: Row| {
            line(form(), row, 0).split(',').skip(first).take(6).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(cells(joined), ["66.667", "0.0", "33.333", "0.0", "0.0", "0.0"]);
        assert_eq!(cells(unread), [""; 6]);
    }

    // Requirement: TIME-2, TIME-3
    #[test]
    fn file_that_was_cut_anywhere_goes_on_without_a_row_twice_or_torn() {
        let directory = tempfile::tempdir().unwrap();
        let file = new_file(&directory);
        let path = file.target().path;
        let all = |to: u64| (1..=to).map(|n| sample((n - 1) * 100, n * 100, n * 1_000_000));
        let mut first = sink(file.target());
        all(40).for_each(|sample| first.sample(&sample).unwrap());
        let whole = std::fs::read(&path).unwrap();
        for cut in (0..=whole.len()).rev().step_by(7) {
            let bytes = std::fs::File::options().write(true).open(&path).unwrap();
            bytes.set_len(cut as u64).unwrap();
            let mut next = sink(file.target());
            all(42).for_each(|sample| next.sample(&sample).unwrap());
            let expected: Vec<_> = (1..=42).map(|n| (n as f64, n * 100)).collect();
            assert_eq!(rows(&path), expected, "cut at {cut} of {}", whole.len());
            bytes.set_len(0).unwrap();
            std::fs::write(&path, &whole).unwrap();
        }
    }

    // Requirement: TIME-3
    #[test]
    fn no_row_crosses_a_page() {
        let directory = tempfile::tempdir().unwrap();
        let file = new_file(&directory);
        let mut sink = sink(file.target());
        for n in 1..=200 {
            sink.sample(&sample((n - 1) * 100, n * 100, n * 123_457)).unwrap();
        }
        let bytes = std::fs::read(file.target().path).unwrap();
        let mut begin = 0;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let end = begin + line.len();
            assert_eq!(begin as u64 / PAGE, (end - 1) as u64 / PAGE, "a line from {begin} to {end}");
            begin = end;
        }
        assert_eq!(rows(&file.target().path).len(), 200);
    }

    // Requirement: TIME-5
    #[test]
    fn another_file_of_the_name_is_not_written_to() {
        let directory = tempfile::tempdir().unwrap();
        let file = new_file(&directory);
        let path = file.target().path;
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "not to be touched").unwrap();
        let mut sink = new_sink(file.target());
        assert!(sink.open(Resume::New).unwrap_err().to_string().contains("another file"));
        drop(file);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "not to be touched");
        std::fs::remove_file(&path).unwrap();
        let created = new_file(&directory);
        let error = TrackingFile::create(path.clone(), false).unwrap_err().to_string();
        assert!(error.contains("--overwrite"), "{error}");
        std::fs::write(&path, "old").unwrap();
        drop(created);
        let created = TrackingFile::create(path.clone(), true).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"");
        drop(created);
        assert!(!path.exists(), "a run without rows leaves no file");
    }
}
