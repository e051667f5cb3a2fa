//! What a trace has, as prost reads it back.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use gpu_track_core::fixtures;
use prost::Message;

use super::annotations::names;
use super::messages::{DebugAnnotation, NEEDS_STATE, Trace, TrackDescriptor, TrackEvent, clock, event};
use super::*;
use crate::model::ended_task::TaskAround;
use crate::model::gpu::{Device, Figure};
use crate::model::quality::Quality;
use crate::model::report::{Exit, ProcessUsage};
use crate::model::time_groups::ByTimeGroup;
use crate::model::tree_sample::{GpuSample, MaximumSource, Span, SystemSample};
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

fn all(bytes: u64) -> Groups<u64> {
    Groups { main: bytes, descendants: 0, combined: bytes * 10 }
}

fn sample(n: u64) -> TreeSample {
    TreeSample {
        from_ns: (n - 1) * 100 * MS,
        at_ns: n * 100 * MS,
        footprint_bytes: all(n).map(Span::at_end),
        max_ram: all(n).map(|bytes| RamMaximum { bytes, source: MaximumSource::Floor }),
        ..TreeSample::default()
    }
}

fn revised(at_ns: u64, bytes: u64) -> Event {
    Event::Revised { at_ns, max_footprint_bytes: all(bytes) }
}

fn process(pid: u32, start_ns: u64) -> EndedProcess {
    let usage = ProcessUsage {
        pid,
        command: "cc1".into(),
        args: Some(vec!["cc1".into(), "a b".into()]),
        exit: Exit { code: Some(3), signal: None },
        wall_s: 0.25,
        ..fixtures::full().processes.heaviest[0].usage.clone()
    };
    EndedProcess { start_ns, is_still_running: false, usage }
}

/// A job of parallel within a job of Snakemake. It ran from `began_ns` on for a millisecond.
fn task(began_ns: u64) -> EndedTask {
    let [rule, job, _] = fixtures::tasks().try_into().unwrap();
    let around = vec![TaskAround { id: rule.id, title: rule.title() }];
    EndedTask { start_ns: 1, end_ns: began_ns + MS, usage: job, began_ns: Some(began_ns), around }
}

/// A trace, read back.
struct Read(Vec<TracePacket>);

impl Read {
    fn new(path: &Path) -> Self {
        Self(Trace::decode(&std::fs::read(path).unwrap()[..]).unwrap().packet)
    }

    fn tracks(&self) -> impl Iterator<Item = &TrackDescriptor> {
        self.0.iter().filter_map(|packet| packet.track_descriptor.as_ref())
    }

    /// The events of a kind, with their times.
    fn events(&self, kind: i32) -> Vec<(u64, &TrackEvent)> {
        let events =
            self.0.iter().filter_map(|packet| Some((packet.timestamp?, packet.track_event.as_ref()?)));
        events.filter(|(_, event)| event.kind == Some(kind)).collect()
    }

    /// The values of the counter of this name, with their times.
    fn values(&self, name: &str) -> Vec<(u64, f64)> {
        let of_name = |track: &&TrackDescriptor| track.name.as_deref() == Some(name);
        let uuid = self.tracks().find(of_name).unwrap_or_else(|| panic!("no track {name}")).uuid;
        let value = |event: &TrackEvent| {
            event.double_counter_value.unwrap_or_else(|| event.counter_value.unwrap() as f64)
        };
        let events = self.events(event::COUNTER).into_iter().filter(|(_, event)| event.track_uuid == uuid);
        events.map(|(at_ns, event)| (at_ns, value(event))).collect()
    }

    /// The keys of the rows, in their order.
    fn rows(&self) -> Vec<u64> {
        let counters = self.events(event::COUNTER).into_iter();
        counters.filter_map(|(_, event)| annotations::argument(event, Name::RowEnd)).collect()
    }
}

