//! `--events FILE`: what happens in the run, as it happens: a JSON object on each line.
//!
//! [`event_line`] has what the lines are. After a restart, events can come again. Those that are in the file already are skipped.

use std::collections::HashSet;
use std::io;

use gpu_track_report::event_line::{EventLine, FORM_VERSION, Header, Sources};

use super::sink::{Loss, Resume, Sink, SinkContext};
use super::tracking::LineFile;
use crate::model::alert::{EventKind, RunEvent};
use crate::model::report::{Report, Stage};
use crate::model::style::StreamFile;
use crate::model::timestamp::rfc3339;
use crate::model::tree_sample::{ItemKind, Wants};

/// After a restart, only events in this many last bytes of the file can come again.
const RECENT_BYTES: u64 = 1024 * 1024;

/// What identifies an event, so that one that comes again is recognised.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    /// The bits of its time in seconds, a float, which can't be hashed itself.
    at: u64,
    kind: EventKind,
    rule: Option<String>,
    pid: Option<u32>,
    device: Option<String>,
}

fn key(event: &RunEvent) -> Key {
    let (rule, device) = (event.rule.clone(), event.device.clone());
    Key { at: event.at_s.to_bits(), kind: event.kind, rule, pid: event.pid, device }
}

struct EventFile {
    target: StreamFile,
    header: Header,
    /// `None`: the sink is not open.
    lines: Option<LineFile>,
    /// The events that were in the last [`RECENT_BYTES`] of the file when it was opened.
    known: HashSet<Key>,
}

/// The sink, if `--events` is given.
pub(super) fn make(context: &SinkContext) -> Vec<Box<dyn Sink>> {
    let config = context.config;
    let Some(target) = config.tracking.alerts.events_file.clone() else { return Vec::new() };
    let start = &config.start;
    let header = Header {
        form_version: FORM_VERSION,
        gpu_track_version: env!("CARGO_PKG_VERSION").to_owned(),
        command: config.command.clone(),
        begun_at: rfc3339(start.date(start.monotonic_ns)),
        monotonic_ns: start.monotonic_ns,
        host: context.host.host.clone(),
        sources: Sources {
            layers: config.discovery.layers.iter().map(|layer| layer.name().to_owned()).collect(),
            connector_absent: config.discovery.connector_absent.clone(),
            alerts: config.tracking.alerts.list.iter().map(|alert| alert.words.clone()).collect(),
            limits: config.tracking.limits.list.iter().map(|limit| limit.words.clone()).collect(),
        },
    };
    vec![Box::new(EventFile { target, header, lines: None, known: HashSet::new() })]
}

impl Sink for EventFile {
    fn name(&self) -> String {
        format!("The file of events {}", self.target.path.display())
    }

    /// Opens the file and notes the events at its end. An empty file gets its header, unless the disk is full.
    fn open(&mut self, _resume: Resume) -> io::Result<()> {
        let mut lines = LineFile::open(&self.target)?;
        lines.last_lines(RECENT_BYTES, |line| {
            if let Some(EventLine::Event(event)) = EventLine::read(line) {
                self.known.insert(key(&event));
            }
        })?;
        if lines.is_empty() {
            lines.append(&[self.header()])?;
        }
        self.lines = Some(lines);
        Ok(())
    }

    fn wants(&self) -> Wants {
        Wants::from([ItemKind::Happened])
    }

    fn happened(&mut self, event: &RunEvent) -> io::Result<()> {
        self.write(event)
    }

    /// Writes the events that only the report has: the RAM peak and the end of the run. Only the last report comes here, since
    /// [`Sink::wants_report`] has its default.
    fn report(&mut self, report: &Report, _stage: Stage) -> io::Result<()> {
        let of_end = |event: &&RunEvent| matches!(event.kind, EventKind::Peak | EventKind::Stop);
        let events = report.events.iter().flat_map(|events| &events.list).filter(of_end);
        for event in events {
            self.write(event)?;
        }
        Ok(())
    }

    fn loss(&self) -> Loss {
        self.lines.as_ref().map(LineFile::loss).unwrap_or_default()
    }
}

impl EventFile {
    /// Writes an event, unless it was in the file when that was opened. In an empty file, writes the header before it.
    fn write(&mut self, event: &RunEvent) -> io::Result<()> {
        let is_empty = self.lines.as_ref().is_some_and(LineFile::is_empty);
        let header = if is_empty { self.header() } else { String::new() };
        match &mut self.lines {
            Some(file) if !self.known.contains(&key(event)) => file
                .append(&[format!("{header}{}", EventLine::Event(Box::new(event.clone())).text())])
                .map(drop),
            _ => Ok(()),
        }
    }

    /// The first line of the file.
    fn header(&self) -> String {
        EventLine::Run(Box::new(self.header.clone())).text()
    }
}

#[cfg(test)]
mod tests {
    use gpu_track_core::fixtures;

    use super::*;
    use crate::sinks::tracking::TrackingFile;

    fn sink(target: StreamFile) -> EventFile {
        let header = Header {
            form_version: FORM_VERSION,
            gpu_track_version: "0.1.0".into(),
            command: vec!["app".into()],
            begun_at: "2026-01-01T00:00:00Z".into(),
            monotonic_ns: 1,
            host: fixtures::full().host,
            sources: Sources {
                layers: vec!["wait".into()],
                connector_absent: Some("not root".into()),
                alerts: vec!["ram>80%".into()],
                limits: Vec::new(),
            },
        };
        let mut sink = EventFile { target, header, lines: None, known: HashSet::new() };
        sink.open(Resume::Continued).unwrap();
        sink
    }

    // Requirement: ALERT-8
    #[test]
    fn file_that_was_cut_anywhere_goes_on_without_an_event_twice_or_torn() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap().join("events");
        let file = TrackingFile::create_lines(path.clone(), false).unwrap();
        let give = |sink: &mut EventFile, count: u32| {
            for n in 0..count {
                for kind in [EventKind::Warning, EventKind::Recovered] {
                    let rule = Some("ram>80%".to_owned());
                    sink.happened(&RunEvent { rule, ..RunEvent::new(f64::from(n) / 3.0, kind) }).unwrap();
                }
            }
        };
        let read = || {
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.ends_with('\n'), "{text}");
            text.lines().map(|line| EventLine::read(line).expect(line)).collect::<Vec<_>>()
        };
        give(&mut sink(file.target()), 20);
        let (whole, first) = (std::fs::read(&path).unwrap(), read());
        assert!(matches!(first[0], EventLine::Run(_)) && first.len() == 41);
        for cut in (0..=whole.len()).rev().step_by(97) {
            std::fs::write(&path, &whole[..cut]).unwrap();
            give(&mut sink(file.target()), 22);
            let again = read();
            assert_eq!(again.len(), 1 + 2 * 22, "cut at {cut} of {}", whole.len());
            assert!(first.iter().all(|line| again.contains(line)), "cut at {cut}");
        }
    }

    // Requirement: ALERT-8
    #[test]
    fn peak_and_end_come_with_the_report() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap().join("events");
        let file = TrackingFile::create_lines(path.clone(), false).unwrap();
        let mut report = fixtures::killed();
        let events = report.events.get_or_insert_default();
        events.list.push(RunEvent::new(41.5, EventKind::Peak));
        sink(file.target()).report(&report, Stage::Over).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let kinds: Vec<_> = text
            .lines()
            .filter_map(|line| match EventLine::read(line) {
                Some(EventLine::Event(event)) => Some(event.kind),
                _ => None,
            })
            .collect();
        assert_eq!(kinds, [EventKind::Stop, EventKind::Peak]);
    }
}
