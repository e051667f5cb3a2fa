//! `--tf FILE.pftrace`: the run as a trace, which ui.perfetto.dev opens: every process as a slice, and counters over time.
//!
//! [`tracks`] has what is drawn where, [`messages`] the format, [`packets`] how packets are written.
//!
//! - A process is written when its figures are final, begin and end together: a reader sorts by time. Each has a track of its own,
//!   so no two slices of a track overlap, and nothing has to be kept of the processes that live.
//! - A value of a counter holds until the next one. So it is written at the beginning of its interval.
//! - Each collector writes a sequence of packets of its own. A name is written once in a sequence, and then meant by its number.

mod messages;
mod packets;
mod tracks;

use std::io;

use rustc_hash::{FxHashMap, FxHashSet};

use self::messages::{
    ClockSnapshot, ClockTime, DebugAnnotation, InternedData, InternedName, NEEDS_STATE, STATE_CLEARED,
    TracePacket, TracePacketDefaults, TrackDescriptor, TrackEvent, clock, event,
};
use self::packets::PacketFile;
use super::intervals::{Intervals, Row};
use super::recent::Recent;
use crate::model::ended_process::EndedProcess;
use crate::model::report::{Report, Stage};
use crate::model::style::StreamFile;
use crate::model::tree_sample::{Event, TreeSample, Wants};
use crate::run::tree::ProcessSummary;
use crate::sinks::sink::{Loss, Place, Resume, Sink};
use crate::sys::clock as now;

/// Bytes at the end of a file that can have packets which come again after a restart: more than a collector writes between two
/// savings of its state.
const COMES_AGAIN: u64 = 16 * 1024 * 1024;
/// Most names that have numbers in a sequence. Others are written each time.
const MOST_NAMES: usize = 4096;
/// Most characters of a process's arguments.
const LONGEST_ARGUMENTS: usize = 120;

/// Names of the figures of events. Their numbers are their places, from 1 on.
const ANNOTATIONS: [&str; 11] = [
    "pid",
    "parent pid",
    "arguments",
    "exit code",
    "signal",
    "still running",
    "CPU time (s)",
    "peak RSS (bytes)",
    "max RAM (bytes)",
    ROW_END,
    REVISED,
];

/// With the last value of a row: when the row ends.
const ROW_END: &str = "end of the interval (ns)";
/// With the last value that became known later: the sample that had it.
const REVISED: &str = "known later, of the sample (ns)";

/// The key of what is no sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    /// The track of a process.
    Process(u64),
    Revised {
        at_ns: u64,
        bytes: [u64; 3],
    },
}

struct TraceFile {
    target: StreamFile,
    command: Vec<String>,
    intervals: Intervals,
    packets: Option<PacketFile>,
    known: Recent<Key>,
    sequence: Sequence,
}

/// What a reader knows of the packets so far.
#[derive(Debug, Default)]
struct Sequence {
    id: u32,
    is_begun: bool,
    names: FxHashMap<String, u64>,
    tracks: FxHashSet<u64>,
}

/// Gives the sink of a file.
pub(super) fn make(place: &Place, target: StreamFile) -> Box<dyn Sink> {
    let interval_ns = place.config.tracking.interval_ns();
    Box::new(TraceFile::new(target, place.config.command.clone(), interval_ns))
}

impl Sink for TraceFile {
    fn name(&self) -> String {
        super::name(&self.target)
    }

    fn open(&mut self, _resume: Resume) -> io::Result<()> {
        let mut last_sequence = 0;
        // What is in the file says where to go on: a new one is empty.
        let packets = PacketFile::open(&self.target, COMES_AGAIN, |packet| {
            last_sequence = last_sequence.max(packet.trusted_packet_sequence_id.unwrap_or(0));
            if let Some(TrackEvent { kind: Some(event::SLICE_END), track_uuid: Some(uuid), .. }) =
                packet.track_event
            {
                self.known.add(Key::Process(uuid));
            }
            // A row's values have the time of its begin. Its end is with the last of them.
            self.intervals.last_ns = self.intervals.last_ns.max(marked(&packet, ROW_END).unwrap_or(0));
            is_last_of_thing(&packet)
        })?;
        self.packets = Some(packets);
        self.sequence.id = last_sequence + 1;
        Ok(())
    }