/// The arguments of an event, by their names.
fn arguments(event: &TrackEvent) -> BTreeMap<String, DebugAnnotation> {
    let names: BTreeMap<_, _> = names().into_iter().map(|name| (name.iid, name.name.unwrap())).collect();
    event.debug_annotations.iter().map(|one| (names[&one.name_iid].clone(), one.clone())).collect()
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
    with_gpu.gpu.devices = vec![GpuSample { device, used_bytes: Some(9), gauges, ..GpuSample::default() }];
    with_gpu.system = SystemSample { ram_bytes: Some(500), ..SystemSample::default() };
    for sample in [sample(1), with_gpu] {
        sink.sample(&sample).unwrap();
    }
    let read = Read::new(&file.target().path);
    assert_eq!(read.values("RAM"), [(0, 10.0), (100 * MS, 20.0)]);
    assert_eq!(read.values("RAM of main"), [(0, 1.0), (100 * MS, 2.0)]);
    assert_eq!(read.values("Largest RAM so far"), [(0, 10.0), (100 * MS, 20.0)]);
    assert_eq!(read.values("RAM in use on the machine"), [(100 * MS, 500.0)]);
    assert_eq!(read.values("Power"), [(100 * MS, 71.5)]);
    assert_eq!(read.values("Memory in use by all"), [(100 * MS, 9.0)]);
    assert!(!read.tracks().any(|track| track.name.as_deref() == Some("Utilization")));
    // Times are of the monotonic clock, which the first packet ties to the others.
    let first = read.0[0].clone();
    assert_eq!(first.trace_packet_defaults.unwrap().timestamp_clock_id, Some(clock::MONOTONIC));
    assert_eq!(first.clock_snapshot.unwrap().clocks.len(), 3);
}

// Requirement: TIME-20
#[test]
fn row_has_what_became_known_of_its_time_later() {
    let directory = tempfile::tempdir().unwrap();
    let file = new_file(&directory);
    let mut first = sink(file.target());
    for n in 1..=3 {
        first.sample(&sample(n)).unwrap();
    }
    first.event(&revised(200 * MS, 7)).unwrap();
    // Half an interval waits.
    first.sample(&TreeSample { at_ns: 350 * MS, ..sample(4) }).unwrap();
    first.event(&revised(350 * MS, 9)).unwrap();
    assert!(!first.is_written());
    // All of it comes again after a restart.
    let mut next = sink(file.target());
    next.event(&revised(200 * MS, 7)).unwrap();
    next.event(&revised(200 * MS, 5)).unwrap();
    next.sample(&TreeSample { at_ns: 350 * MS, ..sample(4) }).unwrap();
    next.event(&revised(350 * MS, 9)).unwrap();
    next.sample(&TreeSample { from_ns: 350 * MS, ..sample(4) }).unwrap();
    next.event(&revised(150 * MS, 8)).unwrap();
    let values = [(0, 10.0), (100, 20.0), (200, 30.0), (100, 70.0), (300, 90.0), (100, 80.0)];
    assert_eq!(
        Read::new(&file.target().path).values("RAM"),
        values.map(|(at_ms, bytes)| (at_ms * MS, bytes))
    );
}

// Requirement: TIME-20
#[test]
fn row_of_a_successor_begins_where_the_last_one_ended() {
    let directory = tempfile::tempdir().unwrap();
    let file = new_file(&directory);
    sink(file.target()).sample(&sample(2)).unwrap();
    // The state that it goes on from is older.
    let late = TreeSample { from_ns: 0, ..sample(3) };
    sink(file.target()).sample(&late).unwrap();
    assert_eq!(Read::new(&file.target().path).values("RAM"), [(100 * MS, 20.0), (200 * MS, 30.0)]);
}

