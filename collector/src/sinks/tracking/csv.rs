//! `--tf FILE.csv`: the run over time in the form of gpu_tracker 5.0.1, whose `sub-track analyze` reads it.
//!
//! ```text
//! ram_unit,gpu_ram_unit,...      what does not change; its row is padded, since GPUs are known later
//! gigabytes,gigabytes,...
//! main_ram,descendants_ram,...   gpu_tracker's columns, then ours
//! 0.0017,0.0,...                 a row for each interval
//! ```
//!
//! A row has the largest of each quantity since the row before, so that the largest of a column is that of the report. The last
//! columns are ours: the key of the row, and the largest RAM so far, with what shows it. The last row has the report's.
//!
//! [`rows`](super::rows) has how the lines are written.

use std::io;

use super::rows::RowFile;
use crate::model::groups::Groups;
use crate::model::report::{Report, Stage};
use crate::model::style::{RamUnit, StreamFile, TimeUnit};
use crate::model::tree_sample::{CpuSample, MaximumSource, TreeSample, Wants};
use crate::sinks::sink::{Loss, Place, Resume, Sink};
use crate::sys::clock;

/// What does not change during a run (gpu_tracker's `_StaticData`).
const STATIC_COLUMNS: &str = "ram_unit,gpu_ram_unit,time_unit,ram_system_capacity,gpu_ram_system_capacity,system_core_count,\
                              n_expected_cores,system_gpu_count,n_expected_gpus";
/// gpu_tracker's columns (`_TimepointUsage`).
const COLUMNS: &str = "main_ram,descendants_ram,combined_ram,system_ram,main_gpu_ram,descendants_gpu_ram,combined_gpu_ram,\
                       system_gpu_ram,gpu_sum_utilization_percent,gpu_hardware_utilization_percent,main_n_threads,\
                       descendants_n_threads,combined_n_threads,cpu_system_sum_utilization_percent,\
                       cpu_system_hardware_utilization_percent,cpu_main_sum_utilization_percent,\
                       cpu_main_hardware_utilization_percent,cpu_descendants_sum_utilization_percent,\
                       cpu_descendants_hardware_utilization_percent,cpu_combined_sum_utilization_percent,\
                       cpu_combined_hardware_utilization_percent,timestamp";
/// Ours: numbers that are always known, since its reader bears no others.
const OWN_COLUMNS: &str =
    "n_samples,n_processes,max_main_ram,max_descendants_ram,max_combined_ram,max_ram_source,at_ns";
/// Bytes of the row below [`STATIC_COLUMNS`], with its line break.
const STATIC_ROW: usize = 256;
/// A row that comes a little early still counts as an interval's: one part in this many of it.
const EARLY_PART: u64 = 20;

/// What the rows are made with.
struct Form {
    ram_unit: RamUnit,
    gpu_ram_unit: RamUnit,
    time_unit: TimeUnit,
    ram_bytes: Option<u64>,
    cores: u32,
    expected_cores: u32,
    interval_ns: u64,
}

struct CsvFile {
    target: StreamFile,
    form: Form,
    rows: Option<RowFile>,
    /// Key of the last row.
    last_ns: u64,
    /// The samples since the last row as one, and how many they are.
    waiting: Option<(TreeSample, u64)>,
}

/// Gives the sink of a file.
pub(super) fn make(place: &Place, target: StreamFile) -> Box<dyn Sink> {
    let (tracking, style, host) = (&place.config.tracking, &place.config.report.style, &place.host.host);
    let form = Form {
        ram_unit: style.ram_unit.unwrap_or(RamUnit::Gigabytes),
        gpu_ram_unit: style.gpu_ram_unit.unwrap_or(RamUnit::Gigabytes),
        time_unit: style.time_unit.unwrap_or(TimeUnit::Hours),
        ram_bytes: host.ram_bytes,
        cores: host.cores,
        expected_cores: tracking.expected_cores.unwrap_or(host.cores),
        interval_ns: tracking.interval_ns(),
    };
    Box::new(CsvFile::new(target, form))
}

impl Sink for CsvFile {
    fn name(&self) -> String {
        super::name(&self.target)
    }

    fn open(&mut self, _resume: Resume) -> io::Result<()> {
        let rows = RowFile::open(&self.target, self.form.head(None).len() as u64)?;
        // What is in the file says where to go on: a new one is empty.
        let key = |row: &str| row.rsplit(',').next()?.trim().parse().ok();
        self.last_ns = rows.find_last(key)?.unwrap_or(0);
        self.rows = Some(rows);
        Ok(())
    }

    fn wants(&self) -> Wants {
        Wants { samples: true, ..Wants::default() }
    }