    fn wants(&self) -> Wants {
        Wants { samples: true, ended: true, events: true, ..Wants::default() }
    }

    fn wants_report(&self, stage: Stage) -> bool {
        stage == Stage::Over
    }

    fn sample(&mut self, sample: &TreeSample) -> io::Result<()> {
        self.intervals.add(sample).map_or(Ok(()), |row| self.write_row(&row))
    }

    fn process_ended(&mut self, process: &ProcessSummary) -> io::Result<()> {
        self.write_process(&process.ended())
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        let Event::Revised { at_ns, max_footprint_bytes } = *event;
        let key = Key::Revised { at_ns, bytes: max_footprint_bytes.values() };
        if !self.known.add(key) {
            return Ok(());
        }
        // The row of that time may be written already: its value holds up to there.
        let mut packets = Vec::new();
        for tracks::Value { track, value } in tracks::ram_values(max_footprint_bytes) {
            packets.extend(self.counter(at_ns.saturating_sub(1), track, value));
        }
        mark(&mut packets, REVISED, at_ns);
        self.write(packets).map(drop)
    }

    fn report(&mut self, report: &Report, _stage: Stage) -> io::Result<()> {
        if let Some(last) = self.intervals.take_rest() {
            self.write_row(&last)?;
        }
        self.write_end(report)
    }

    fn is_written(&self) -> bool {
        self.intervals.is_empty()
    }

    fn loss(&self) -> Loss {
        self.packets.as_ref().map(PacketFile::loss).unwrap_or_default()
    }
}

impl TraceFile {
    fn new(target: StreamFile, command: Vec<String>, interval_ns: u64) -> Self {
        Self {
            target,
            command,
            intervals: Intervals::new(interval_ns),
            packets: None,
            known: Recent::default(),
            sequence: Sequence::default(),
        }
    }

    /// Writes the values of a row.
    fn write_row(&mut self, Row { sample, .. }: &Row) -> io::Result<()> {
        let mut packets = Vec::new();
        for (rank, gpu) in (0..).zip(&sample.gpu.devices) {
            packets.extend(self.declare(tracks::gpu_track(&gpu.device, rank)));
        }
        for tracks::Value { track, value } in tracks::values(sample) {
            packets.extend(self.counter(sample.from_ns, track, value));
        }
        mark(&mut packets, ROW_END, sample.at_ns);
        if self.write(packets)? {
            self.intervals.last_ns = sample.at_ns;
        }
        Ok(())
    }

    /// Writes a process, unless it is there.
    fn write_process(&mut self, process: &EndedProcess) -> io::Result<()> {
        let uuid = tracks::process_uuid(process.usage.pid, process.start_ns);
        if !self.known.add(Key::Process(uuid)) {
            return Ok(());
        }
        let usage = &process.usage;
        let args = usage.args.as_ref().map(|args| tracks::cut(&args.join(" "), LONGEST_ARGUMENTS));
        let begin = [
            number("pid", Some(usage.pid.into())),
            number("parent pid", usage.ppid.map(u64::from)),
            args.map(|args| DebugAnnotation { string_value: Some(args), ..annotation("arguments") }),
        ];
        let exit = usage.exit;
        let exit_code =
            exit.code.map(|code| DebugAnnotation { int_value: Some(code.into()), ..annotation("exit code") });
        let is_running = process.is_still_running;
        let still =
            is_running.then(|| DebugAnnotation { bool_value: Some(true), ..annotation("still running") });
        let cpu_s =
            usage.cpu_s.map(|s| DebugAnnotation { double_value: Some(s), ..annotation("CPU time (s)") });
        let end = [
            exit_code,
            exit.signal.and_then(|signal| number("signal", u64::try_from(signal).ok())),
            still,
            cpu_s,
            number("peak RSS (bytes)", usage.peak_rss_bytes),
        ];
        let end_ns = process.start_ns.saturating_add((usage.wall_s * 1e9).round() as u64);
        let mut packets = self.declare(tracks::process_track(uuid, &usage.command));
        packets.push(self.named(process.start_ns, uuid, event::SLICE_BEGIN, &usage.command, begin));
        packets.push(self.unnamed(end_ns, uuid, event::SLICE_END, end));
        self.write(packets).map(drop)
    }

