//! `--tf FILE.jsonl`: all that is known of the run over time, a JSON object on each line.
//!
//! [`tracking_line`] has what the lines are, [`lines`](super::lines) how they are written.

use std::hash::{DefaultHasher, Hasher};
use std::io;

use gpu_track_report::tracking_line::{Line, Run};

use super::intervals::{Intervals, Row};
use super::lines::LineFile;
use super::recent::{Key, Recent};
use crate::model::ended_process::EndedProcess;
use crate::model::ended_task::EndedTask;
use crate::model::groups::Groups;
use crate::model::report::{Report, Stage};
use crate::model::style::StreamFile;
use crate::model::tree_sample::{Event, ItemKind, RamMaximum, TreeSample, Wants};
use crate::run::task_summary::TaskSummary;
use crate::run::tree::ProcessSummary;
use crate::sinks::sink::{Loss, Resume, Sink, SinkContext};

/// After a restart, only lines in this many last bytes of the file can come again. A collector writes less than that
/// between two savings of its state.
const RECENT_BYTES: u64 = 16 * 1024 * 1024;

/// The key of a task with this line: its mark is the line's hash.
fn key_of_task(task: &EndedTask, line: &str) -> Key {
    let mut hasher = DefaultHasher::new();
    hasher.write(line.trim_end().as_bytes());
    Key::Task { id: task.usage.id.into(), mark: hasher.finish() }
}

struct JsonLines {
    target: StreamFile,
    run: Run,
    intervals: Intervals,
    /// `None`: the sink is not open.
    lines: Option<LineFile>,
    /// The processes and events that are in the file, or were lost. They are not written again.
    known: Recent<Key>,
    /// The largest RAM so far, as the last sample in the file has it.
    written_max_ram: Groups<RamMaximum>,
}

/// The sink of a file.
pub(super) fn make(context: &SinkContext, target: StreamFile) -> Box<dyn Sink> {
    Box::new(JsonLines::new(target, context.run()))
}

impl Sink for JsonLines {
    fn name(&self) -> String {
        super::name(&self.target)
    }

    /// Opens the file. Notes its last sample, and the processes and events that it has.
    fn open(&mut self, _resume: Resume) -> io::Result<()> {
        let lines = LineFile::open(&self.target)?;
        lines.last_lines(RECENT_BYTES, |line| match Line::read(line) {
            Some(Line::Sample(sample)) => {
                (self.intervals.last_ns, self.written_max_ram) = (sample.at_ns, sample.max_ram);
            }
            Some(Line::Process(process)) => {
                self.known.insert(Key::from_process(&process));
            }
            Some(Line::Task(task)) => {
                self.known.insert(key_of_task(&task, line));
            }
            Some(Line::Event(event)) => {
                self.known.insert(Key::from_event(&event));
            }
            _ => {}
        })?;
        self.lines = Some(lines);
        Ok(())
    }

    fn wants(&self) -> Wants {
        Wants::from([ItemKind::Sample, ItemKind::Ended, ItemKind::Event, ItemKind::Tasks])
    }

    fn sample(&mut self, sample: &TreeSample) -> io::Result<()> {
        self.intervals.add(sample).map_or(Ok(()), |row| self.write_row(row))
    }

    fn process_ended(&mut self, process: &ProcessSummary) -> io::Result<()> {
        self.write_process(process.ended())
    }

    /// Writes tasks, each unless its line is in the file: after a restart, tasks can come again.
    fn tasks_ended(&mut self, tasks: &[TaskSummary]) -> io::Result<()> {
        tasks.iter().try_for_each(|task| self.write_task(task.ended()))
    }

    /// Writes an event, unless it is in the file: after a restart, events can come again.
    fn event(&mut self, event: &Event) -> io::Result<()> {
        if self.known.insert(Key::from_event(event)) {
            self.write(&Line::Event(*event)).map(drop)
        } else {
            Ok(())
        }
    }

    /// Writes the samples that wait as the last row, then the line of the end.
    fn report(&mut self, report: &Report, _stage: Stage) -> io::Result<()> {
        if let Some(last) = self.intervals.take_rest() {
            self.write_row(last)?;
        }
        self.write(&Line::end(report, self.written_max_ram)).map(drop)
    }

    fn is_written(&self) -> bool {
        self.intervals.is_empty()
    }

    fn loss(&self) -> Loss {
        self.lines.as_ref().map(LineFile::loss).unwrap_or_default()
    }
}

impl JsonLines {
    fn new(target: StreamFile, run: Run) -> Self {
        let intervals = Intervals::new(run.interval_ns);
        Self {
            target,
            run,
            intervals,
            lines: None,
            known: Recent::default(),
            written_max_ram: Groups::default(),
        }
    }

    /// Writes a row as the line of a sample. If it gets into the file, its largest RAM goes into the line of the end.
    fn write_row(&mut self, row: Row) -> io::Result<()> {
        let max_ram = row.sample.max_ram;
        if self.write(&Line::Sample(Box::new(row.sample)))? {
            self.written_max_ram = max_ram;
        }
        Ok(())
    }

    /// Writes a process, unless it is in the file: after a restart, processes can come again.
    fn write_process(&mut self, process: EndedProcess) -> io::Result<()> {
        let key = Key::from_process(&process);
        if self.known.insert(key) { self.write(&Line::Process(Box::new(process))).map(drop) } else { Ok(()) }
    }