    fn wants_report(&self, stage: Stage) -> bool {
        stage == Stage::Over
    }

    fn sample(&mut self, sample: &TreeSample) -> io::Result<()> {
        if sample.at_ns <= self.last_ns {
            return Ok(());
        }
        let (sample, count) = match self.waiting.take() {
            Some((waiting, count)) => (waiting.then(sample.clone()), count + 1),
            None => (sample.clone(), 1),
        };
        let begin_ns = if self.last_ns == 0 { sample.from_ns } else { self.last_ns };
        let interval_ns = self.form.interval_ns;
        if sample.at_ns.saturating_sub(begin_ns) + interval_ns / EARLY_PART < interval_ns {
            self.waiting = Some((sample, count));
            return Ok(());
        }
        self.write_row(&sample, count)
    }

    fn report(&mut self, report: &Report, _stage: Stage) -> io::Result<()> {
        if let Some((last, count)) = self.waiting.take() {
            self.write_row(&last, count)?;
        }
        // Only a file with rows has the place.
        let rows = self.rows.as_ref().filter(|rows| !rows.is_empty());
        rows.map_or(Ok(()), |rows| {
            rows.replace(STATIC_COLUMNS.len() as u64 + 1, &self.form.static_row(Some(report)))
        })
    }

    fn is_written(&self) -> bool {
        self.waiting.is_none()
    }

    fn loss(&self) -> Loss {
        self.rows.as_ref().map(RowFile::loss).unwrap_or_default()
    }
}

impl CsvFile {
    fn new(target: StreamFile, form: Form) -> Self {
        Self { target, form, rows: None, last_ns: 0, waiting: None }
    }

    /// Writes a row of `count` samples, the first one after the head.
    fn write_row(&mut self, sample: &TreeSample, count: u64) -> io::Result<()> {
        let Some(rows) = &mut self.rows else { return Ok(()) };
        let row = self.form.row(sample, count, clock::realtime_ns().saturating_sub(clock::monotonic_ns()));
        let head = rows.is_empty().then(|| self.form.head(None));
        let lines: Vec<String> = head.into_iter().chain([row + "\n"]).collect();
        if rows.append(&lines)? {
            self.last_ns = sample.at_ns;
        }
        Ok(())
    }
}

/// Gives a value's text, or nothing where it is not known. A number with a fraction keeps it, as Python's reader needs.
fn cell(value: Option<impl std::fmt::Debug>) -> String {
    value.map_or(String::new(), |value| format!("{value:?}"))
}

impl Form {
    /// Gives all before the first row.
    fn head(&self, report: Option<&Report>) -> String {
        format!("{STATIC_COLUMNS}\n{}{COLUMNS},{OWN_COLUMNS}\n", self.static_row(report))
    }

    /// Gives the row below [`STATIC_COLUMNS`], of [`STATIC_ROW`] bytes. Of GPUs nothing is known before the report.
    fn static_row(&self, report: Option<&Report>) -> String {
        let gpus = report.map(|report| (&report.gpu, report.max_gpu_ram.system_capacity_bytes));
        let capacity = gpus.and_then(|(_, bytes)| bytes);
        let row = format!(
            "{},{},{},{},{},{},{},{},{}",
            self.ram_unit.name(),
            self.gpu_ram_unit.name(),
            self.time_unit.name(),
            cell(self.ram_bytes.map(|bytes| self.ram_unit.convert(bytes as f64))),
            cell(capacity.map(|bytes| self.gpu_ram_unit.convert(bytes as f64))),
            self.cores,
            self.expected_cores,
            cell(gpus.and_then(|(gpu, _)| gpu.system_gpu_count)),
            cell(gpus.and_then(|(gpu, _)| gpu.expected_gpus)),
        );
        format!("{row:<width$}\n", width = STATIC_ROW - 1)
    }

    /// Gives a row of `count` samples, without line break. `epoch_ns` is CLOCK_REALTIME - CLOCK_MONOTONIC.
    fn row(&self, sample: &TreeSample, count: u64, epoch_ns: u64) -> String {
        let realtime_us = sample.at_ns.saturating_add(epoch_ns) / 1000;
        let mut cells = self.ram_cells(sample);
        cells.extend(self.gpu_cells(sample));
        cells.extend(sample.threads.values().map(|threads| threads.max.to_string()));
        cells.extend(self.cpu_cells(sample));
        cells.push(format!("{}.{:06}", realtime_us / 1_000_000, realtime_us % 1_000_000));
        cells.push(count.to_string());
        cells.extend(self.own_cells(sample));
        cells.join(",")
    }

    /// Converts bytes to the unit of the file's RAM columns.
    fn ram(&self, bytes: u64) -> f64 {
        self.ram_unit.convert(bytes as f64)
    }