    /// Writes what the whole run used, at its end.
    fn write_end(&mut self, report: &Report) -> io::Result<()> {
        let exit_code = report.ending.exit.code;
        let annotations = [
            exit_code.map(|code| DebugAnnotation { int_value: Some(code.into()), ..annotation("exit code") }),
            report.ending.exit.signal.and_then(|signal| number("signal", u64::try_from(signal).ok())),
            number("max RAM (bytes)", report.max_ram.combined.footprint_bytes),
        ];
        let end_ns = now::monotonic_ns();
        let event = self.named(end_ns, tracks::RUN, event::INSTANT, "end of the run", annotations);
        self.write(vec![event]).map(drop)
    }

    /// Gives the packets of a counter's value from this time on.
    fn counter(&mut self, at_ns: u64, track: TrackDescriptor, value: f64) -> Vec<TracePacket> {
        let uuid = track.uuid.unwrap_or(0);
        let is_whole = value.fract() == 0.0 && value.abs() < 9e15;
        let mut packets = self.declare(track);
        packets.push(self.packet(TracePacket {
            timestamp: Some(at_ns),
            track_event: Some(TrackEvent {
                kind: Some(event::COUNTER),
                track_uuid: Some(uuid),
                counter_value: is_whole.then_some(value as i64),
                double_counter_value: (!is_whole).then_some(value),
                ..TrackEvent::default()
            }),
            ..TracePacket::default()
        }));
        packets
    }

    /// Gives the packet that declares a track, if no packet has.
    fn declare(&mut self, track: TrackDescriptor) -> Vec<TracePacket> {
        if self.sequence.tracks.contains(&track.uuid.unwrap_or(0)) {
            return Vec::new();
        }
        // The track of a process is declared once in any case.
        if track.parent_uuid != Some(tracks::PROCESSES) {
            self.sequence.tracks.insert(track.uuid.unwrap_or(0));
        }
        vec![self.packet(TracePacket { track_descriptor: Some(track), ..TracePacket::default() })]
    }

    /// Gives an event with a name. The first one of a name has the name's number beside it.
    fn named(
        &mut self,
        at_ns: u64,
        track: u64,
        kind: i32,
        name: &str,
        annotations: impl IntoIterator<Item = Option<DebugAnnotation>>,
    ) -> TracePacket {
        let mut packet = self.unnamed(at_ns, track, kind, annotations);
        let name = tracks::cut(name, LONGEST_ARGUMENTS);
        let event = packet.track_event.get_or_insert_default();
        if let Some(iid) = self.sequence.names.get(&name) {
            event.name_iid = Some(*iid);
        } else if self.sequence.names.len() < MOST_NAMES {
            let iid = self.sequence.names.len() as u64 + 1;
            self.sequence.names.insert(name.clone(), iid);
            event.name_iid = Some(iid);
            let event_names = vec![InternedName { iid: Some(iid), name: Some(name) }];
            packet.interned_data = Some(InternedData { event_names, ..InternedData::default() });
        } else {
            event.name = Some(name);
        }
        packet
    }

    /// Gives an event without a name.
    fn unnamed(
        &self,
        at_ns: u64,
        track: u64,
        kind: i32,
        annotations: impl IntoIterator<Item = Option<DebugAnnotation>>,
    ) -> TracePacket {
        self.packet(TracePacket {
            timestamp: Some(at_ns),
            track_event: Some(TrackEvent {
                kind: Some(kind),
                track_uuid: Some(track),
                debug_annotations: annotations.into_iter().flatten().collect(),
                ..TrackEvent::default()
            }),
            ..TracePacket::default()
        })
    }

    /// Makes a packet one of the sequence.
    fn packet(&self, packet: TracePacket) -> TracePacket {
        let trusted_packet_sequence_id = Some(self.sequence.id);
        TracePacket { trusted_packet_sequence_id, sequence_flags: Some(NEEDS_STATE), ..packet }
    }

