//! What happened during a run, as `gpu-track report --list-events` shows it.

use serde::Serialize;

use crate::alerts_in_words::event_in_words;
use crate::figures::{UNKNOWN, bytes, count, readable, signal_name};
use crate::model::alert::{EventKind, RunEvent};
use crate::model::ended_process::EndedProcess;
use crate::model::report::{Exit, Report};
use crate::model::rule::Unit;
use crate::model::sorting::Sorting;
use crate::over_time::Recording;
use crate::quote::{self, CsvColumn, csv_cell, csv_plain, csv_table, csv_text};
use gpu_track_core::named;

const NS_PER_S: f64 = 1e9;
/// The start of a process in a tracking file, or of the run's command in a report.
const START: Kind = Kind::Run(EventKind::Start);
const PEAK: Kind = Kind::Run(EventKind::Peak);

named! {
    /// Kinds of events that only a tracking file tells.
    pub enum Recorded {
        /// A process exited.
        Exit = "exit",
        /// A signal ended a process.
        Killed = "killed",
        /// The run ended while a process lived.
        StillRunning = "still_running",
        /// It became known later that the tree had held more RAM.
        Revision = "revision",
    }
}

/// What an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Kind {
    /// An event that only a tracking file tells.
    Recorded(Recorded),
    /// An event of the run. In a tracking file, `start` is also the start of any process.
    Run(EventKind),
}

impl Default for Kind {
    fn default() -> Self {
        START
    }
}

impl Kind {
    /// All kinds.
    pub fn all() -> impl Iterator<Item = Self> {
        Recorded::ALL.into_iter().map(Self::Recorded).chain(EventKind::ALL.into_iter().map(Self::Run))
    }

    /// Its name, as JSON and `--type` have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Recorded(kind) => kind.name(),
            Self::Run(kind) => kind.name(),
        }
    }
}

/// An event, as JSON has it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Event {
    /// When, seconds after the start of the run.
    pub at_s: f64,
    /// What happened.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// The process; null: the event is the tree's.
    pub pid: Option<u32>,
    /// Its parent; null: unknown.
    pub ppid: Option<u32>,
    /// Its command name.
    pub command: Option<String>,
    /// How it ended.
    pub exit: Option<Exit>,
    /// CPU time that it used in its life, seconds; null: unknown, or it has not ended.
    pub cpu_s: Option<f64>,
    /// The peak RSS of the process, or the RAM of the tree, bytes; null: unknown, or the event has none.
    pub ram_bytes: Option<u64>,
    /// The alert or limit of the run, in the user's words; null: the event is of none.
    pub rule: Option<String>,
    /// Unit of `amount`, `from` and `allowed`; null: the event has none of them.
    pub unit: Option<Unit>,
    /// The figure at the event. Of a step of memory: after the step.
    pub amount: Option<f64>,
    /// The figure before a step of memory; null: the event is no step.
    pub from: Option<f64>,
    /// The threshold of the rule. Of growth and jumps: what may be used.
    pub allowed: Option<f64>,
    /// By how much RAM rises, bytes a second; null: it does not rise all the time.
    pub rate_bytes_per_s: Option<f64>,
    /// The time until RAM reaches what may be used, at this rate, seconds.
    pub left_s: Option<f64>,
    /// The id of the GPU; null: the event is of no single GPU.
    pub device: Option<String>,
    /// What failed, and why; null: the event is no error.
    pub message: Option<String>,
    /// The event in the report from which this one was made. `None`: it was not made from one.
    #[serde(skip)]
    of_run: Option<RunEvent>,
}

/// Which events are shown.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Filter {
    /// Events of these kinds; empty: of all kinds.
    pub kinds: Vec<Kind>,
    /// Events from this time on, seconds after the start of the run.
    pub since_s: f64,
    /// At most this many of these events, the last ones. `None`: all.
    pub last: Option<usize>,
}

