//! The lines of a tracking file in the form `.jsonl`: each is a JSON object with one key, which says what the line is.
//!
//! docs/FILES.md describes them for users. Only the last line of a file can be torn: it has no line break then.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::json;
use super::quote::json_line;
use crate::model::ended_process::EndedProcess;
use crate::model::ended_task::EndedTask;
use crate::model::groups::Groups;
use crate::model::report::{Host, Report};
use crate::model::style::Style;
use crate::model::tree_sample::{Event, MaximumSource, RamMaximum, TreeSample};

/// Version of the format of these lines. It goes up when a key changes its name or meaning, or is removed.
pub const FORM_VERSION: u32 = 1;

/// A line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The first line of a file: what does not change during the run.
    Run(Run),
    /// The tree in an interval. `at_ns` is its key.
    Sample(Box<TreeSample>),
    /// A process whose figures are final. Its pid and `start_ns` are its key.
    Process(Box<EndedProcess>),
    /// A task that has no process any more. The last line of its id counts.
    Task(Box<EndedTask>),
    /// What became known later of a past sample.
    Event(Event),
    /// The end of the run on the launcher's node.
    End(Box<End>),
    /// What all nodes of a run used. It is the last line.
    Nodes(Box<AllNodes>),
}

/// What does not change during a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`FORM_VERSION`] of the program that wrote the file.
    pub form_version: u32,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// When the launcher began, CLOCK_MONOTONIC nanoseconds.
    pub monotonic_ns: u64,
    /// The same moment, nanoseconds since the epoch.
    pub realtime_ns: u64,
    /// Least time between two samples of the file, nanoseconds.
    pub interval_ns: u64,
    /// The machine.
    pub host: Host,
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// The report's largest RAM. `None`: it is unknown.
    pub max_ram: Groups<Option<Maximum>>,
    /// The JSON report.
    pub report: Value,
}

/// A run over several nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AllNodes {
    /// The JSON report of all.
    pub report: Value,
}

/// The report's largest RAM of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Maximum {
    /// Bytes.
    pub bytes: u64,
    /// What shows it. `None`: the last sample has another figure, because more became known after it.
    pub source: Option<MaximumSource>,
}

/// A report as JSON.
fn json_value(report: &Report) -> Value {
    serde_json::from_str(&json::json(report, &Style::default())).unwrap_or(Value::Null)
}

impl Line {
    /// Makes the line of the end. `told`: the largest RAM as the last sample in the file has it.
    pub fn end(report: &Report, told: Groups<RamMaximum>) -> Self {
        let known = report.max_ram.footprint_bytes();
        let maximum = |bytes: Option<u64>, told: RamMaximum| {
            // The last sample has a source only for its own figure.
            let source = (Some(told.bytes) == bytes).then_some(told.source);
            bytes.map(|bytes| Maximum { bytes, source })
        };
        Self::End(Box::new(End { max_ram: known.with(told, maximum), report: json_value(report) }))
    }

    /// Makes the line of all nodes from their merged report.
    pub fn nodes(report: &Report) -> Self {
        Self::Nodes(Box::new(AllNodes { report: json_value(report) }))
    }

    /// The line as text, with its line break. Control characters in strings are escaped.
    pub fn text(&self) -> String {
        json_line(self)
    }

    /// Reads a line. `None`: it is torn, or of a kind that a later version writes.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::quality::Quality;
    use crate::model::report::{Exit, ProcessUsage};
    use crate::model::tree_sample::Span;