    /// Gives the packets that begin the sequence: clocks, names of figures, and the first tracks.
    fn beginning(&mut self) -> Vec<TracePacket> {
        let monotonic_ns = now::monotonic_ns();
        let boot_ns = u64::try_from(i128::from(monotonic_ns) + now::boot_offset_ns()).unwrap_or(monotonic_ns);
        let clocks = [
            (clock::MONOTONIC, monotonic_ns),
            (clock::BOOTTIME, boot_ns),
            (clock::REALTIME, now::realtime_ns()),
        ];
        let clocks = clocks.map(|(id, ns)| ClockTime { clock_id: Some(id), timestamp: Some(ns) });
        let names = (1..).zip(ANNOTATIONS);
        let names = names.map(|(iid, name)| InternedName { iid: Some(iid), name: Some(name.to_owned()) });
        let first = TracePacket {
            clock_snapshot: Some(ClockSnapshot {
                clocks: clocks.to_vec(),
                primary_trace_clock: Some(clock::MONOTONIC),
            }),
            interned_data: Some(InternedData {
                debug_annotation_names: names.collect(),
                ..InternedData::default()
            }),
            trace_packet_defaults: Some(TracePacketDefaults { timestamp_clock_id: Some(clock::MONOTONIC) }),
            trusted_packet_sequence_id: Some(self.sequence.id),
            sequence_flags: Some(STATE_CLEARED),
            ..TracePacket::default()
        };
        let tracks = tracks::first_tracks(&self.command);
        let mut packets = vec![first];
        packets.extend(tracks.into_iter().flat_map(|track| self.declare(track)));
        packets
    }

    /// Writes packets about one thing, those that begin the sequence first. Gives whether they are there.
    fn write(&mut self, packets: Vec<TracePacket>) -> io::Result<bool> {
        let mut all = Vec::new();
        if !self.sequence.is_begun {
            all = self.beginning();
            self.sequence.is_begun = true;
        }
        all.extend(packets);
        let Some(file) = &mut self.packets else { return Ok(false) };
        let is_there = file.append(all, 1)?;
        if !is_there {
            // Names and tracks may be missing in the file: the sequence begins anew.
            self.sequence = Sequence { id: self.sequence.id + 1, ..Sequence::default() };
        }
        Ok(is_there)
    }
}

/// Marks the last of several packets of a row, or of what became known later. `at_ns`: CLOCK_MONOTONIC nanoseconds.
fn mark(packets: &mut [TracePacket], name: &str, at_ns: u64) {
    if let Some(event) = packets.last_mut().and_then(|packet| packet.track_event.as_mut()) {
        event.debug_annotations.extend(number(name, Some(at_ns)));
    }
}

/// Gives the time that a packet is marked with, CLOCK_MONOTONIC nanoseconds. `None`: it has no such mark.
fn marked(packet: &TracePacket, name: &str) -> Option<u64> {
    let annotations = &packet.track_event.as_ref()?.debug_annotations;
    let iid = iid_of(name);
    annotations.iter().find(|annotation| annotation.name_iid == iid)?.uint_value
}

/// Whether a packet is the last one of a row, a process, or something else that is written at once.
fn is_last_of_thing(packet: &TracePacket) -> bool {
    let kind = packet.track_event.as_ref().and_then(|event| event.kind);
    let is_marked = || [ROW_END, REVISED].into_iter().any(|name| marked(packet, name).is_some());
    matches!(kind, Some(event::SLICE_END | event::INSTANT)) || is_marked()
}

/// Gives the number of the name of a figure.
fn iid_of(name: &str) -> Option<u64> {
    (1..).zip(ANNOTATIONS).find(|(_, known)| *known == name).map(|(iid, _)| iid)
}

/// Gives a figure of an event, without its value.
fn annotation(name: &str) -> DebugAnnotation {
    DebugAnnotation { name_iid: iid_of(name), ..DebugAnnotation::default() }
}