// Requirement: TIME-20
#[test]
fn process_is_a_slice_with_what_it_was_and_used() {
    let directory = tempfile::tempdir().unwrap();
    let file = new_file(&directory);
    let mut sink = sink(file.target());
    let mut killed = process(8, 100 + 250 * MS);
    killed.usage.exit = Exit { code: None, signal: Some(9) };
    (killed.usage.cpu_s, killed.usage.cpu_quality) = (None, Quality::Unknown);
    killed.usage.peak_quality = Quality::Sampled;
    for process in [&process(7, 100), &killed] {
        sink.write_process(process).unwrap();
    }
    let read = Read::new(&file.target().path);
    let (begins, ends) = (read.events(event::SLICE_BEGIN), read.events(event::SLICE_END));
    assert_eq!(begins.iter().map(|begin| begin.0).collect::<Vec<_>>(), [100, 100 + 250 * MS]);
    assert_eq!(ends.iter().map(|end| end.0).collect::<Vec<_>>(), [100 + 250 * MS, 100 + 500 * MS]);
    // The second begins when the first one ends, so they are on two tracks.
    let tracks: Vec<u64> = begins.iter().chain(&ends).filter_map(|(_, event)| event.track_uuid).collect();
    assert!(tracks[0] == tracks[2] && tracks[1] == tracks[3] && tracks[0] != tracks[1], "{tracks:?}");

    let interned: Vec<_> = read.0.iter().filter_map(|packet| packet.interned_data.as_ref()).collect();
    let [_, name] = interned[..] else { panic!("{interned:?}") };
    assert_eq!(name.event_names[0].name.as_deref(), Some("cc1"));
    assert_eq!(name.debug_annotation_string_values[0].name.as_deref(), Some("cc1 'a b'"));
    assert!(begins.iter().all(|(_, begin)| begin.name_iid == name.event_names[0].iid));
    let begin = arguments(begins[0].1);
    assert_eq!(begin["arguments"].string_value_iid, name.debug_annotation_string_values[0].iid);
    assert_eq!((begin["pid"].uint_value, begin["start (ns)"].uint_value), (Some(7), Some(100)));
    let [end, killed] = [0, 1].map(|place| arguments(ends[place].1));
    assert_eq!(end["exit code"].int_value, Some(3));
    assert_eq!(killed["signal"].int_value, Some(9));
    assert!(end.contains_key("CPU time (s)") && end.contains_key("peak RSS (bytes)"));
    assert!(!end.contains_key("signal") && !end.contains_key("CPU time is"), "{end:?}");
    assert!(!killed.contains_key("CPU time (s)"), "{killed:?}");
    assert_eq!(killed["CPU time is"].string_value.as_deref(), Some("unknown"));
    assert_eq!(killed["peak RSS is"].string_value.as_deref(), Some("at least that (sampled)"));
}

// Requirement: TIME-20
#[test]
fn end_has_the_reports_largest_ram_and_its_source_and_comes_once() {
    let directory = tempfile::tempdir().unwrap();
    let file = new_file(&directory);
    let mut report = fixtures::full();
    report.max_ram.main.footprint_bytes = Some(99);
    report.max_ram.combined.footprint_bytes = Some(20);
    for _ in 0..2 {
        let mut sink = sink(file.target());
        sink.sample(&sample(1)).unwrap();
        sink.sample(&TreeSample { at_ns: 150 * MS, ..sample(2) }).unwrap();
        sink.report(&report, Stage::Over).unwrap();
        assert!(sink.is_written());
    }
    let read = Read::new(&file.target().path);
    assert_eq!(read.rows(), [100 * MS, 150 * MS]);
    assert_eq!(
        read.values("Largest RAM of main so far"),
        [(0, 1.0), (100 * MS, 2.0), (150 * MS, 99.0)],
        "more than any row has"
    );
    let [(at_ns, end)] = read.events(event::INSTANT)[..] else { panic!("{:?}", read.events(event::INSTANT)) };
    assert_eq!((at_ns, end.track_uuid), (150 * MS, Some(tracks::RUN)));
    let end = arguments(end);
    assert_eq!(end["max RAM (bytes)"].uint_value, Some(20));
    assert_eq!(end["max RAM is known by"].string_value.as_deref(), Some("one process, at an unknown time"));
}

// Requirement: TASK-58
#[test]
fn task_has_a_track_below_that_of_the_task_around_it_and_a_slice_each_time_that_it_ran() {
    let directory = tempfile::tempdir().unwrap();
    let file = new_file(&directory);
    let mut sink = sink(file.target());
    let renamed = EndedTask { began_ns: None, ..task(5 * MS) };
    for task in [task(MS), task(3 * MS), task(3 * MS), renamed] {
        sink.write_task(&task).unwrap();
    }
    let read = Read::new(&file.target().path);
    let path = |name: &str| {
        let uuid_of = |track: &TrackDescriptor| track.uuid;
        let track = read.tracks().find(|track| track.name.as_deref() == Some(name)).unwrap();
        let by_uuid = |uuid| read.tracks().find(|track| uuid_of(track) == Some(uuid));
        let line = std::iter::successors(Some(track), |track| by_uuid(track.parent_uuid?));
        line.map(|track| track.name.clone().unwrap()).collect::<Vec<_>>()
    };
    // A name can't control a terminal.
    let names = ["parallel \\x1b[2J", "snakemake sort \"a,b\" > c", "Tasks", "app --all"];
    assert_eq!(path(names[0]), names);
    let begins: Vec<u64> = read.events(event::SLICE_BEGIN).iter().map(|begin| begin.0).collect();
    let ends = read.events(event::SLICE_END);
    assert_eq!((begins, ends.len(), ends[1].0), (vec![MS, 3 * MS], 2, 4 * MS));
    let arguments = arguments(ends[1].1);
    assert_eq!(arguments["signal"].int_value, Some(9));
    assert_eq!(arguments["why"].string_value.as_deref(), Some("SIGKILL ended cc1 (pid 77)"));
    assert_eq!(arguments["peak RAM (bytes)"].uint_value, Some(50_000_000));
    assert!(!arguments.contains_key("exit code") && !arguments.contains_key("peak RAM is"));
}