/// The events of a tracking file in the order of their times. `report`: the report in the file, if there is one.
pub fn events(recording: &Recording, report: Option<&Report>, filter: &Filter) -> Vec<Event> {
    let at_s = |ns: u64| ns.saturating_sub(recording.start_ns) as f64 / NS_PER_S;
    let of_processes = recording.processes.iter().flatten().flat_map(|process| start_and_end(process, at_s));
    let revision =
        |&(ns, bytes): &(u64, u64)| new_event(Kind::Recorded(Recorded::Revision), at_s(ns), Some(bytes));
    let mut all: Vec<Event> = of_processes.chain(recording.revisions.iter().map(revision)).collect();
    if let Some(report) = report {
        all.extend(peak(report));
        // The file tells the start of each process, so the start of the command would be there twice.
        all.extend(listed_events(report).filter(|event| event.kind != START));
    }
    filtered(all, filter)
}

/// The events that a report without a tracking file tells, in the order of their times.
pub fn of_report(report: &Report, filter: &Filter) -> Vec<Event> {
    filtered(peak(report).into_iter().chain(listed_events(report)).collect(), filter)
}

/// The events of the run that the report lists, except the RAM peak: [`peak`] makes that, also for a report without such a list.
fn listed_events(report: &Report) -> impl Iterator<Item = Event> {
    let events = report.events.iter().flat_map(|events| &events.list);
    events.filter(|event| event.kind != EventKind::Peak).map(|event| Event {
        pid: event.pid,
        command: event.command.clone(),
        rule: event.rule.clone(),
        unit: event.unit,
        amount: event.amount,
        from: event.from,
        allowed: event.allowed,
        rate_bytes_per_s: event.rate_bytes_per_s,
        left_s: event.left_s,
        device: event.device.clone(),
        message: event.message.clone(),
        of_run: Some(event.clone()),
        ..new_event(Kind::Run(event.kind), event.at_s, None)
    })
}

/// Sorts events by time, and returns those that the filter selects.
fn filtered(mut all: Vec<Event>, filter: &Filter) -> Vec<Event> {
    let is_wanted = |kind| filter.kinds.is_empty() || filter.kinds.contains(&kind);
    all.retain(|event| event.at_s >= filter.since_s && is_wanted(event.kind));
    all.order_by(|a, b| a.at_s.total_cmp(&b.at_s));
    let first = all.len().saturating_sub(filter.last.unwrap_or(usize::MAX));
    all.split_off(first)
}

/// The start and the end of a process. `at_s` converts a time of the file to seconds after the start of the run.
fn start_and_end(process: &EndedProcess, at_s: impl Fn(u64) -> f64) -> [Event; 2] {
    let usage = &process.usage;
    let kind = if process.is_still_running {
        Recorded::StillRunning
    } else if usage.exit.signal.is_some() {
        Recorded::Killed
    } else {
        Recorded::Exit
    };
    let start = Event {
        pid: Some(usage.pid),
        ppid: usage.ppid,
        command: Some(usage.command.clone()),
        ..new_event(START, at_s(process.start_ns), None)
    };
    let end = Event {
        at_s: at_s(process.end_ns()),
        kind: Kind::Recorded(kind),
        exit: Some(usage.exit),
        cpu_s: usage.cpu_s,
        ram_bytes: usage.peak_rss_bytes,
        ..start.clone()
    };
    [start, end]
}

/// Makes an event with nothing but its kind, its time and RAM.
fn new_event(kind: Kind, at_s: f64, ram_bytes: Option<u64>) -> Event {
    Event { at_s, kind, ram_bytes, ..Event::default() }
}

/// The event of the RAM peak, if the report has one.
fn peak(report: &Report) -> Option<Event> {
    report.peak.as_ref().map(|peak| new_event(PEAK, peak.at_s, Some(peak.footprint_bytes)))
}

/// Formats events as text, a line for each.
pub fn text(events: &[Event]) -> String {
    events.iter().map(|event| line(event) + "\n").collect()
}