    /// Writes a task, unless its line is in the file.
    fn write_task(&mut self, task: EndedTask) -> io::Result<()> {
        let line = Line::Task(Box::new(task.clone()));
        let key = key_of_task(&task, &line.text());
        if self.known.insert(key) { self.write(&line).map(drop) } else { Ok(()) }
    }

    /// Writes a line. In an empty file, writes the line of the run before it. Returns whether it was written: a full disk loses it.
    fn write(&mut self, line: &Line) -> io::Result<bool> {
        let Some(file) = &mut self.lines else { return Ok(false) };
        let mut lines = Vec::new();
        if file.is_empty() {
            lines.push(Line::Run(self.run.clone()).text());
        }
        lines.push(line.text());
        file.append(&lines)
    }
}

#[cfg(test)]
mod tests {
    use gpu_track_report::tracking_line::FORM_VERSION;

    use std::path::Path;

    use gpu_track_core::fixtures;

    use super::*;
    use crate::model::report::{ProcessUsage, TaskUsage};
    use crate::model::tree_sample::{MaximumSource, Span};
    use crate::sinks::tracking::TrackingFile;

    const MS: u64 = 1_000_000;

    fn run() -> Run {
        Run {
            form_version: FORM_VERSION,
            command: vec!["app".into()],
            monotonic_ns: 1,
            realtime_ns: 2,
            interval_ns: 100 * MS,
            host: fixtures::full().host,
        }
    }

    fn sink(target: StreamFile) -> JsonLines {
        let mut sink = JsonLines::new(target, run());
        sink.open(Resume::Continued).unwrap();
        sink
    }

    fn all(bytes: u64) -> Groups<u64> {
        Groups { main: bytes, descendants: 0, combined: bytes }
    }

    fn sample(n: u64) -> TreeSample {
        TreeSample {
            from_ns: (n - 1) * 100 * MS,
            at_ns: n * 100 * MS,
            footprint_bytes: all(n).map(Span::at_end),
            max_ram: all(n).map(|bytes| RamMaximum { bytes, source: MaximumSource::Revision }),
            ..TreeSample::default()
        }
    }

    fn process(n: u64) -> EndedProcess {
        let usage = ProcessUsage { pid: 7, ..fixtures::full().processes.heaviest[0].usage.clone() };
        EndedProcess { start_ns: n, is_still_running: false, usage }
    }

    fn task(n: u64) -> EndedTask {
        let usage = TaskUsage { processes: n, ..fixtures::tasks().swap_remove(0) };
        EndedTask { start_ns: 5, end_ns: n, usage, began_ns: None, around: Vec::new() }
    }

    fn lines(path: &Path) -> Vec<Line> {
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'), "{text}");
        text.lines().map(|line| Line::read(line).unwrap_or_else(|| panic!("{line}"))).collect()
    }

    fn new_file(directory: &tempfile::TempDir) -> TrackingFile {
        TrackingFile::create(directory.path().canonicalize().unwrap().join("t.jsonl"), false).unwrap()
    }

    // Requirement: TIME-11, TIME-2, TIME-3
    #[test]
    fn file_that_was_cut_anywhere_goes_on_without_a_line_twice_or_torn() {
        let directory = tempfile::tempdir().unwrap();
        let file = new_file(&directory);
        let path = file.target().path;
        let give = |sink: &mut JsonLines, numbers: std::ops::RangeInclusive<u64>| {
            for n in numbers {
                sink.sample(&sample(n)).unwrap();
                sink.write_process(process(n)).unwrap();
                sink.event(&Event::Revised { at_ns: n, max_footprint_bytes: all(n) }).unwrap();
                // The same task goes on again and again.
                sink.write_task(task(n)).unwrap();
            }
        };
        give(&mut sink(file.target()), 1..=20);
        let whole = std::fs::read(&path).unwrap();
        let first = lines(&path);
        assert!(matches!(first[0], Line::Run(_)) && first.len() == 81);
        for cut in (0..=whole.len()).rev().step_by(997) {
            std::fs::write(&path, &whole[..cut]).unwrap();
            give(&mut sink(file.target()), 1..=22);
            let again = lines(&path);
            assert_eq!(again.len(), 1 + 4 * 22, "cut at {cut} of {}", whole.len());
            assert!(first.iter().all(|line| again.contains(line)), "cut at {cut}");
        }
    }

    // Requirement: TIME-11
    #[test]
    fn last_line_has_the_report_and_the_source_of_its_maximum() {
        let directory = tempfile::tempdir().unwrap();
        let file = new_file(&directory);
        let mut report = fixtures::full();
        report.max_ram.combined.footprint_bytes = Some(3);
        let mut sink = sink(file.target());
        // The last samples are no interval.
        for sample in [sample(1), sample(2), TreeSample { at_ns: 250 * MS, ..sample(3) }] {
            sink.sample(&sample).unwrap();
        }
        assert!(!sink.is_written());
        sink.report(&report, Stage::Over).unwrap();
        let lines = lines(&file.target().path);
        assert_eq!(lines.iter().filter(|line| matches!(line, Line::Sample(_))).count(), 3);
        let Some(Line::End(end)) = lines.last() else { panic!("{lines:?}") };
        let combined = end.max_ram.combined.unwrap();
        assert_eq!((combined.bytes, combined.source), (3, Some(MaximumSource::Revision)));
    }
}