    /// A line of each kind.
    fn lines() -> Vec<Line> {
        let bytes = |bytes| Groups { main: bytes, descendants: 0, combined: bytes };
        let told = bytes(7).map(|bytes| RamMaximum { bytes, source: MaximumSource::Floor });
        vec![
            Line::Run(Run {
                form_version: FORM_VERSION,
                command: vec!["./app".into()],
                monotonic_ns: 5,
                realtime_ns: 1_700_000_000_000_000_000,
                interval_ns: 100_000_000,
                host: gpu_track_core::fixtures::unknown().host,
            }),
            Line::Sample(Box::new(TreeSample {
                at_ns: u64::MAX,
                footprint_bytes: bytes(7).map(Span::at_end),
                ..TreeSample::default()
            })),
            Line::Process(Box::new(EndedProcess {
                start_ns: 10,
                is_still_running: false,
                usage: ProcessUsage {
                    pid: 4711,
                    ppid: None,
                    command: "c\u{1b}[31m".into(),
                    args: None,
                    cpu_s: Some(0.1 + 0.2),
                    cpu_quality: Quality::Exact,
                    peak_rss_bytes: None,
                    peak_quality: Quality::Unknown,
                    wall_s: 1.5,
                    exit: Exit { code: None, signal: Some(9) },
                    gpu: None,
                },
            })),
            Line::Event(Event::Revised { at_ns: 3, max_footprint_bytes: bytes(9) }),
            Line::Task(Box::new(EndedTask {
                start_ns: u64::MAX,
                end_ns: 4,
                usage: gpu_track_core::fixtures::tasks().swap_remove(1),
                began_ns: None,
                around: Vec::new(),
            })),
            Line::end(&gpu_track_core::fixtures::unknown(), told),
            Line::nodes(&gpu_track_core::fixtures::unknown()),
        ]
    }

    // Requirement: TIME-11
    #[test]
    fn line_of_each_kind_is_read_back_and_can_not_control_a_terminal() {
        for line in lines() {
            let text = line.text();
            assert!(text.ends_with('\n') && text.lines().count() == 1, "{text}");
            assert!(!text.trim_end().contains(char::is_control), "{text}");
            assert_eq!(Line::read(&text), Some(line));
        }
        assert_eq!(Line::read("{\"sample\":{\"from_ns\":1,"), None, "a torn line");
        assert_eq!(Line::read("{\"region\":{}}"), None, "a kind of a later version");
    }

    #[test]
    fn names_of_the_keys_do_not_change() {
        let keys = |line: &Line| match serde_json::to_value(line).unwrap() {
            Value::Object(kinds) => {
                let (kind, fields) = kinds.into_iter().next().unwrap();
                let names: Vec<String> = fields.as_object().unwrap().keys().cloned().collect();
                format!("{kind}: {}", names.join(" "))
            }
            other => panic!("{other}"),
        };
        let all: Vec<String> = lines().iter().map(keys).collect();
        assert_eq!(all[0], "run: command form_version host interval_ns monotonic_ns realtime_ns");
        assert!(all[1].starts_with("sample: at_ns commands cpu"), "{}", all[1]);
        assert_eq!(
            all[2],
            "process: args command cpu_quality cpu_s exit is_still_running peak_quality peak_rss_bytes pid ppid \
             start_ns wall_s"
        );
        assert_eq!(all[3], "event: Revised");
        assert_eq!(
            all[4],
            "task: cpu_s end_ns exit failed_starts gpu_ram_bytes id io kind name parent peak_quality peak_ram_bytes \
             processes start_ns start_s starts still_running wall_s why"
        );
        assert_eq!(all[5..], ["end: max_ram report", "nodes: report"]);
    }

    #[test]
    fn end_has_the_whole_report_and_the_source_of_its_maximum() {
        let report = gpu_track_core::fixtures::full();
        let bytes = report.max_ram.combined.footprint_bytes.unwrap();
        let told = RamMaximum { bytes, source: MaximumSource::Revision };
        let told = Groups { combined: told, ..Groups::default() };
        let Line::End(end) = Line::end(&report, told) else { panic!() };
        let combined = Maximum { bytes, source: Some(MaximumSource::Revision) };
        assert_eq!(end.max_ram.combined, Some(combined));
        assert_eq!(end.max_ram.main.unwrap().source, None, "no sample has it");
        let read = crate::read::read(&end.report.to_string()).unwrap();
        assert_eq!(read.report, report);
    }
}