/// Formats an event as a line of text: its time, its kind, the process if it is of one, and words.
fn line(event: &Event) -> String {
    let Event { at_s, kind, ppid, command, exit, cpu_s, ram_bytes, .. } = event;
    let ram = ram_bytes.map_or(UNKNOWN.to_owned(), bytes);
    let command = quote::escape(command.as_deref().unwrap_or_default());
    let cpu = cpu_s.map_or(UNKNOWN.to_owned(), readable);
    let used = format!("{cpu} CPU, peak RSS {ram}");
    let words = match (kind, &event.of_run) {
        (_, Some(event)) => event_in_words(event),
        (Kind::Recorded(Recorded::Exit), None) => {
            let code = exit.and_then(|exit| exit.code).map_or(UNKNOWN.to_owned(), |code| code.to_string());
            format!("status {code}, {used}")
        }
        (Kind::Recorded(Recorded::Killed), None) => {
            let signal = exit.and_then(|exit| exit.signal).map_or(UNKNOWN.to_owned(), signal_name);
            format!("{signal}, {used}")
        }
        (Kind::Recorded(Recorded::StillRunning), None) => used,
        (Kind::Recorded(Recorded::Revision), None) => format!("the tree turned out to have held {ram}"),
        (&PEAK, None) => format!("the tree held {ram}"),
        // This is the start of a process. All other events of these kinds are made from one in the report.
        (Kind::Run(_), None) => format!("parent {}", count(ppid.map(u64::from))),
    };
    let process = event.pid.map(|pid| format!("{pid:>8} {command:<15}  ")).unwrap_or_default();
    format!("{at_s:>12.3} s  {:<13}  {process}{words}", kind.name())
}

/// Formats events as JSON, an array of objects.
pub fn json(events: &[Event]) -> String {
    quote::json_pretty(&events)
}

/// The columns of events in CSV.
const COLUMNS: [CsvColumn<Event>; 18] = [
    ("at_s", |event| event.at_s.to_string()),
    ("type", |event| event.kind.name().to_owned()),
    ("pid", |event| csv_plain(event.pid)),
    ("ppid", |event| csv_plain(event.ppid)),
    ("command", |event| csv_cell(event.command.as_deref().unwrap_or_default())),
    ("exit_code", |event| csv_plain(event.exit.and_then(|exit| exit.code))),
    ("exit_signal", |event| csv_plain(event.exit.and_then(|exit| exit.signal))),
    ("cpu_s", |event| csv_plain(event.cpu_s)),
    ("ram_bytes", |event| csv_plain(event.ram_bytes)),
    ("rule", |event| csv_text(event.rule.as_deref())),
    ("unit", |event| csv_plain(event.unit.map(Unit::name))),
    ("amount", |event| csv_plain(event.amount)),
    ("allowed", |event| csv_plain(event.allowed)),
    ("rate_bytes_per_s", |event| csv_plain(event.rate_bytes_per_s)),
    ("left_s", |event| csv_plain(event.left_s)),
    ("from", |event| csv_plain(event.from)),
    ("device", |event| csv_text(event.device.as_deref())),
    ("message", |event| csv_text(event.message.as_deref())),
];