// Requirement: TIME-20, TIME-2, TIME-3
#[test]
fn trace_that_was_cut_anywhere_goes_on_without_anything_twice() {
    let directory = tempfile::tempdir().unwrap();
    let file = new_file(&directory);
    let path = file.target().path;
    let give = |sink: &mut TraceFile, numbers: std::ops::RangeInclusive<u64>| {
        for n in numbers {
            sink.sample(&sample(n)).unwrap();
            sink.write_process(&process(7, n)).unwrap();
            sink.write_task(&task(n * MS)).unwrap();
        }
    };
    give(&mut sink(file.target()), 1..=20);
    let whole = std::fs::read(&path).unwrap();
    for cut in (0..=whole.len()).rev().step_by(97) {
        std::fs::write(&path, &whole[..cut]).unwrap();
        give(&mut sink(file.target()), 1..=22);
        let read = Read::new(&path);
        assert_eq!(read.rows(), (1..=22).map(|n| n * 100 * MS).collect::<Vec<_>>(), "cut at {cut}");
        assert_eq!(read.values("RAM").len(), 22, "cut at {cut}");
        let mut starts: Vec<u64> = read.events(event::SLICE_BEGIN).iter().map(|begin| begin.0).collect();
        starts.sort_unstable();
        let expected: Vec<u64> = (1..=22).chain((1..=22).map(|n| n * MS)).collect();
        assert_eq!(starts, expected, "cut at {cut}");
        assert_eq!(read.events(event::SLICE_END).len(), 44, "cut at {cut}");
        // Each sequence begins with names and defaults of its own.
        let mut begun = Vec::new();
        for packet in &read.0 {
            let id = packet.trusted_packet_sequence_id.unwrap();
            match packet.sequence_flags {
                Some(NEEDS_STATE) => assert!(begun.contains(&id), "cut at {cut}"),
                _ => begun.push(id),
            }
        }
    }
}

// Requirement: TIME-20, TIME-4
#[test]
fn what_follows_lost_packets_needs_nothing_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let file = new_file(&directory);
    let mut sink = sink(file.target());
    sink.write_process(&process(7, 1)).unwrap();
    let before = std::fs::read(&file.target().path).unwrap();
    // These would be lost.
    sink.sequence.process(&process(8, 300 * MS));
    sink.sequence = sink.sequence.next();
    sink.write_process(&process(9, 600 * MS)).unwrap();
    let after = std::fs::read(&file.target().path).unwrap().split_off(before.len());
    let [first, packets @ ..] = &Trace::decode(&after[..]).unwrap().packet[..] else { panic!() };
    assert!(first.trace_packet_defaults.is_some() && first.trusted_packet_sequence_id == Some(2));
    let declared: Vec<_> =
        packets.iter().filter_map(|packet| packet.track_descriptor.as_ref()?.uuid).collect();
    let used = packets.iter().filter_map(|packet| packet.track_event.as_ref()?.track_uuid);
    assert!(used.into_iter().all(|uuid| declared.contains(&uuid)), "{declared:?}");
}

// Requirement: SLOW-12
#[test]
fn time_has_a_counter_for_each_group_of_states_where_threads_were_read() {
    let counters = |sample: &TreeSample| -> Vec<(String, f64)> {
        let all = tracks::values(sample).into_iter().map(|value| (value.track.name.unwrap(), value.value));
        all.filter(|(name, _)| name.starts_with("Time: ")).collect()
    };
    assert_eq!(counters(&sample(1)), []);
    let groups = ByTimeGroup { computing: 75 * MS, locks: 25 * MS, ..ByTimeGroup::default() };
    let read = TreeSample { time_ns: Some(groups), ..sample(1) };
    let expected = [
        ("computing", 75.0),
        ("waiting for a core", 0.0),
        ("storage", 0.0),
        ("network", 0.0),
        ("locks", 25.0),
        ("other waits", 0.0),
    ];
    assert_eq!(counters(&read), expected.map(|(name, percent)| (format!("Time: {name}"), percent)));
}