/// Gives a figure of an event. `None`: its value is not known.
fn number(name: &str, value: Option<u64>) -> Option<DebugAnnotation> {
    value.map(|value| DebugAnnotation { uint_value: Some(value), ..annotation(name) })
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use gpu_track_core::samples;
    use prost::Message;

    use super::messages::Trace;
    use super::*;
    use crate::model::gpu::{Device, Figure};
    use crate::model::groups::Groups;
    use crate::model::report::{Exit, ProcessUsage};
    use crate::model::tree_sample::{GpuSample, Span, SystemSample};
    use crate::sinks::tracking::TrackingFile;

    const MS: u64 = 1_000_000;

    fn new_file(directory: &tempfile::TempDir) -> TrackingFile {
        TrackingFile::create(directory.path().canonicalize().unwrap().join("t.pftrace"), false).unwrap()
    }

    fn sink(target: StreamFile) -> TraceFile {
        let mut sink = TraceFile::new(target, vec!["app".into(), "--all".into()], 100 * MS);
        sink.open(Resume::Continued).unwrap();
        sink
    }

    fn sample(n: u64) -> TreeSample {
        let footprints = Groups { main: n, descendants: 0, combined: n * 10 };
        TreeSample {
            from_ns: (n - 1) * 100 * MS,
            at_ns: n * 100 * MS,
            footprint_bytes: footprints.map(Span::at_end),
            ..TreeSample::default()
        }
    }

    fn process(pid: u32, start_ns: u64) -> EndedProcess {
        let usage = ProcessUsage {
            pid,
            command: "cc1".into(),
            args: Some(vec!["cc1".into(), "a".repeat(500)]),
            exit: Exit { code: Some(3), signal: None },
            wall_s: 0.25,
            ..samples::full().processes.heaviest[0].clone()
        };
        EndedProcess { start_ns, is_still_running: false, usage }
    }

    fn packets(path: &Path) -> Vec<TracePacket> {
        Trace::decode(&std::fs::read(path).unwrap()[..]).unwrap().packet
    }

    /// The values of the counter of this name, with their times.
    fn values(packets: &[TracePacket], name: &str) -> Vec<(u64, f64)> {
        let tracks = packets.iter().filter_map(|packet| packet.track_descriptor.as_ref());
        let of_name = |track: &&TrackDescriptor| track.name.as_deref() == Some(name);
        let uuid = tracks.clone().find(of_name).unwrap_or_else(|| panic!("no track {name}")).uuid;
        let events =
            packets.iter().filter_map(|packet| Some((packet.timestamp?, packet.track_event.as_ref()?)));
        let events = events.filter(|(_, event)| event.track_uuid == uuid);
        let value = |event: &TrackEvent| {
            event.double_counter_value.unwrap_or_else(|| event.counter_value.unwrap() as f64)
        };
        events.map(|(at_ns, event)| (at_ns, value(event))).collect()
    }

    // Requirement: TIME-20
    #[test]
    fn values_stand_at_the_begin_of_their_interval_and_what_is_not_known_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let file = new_file(&directory);
        let mut sink = sink(file.target());
        let device = Arc::new(Device { id: "GPU-1".into(), index: Some(0), ..Device::default() });
        let gauges = [(Figure::Power, 71.5)].into();
        let mut with_gpu = sample(2);
        with_gpu.gpu.devices =
            vec![GpuSample { device, used_bytes: Some(9), gauges, ..GpuSample::default() }];
        with_gpu.system = SystemSample { ram_bytes: Some(500), ..SystemSample::default() };
        for sample in [sample(1), with_gpu] {
            sink.sample(&sample).unwrap();
        }
        sink.event(&Event::Revised {
            at_ns: 100 * MS,
            max_footprint_bytes: sample(7).footprint_bytes.map(|span| span.max),
        })
        .unwrap();
        let packets = packets(&file.target().path);
        assert_eq!(values(&packets, "RAM"), [(0, 10.0), (100 * MS, 20.0), (100 * MS - 1, 70.0)]);
        assert_eq!(values(&packets, "RAM of main"), [(0, 1.0), (100 * MS, 2.0), (100 * MS - 1, 7.0)]);
        assert_eq!(values(&packets, "RAM in use on the machine"), [(100 * MS, 500.0)]);
        assert_eq!(values(&packets, "Power"), [(100 * MS, 71.5)]);
        assert_eq!(values(&packets, "Memory in use by all"), [(100 * MS, 9.0)]);
        assert!(!packets.iter().any(|packet| {
            packet.track_descriptor.as_ref().is_some_and(|track| track.name.as_deref() == Some("Utilization"))
        }));
        // Times are of the monotonic clock, which the first packet ties to the others.
        let first = packets[0].clone();
        assert_eq!(first.trace_packet_defaults.unwrap().timestamp_clock_id, Some(clock::MONOTONIC));
        assert_eq!(first.clock_snapshot.unwrap().clocks.len(), 3);
    }

    // Requirement: TIME-20
    #[test]
    fn process_is_a_slice_with_what_it_was_and_used() {
        let directory = tempfile::tempdir().unwrap();
        let file = new_file(&directory);
        let mut sink = sink(file.target());
        sink.write_process(&process(7, 100)).unwrap();
        let packets = packets(&file.target().path);
        let events: Vec<&TracePacket> =
            packets.iter().filter(|packet| packet.track_event.is_some()).collect();
        let [begin, end] = events[..] else { panic!("{events:?}") };
        assert_eq!((begin.timestamp, end.timestamp), (Some(100), Some(100 + 250 * MS)));
        let name = begin.interned_data.as_ref().unwrap().event_names[0].clone();
        assert_eq!(
            (name.iid, name.name.as_deref()),
            (begin.track_event.as_ref().unwrap().name_iid, Some("cc1"))
        );
        let of = |packet: &TracePacket, name: &str| {
            let annotations = packet.track_event.as_ref().unwrap().debug_annotations.clone();
            annotations.into_iter().find(|annotation| annotation.name_iid == iid_of(name))
        };
        assert_eq!(of(begin, "pid").unwrap().uint_value, Some(7));
        let arguments = of(begin, "arguments").unwrap().string_value.unwrap();
        assert_eq!((arguments.chars().count(), arguments.chars().last()), (LONGEST_ARGUMENTS, Some('…')));
        assert_eq!(of(end, "exit code").unwrap().int_value, Some(3));
        assert_eq!(of(end, "signal"), None);
        assert!(of(end, "peak RSS (bytes)").is_some() && of(end, "CPU time (s)").is_some());
    }

    // Requirement: TIME-20, TIME-2
    #[test]
    fn trace_that_was_cut_anywhere_goes_on_without_anything_twice() {
        let directory = tempfile::tempdir().unwrap();
        let file = new_file(&directory);
        let path = file.target().path;
        let give = |sink: &mut TraceFile, numbers: std::ops::RangeInclusive<u64>| {
            for n in numbers {
                sink.sample(&sample(n)).unwrap();
                sink.write_process(&process(7, n)).unwrap();
            }
        };
        give(&mut sink(file.target()), 1..=20);
        let whole = std::fs::read(&path).unwrap();
        for cut in (0..=whole.len()).rev().step_by(97) {
            std::fs::write(&path, &whole[..cut]).unwrap();
            give(&mut sink(file.target()), 1..=22);
            let packets = packets(&path);
            let rows: Vec<u64> = packets.iter().filter_map(|packet| marked(packet, ROW_END)).collect();
            assert_eq!(rows, (1..=22).map(|n| n * 100 * MS).collect::<Vec<_>>(), "cut at {cut}");
            assert_eq!(values(&packets, "RAM").len(), 22, "cut at {cut}");
            for (key, event) in [("begin", event::SLICE_BEGIN), ("end", event::SLICE_END)] {
                let of_kind = packets.iter().filter_map(|packet| packet.track_event.as_ref());
                let count = of_kind.filter(|one| one.kind == Some(event)).count();
                assert_eq!(count, 22, "{key}, cut at {cut} of {}", whole.len());
            }
        }
    }

    // Requirement: TIME-20
    #[test]
    fn names_beyond_those_with_numbers_are_written_each_time() {
        let directory = tempfile::tempdir().unwrap();
        let file = new_file(&directory);
        let mut sink = sink(file.target());
        for n in 0..MOST_NAMES as u64 + 1 {
            let mut process = process(7, n);
            process.usage.command = format!("program{n}");
            sink.write_process(&process).unwrap();
        }
        let last = format!("program{MOST_NAMES}");
        let packets = packets(&file.target().path);
        let begin = packets.iter().rev().find_map(|packet| packet.track_event.as_ref()?.name.clone());
        assert_eq!((begin, sink.sequence.names.len()), (Some(last), MOST_NAMES));
    }
}