/// Formats events as CSV, with the names of the columns in the first line. The cell of a null is empty.
pub fn csv(events: &[Event]) -> String {
    csv_table(&COLUMNS, events)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::report::ProcessUsage;

    fn recording() -> Recording {
        let usage = gpu_track_core::fixtures::full().processes.heaviest.swap_remove(0).usage;
        let process = |pid, start_ns, exit, is_still_running| EndedProcess {
            start_ns,
            is_still_running,
            usage: ProcessUsage {
                pid,
                ppid: None,
                command: "a,\"b\x1b".into(),
                wall_s: 2.5,
                cpu_s: Some(1.5),
                peak_rss_bytes: None,
                exit,
                ..usage.clone()
            },
        };
        let exit = |code, signal| Exit { code, signal };
        let processes = vec![
            process(12, 1_500_000_000, exit(None, Some(9)), false),
            process(11, 1_000_000_000, exit(Some(3), None), false),
            process(13, 9_000_000_000, exit(None, None), true),
            // It started before the first row of a database, which does not tell the start of the run.
            process(10, 500_000_000, exit(Some(0), None), false),
        ];
        Recording {
            start_ns: 1_000_000_000,
            processes: Some(processes),
            revisions: vec![(2_000_000_000, 7_000_000)],
            ..Recording::default()
        }
    }

    // Requirement: TIME-15
    #[test]
    fn events_are_in_the_order_of_their_times_and_can_not_control_a_terminal() {
        let report = gpu_track_core::fixtures::full();
        let all = events(&recording(), Some(&report), &Filter::default());
        let expected = "       0.000 s  start                11 a,\"b\\x1b         parent n/a
       0.000 s  start                10 a,\"b\\x1b         parent n/a
       0.500 s  start                12 a,\"b\\x1b         parent n/a
       1.000 s  revision       the tree turned out to have held 7.00 MB
       2.000 s  exit                 10 a,\"b\\x1b         status 0, 1.50 s CPU, peak RSS n/a
       2.500 s  exit                 11 a,\"b\\x1b         status 3, 1.50 s CPU, peak RSS n/a
       3.000 s  killed               12 a,\"b\\x1b         SIGKILL, 1.50 s CPU, peak RSS n/a
       8.000 s  start                13 a,\"b\\x1b         parent n/a
      10.500 s  still_running        13 a,\"b\\x1b         1.50 s CPU, peak RSS n/a
      41.500 s  peak           the tree held 204 MB
";
        assert_eq!(text(&all), expected);
        let rows = csv(&all);
        assert!(rows.contains("\n2.5,exit,11,,\"a,\"\"b\\x1b\",3,,1.5,,,,,,,,,,\n"), "{rows}");
        let read: serde_json::Value = serde_json::from_str(&json(&all)).unwrap();
        assert_eq!((&read[6]["type"], &read[6]["exit"]["signal"]), (&"killed".into(), &9.into()));
        assert!(read[6]["ram_bytes"].is_null());
    }

    // Requirement: ALERT-9
    #[test]
    fn events_of_alerts_are_in_order_with_those_of_processes_and_alone() {
        let report = gpu_track_core::fixtures::killed();
        let of_run = |all: &[Event]| -> Vec<_> {
            let all = all.iter().filter(|event| event.pid.is_none());
            all.map(|event| (event.at_s, event.kind.name())).collect()
        };
        let alone = of_report(&report, &Filter::default());
        let expected = [
            (0.0, "start"),
            (1.5, "warning"),
            (21.5, "recovered"),
            (31.0, "jump"),
            (41.5, "peak"),
            (61.5, "growth"),
            (83.25, "stop"),
        ];
        assert_eq!(of_run(&alone), expected);
        let with_processes = events(&recording(), Some(&report), &Filter::default());
        assert_eq!(of_run(&with_processes)[1..], [&[(1.5, "warning")][..], &expected[2..]].concat()[..]);
        assert!(with_processes.is_sorted_by(|a, b| a.at_s <= b.at_s));
        let shown = text(&alone);
        assert!(
            shown.contains("warning        alert ram>80%, 1.50 s after the start: 13.0 GB of RAM\n"),
            "{shown}"
        );
        assert!(
            shown.contains(
                "allocation         4242 python3 train.py  GPU RAM on GPU-8f6c2d1e-0000-1111-2222-333344445555 rose \
                 from 0 B to 12.0 GB within 0.25 s\n"
            ),
            "{shown}"
        );
        let rows = csv(&alone);
        assert!(
            rows.contains(
                "\n30.25,allocation,4242,,\"python3 train.py\",,,,,,bytes,12000000000,,,,0,\
                 \"GPU-8f6c2d1e-0000-1111-2222-333344445555\",\n"
            ),
            "{rows}"
        );
        assert!(
            rows.contains(
                "\n61.5,growth,,,\"\",,,,,\"growth\",bytes,12500000000,12800000000,2000000,840.5,,,\n"
            ),
            "{rows}"
        );
    }

    // Requirement: TIME-15
    #[test]
    fn filter_takes_kinds_times_and_the_last_ones() {
        let with = |filter: Filter| {
            let all = events(&recording(), None, &filter);
            all.iter().map(|event| (event.kind.name(), event.at_s)).collect::<Vec<_>>()
        };
        let kinds = [Recorded::Exit, Recorded::Killed].map(Kind::Recorded).into();
        assert_eq!(
            with(Filter { kinds, ..Filter::default() }),
            [("exit", 2.0), ("exit", 2.5), ("killed", 3.0)]
        );
        let last = with(Filter { since_s: 0.5, last: Some(2), ..Filter::default() });
        assert_eq!(last, [("start", 8.0), ("still_running", 10.5)]);
        assert_eq!(with(Filter { since_s: 0.6, last: Some(99), ..Filter::default() }).len(), 6);
        for kind in Kind::all() {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }
}