    /// Gives the largest RAM of the first process, its descendants, both and the machine.
    fn ram_cells(&self, sample: &TreeSample) -> Vec<String> {
        let [main, descendants, combined] = sample.footprint_bytes.values().map(|bytes| bytes.max);
        // The machine uses at least what the tree does.
        let system = sample.system.ram_bytes.unwrap_or(combined);
        [main, descendants, combined, system].map(|bytes| cell(Some(self.ram(bytes)))).to_vec()
    }

    /// Gives the largest GPU RAM of the same four, and GPU utilization: the sum, and per expected GPU.
    fn gpu_cells(&self, sample: &TreeSample) -> Vec<String> {
        let gpu = &sample.gpu;
        let run = gpu.run_bytes.map_or([None; 3], |bytes: Groups<u64>| bytes.values().map(Some));
        let ram = run.into_iter().chain([gpu.used_bytes]);
        let ram = ram.map(|bytes| bytes.map(|bytes| self.gpu_ram_unit.convert(bytes as f64)));
        let percent =
            [1, gpu.expected.max(1)].map(|devices| gpu.busy_percent.map(|sum| sum / f64::from(devices)));
        ram.chain(percent).map(|value| gpu_cell(!gpu.devices.is_empty(), value)).collect()
    }

    /// Gives CPU utilization of the machine and the three groups: the sum, and per core.
    fn cpu_cells(&self, sample: &TreeSample) -> Vec<String> {
        // Only a sample at the very start of a run has none.
        let percent = |cpu: CpuSample| cpu.percent.unwrap_or(0.0);
        let [main, descendants, combined] = sample.cpu.values().map(percent);
        // The machine does at least what the tree does.
        let system = sample.system.cpu_percent.unwrap_or(combined);
        let of_expected = [main, descendants, combined].map(|percent| (percent, self.expected_cores));
        let sums = [(system, self.cores)].into_iter().chain(of_expected);
        let of_sum = |(sum, cores): (f64, u32)| [sum, sum / f64::from(cores.max(1))];
        sums.flat_map(of_sum).map(|percent| cell(Some(rounded(percent)))).collect()
    }

    /// Gives the cells of [`OWN_COLUMNS`] after the first.
    fn own_cells(&self, sample: &TreeSample) -> Vec<String> {
        let mut cells = vec![sample.processes.max.to_string()];
        cells.extend(sample.max_ram.values().map(|max| cell(Some(self.ram(max.bytes)))));
        let source = sample.max_ram.values().map(|max| max.source).into_iter().max();
        cells.push(source_number(source.unwrap_or_default()).to_string());
        cells.push(sample.at_ns.to_string());
        cells
    }
}

/// Gives 0 on a machine without GPU, as gpu_tracker has it, and before one is found. Then empty where a device gave nothing.
fn gpu_cell(has_gpus: bool, value: Option<f64>) -> String {
    if has_gpus { cell(value) } else { cell(Some(0.0)) }
}

/// Rounds to a thousandth: clocks give no more.
fn rounded(percent: f64) -> f64 {
    (percent * 1000.0).round() / 1000.0
}

/// Gives `max_ram_source`, a number for what shows the largest RAM of a row.
fn source_number(source: MaximumSource) -> u8 {
    match source {
        MaximumSource::Sample => 0,
        MaximumSource::Revision => 1,
        MaximumSource::Floor => 2,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::model::tree_sample::{GpuSample, RamMaximum, Span, SystemSample};
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
            interval_ns: 100 * MS,
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

    fn sink(target: StreamFile) -> CsvFile {
        let mut sink = CsvFile::new(target, form());
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
        let cells =
            |sample: &TreeSample| form().row(sample, 1, 0).split(',').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(cells(&one)[2..10].join(","), "2.0,2.0,0.0,0.0,0.0,0.0,0.0,0.0");
        assert_eq!(cells(&one)[13..15], ["150.0", "37.5"]);
        assert_eq!(cells(&one)[19..22], ["150.0", "75.0", "0.100000"]);
        one.system = SystemSample { read_ns: 1, ram_bytes: Some(3_000_000), cpu_percent: Some(200.0) };
        one.gpu.devices = vec![GpuSample::default(), GpuSample::default()];
        (one.gpu.expected, one.gpu.busy_percent) = (2, Some(90.0));
        assert_eq!(cells(&one)[3..10].join(","), "3.0,,,,,90.0,45.0", "a device that gave no memory");
        assert_eq!(cells(&one)[13..15], ["200.0", "50.0"]);
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
        let mut sink = CsvFile::new(file.target(), form());
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
