//! A sequence of packets, which one collector writes. A sequence declares names, tracks and defaults once. Later packets of it refer
//! to them by numbers.

use rustc_hash::{FxHashMap, FxHashSet};

use super::annotations::{self, Name, fraction, mark, named, number, quality, text};
use super::lanes::Lanes;
use super::messages::{
    ClockSnapshot, ClockTime, DebugAnnotation, InternedData, InternedName, NEEDS_STATE, STATE_CLEARED,
    TracePacket, TracePacketDefaults, TrackDescriptor, TrackEvent, clock, event,
};
use super::tracks::{self, Value};
use crate::model::ended_process::EndedProcess;
use crate::model::ended_task::EndedTask;
use crate::model::report::TaskUsage;
use crate::report::quote;
use crate::sys::clock as now;

/// Maximum number of bytes of the texts whose numbers are remembered. Beyond that, all are forgotten, and are declared again with new
/// numbers.
const MOST_TEXT: usize = 1024 * 1024;

/// What a sequence has declared so far.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    id: u32,
    is_begun: bool,
    /// Names of commands.
    names: Texts,
    /// Arguments of processes. Many processes have the same, because a fork child has its parent's.
    arguments: Texts,
    /// Tracks of counters and GPUs, and the first tracks, by their uuids.
    tracks: FxHashSet<u64>,
    lanes: Lanes,
}

/// Texts that packets refer to by numbers.
#[derive(Debug, Default)]
struct Texts {
    numbers: FxHashMap<String, u64>,
    /// The length of all texts together.
    bytes: usize,
    /// The last number that was given.
    last: u64,
}

impl Texts {
    /// Returns the number of a text, and the declaration that the packet must have: it is empty if the text was declared before.
    fn number(&mut self, text: String) -> (u64, Vec<InternedName>) {
        if let Some(iid) = self.numbers.get(&text) {
            return (*iid, Vec::new());
        }
        // `last` is not reset, so that no number stands for two texts.
        if self.bytes + text.len() > MOST_TEXT {
            (self.numbers, self.bytes) = (FxHashMap::default(), 0);
        }
        self.last += 1;
        self.bytes += text.len();
        self.numbers.insert(text.clone(), self.last);
        (self.last, vec![InternedName { iid: Some(self.last), name: Some(text) }])
    }
}

impl Sequence {
    /// Makes a sequence that has not begun. No other sequence in the file may have the number `id`.
    pub(super) fn new(id: u32) -> Self {
        Self { id, ..Self::default() }
    }

    /// Makes the sequence that replaces this one when packets of it were lost. The new one declares all again.
    pub(super) fn next(&self) -> Self {
        Self::new(self.id + 1)
    }

    /// The packets that begin the sequence: clocks, names of arguments, and the first tracks. There are none if it has begun.
    pub(super) fn begin(&mut self, command: &[String]) -> Vec<TracePacket> {
        if self.is_begun {
            return Vec::new();
        }
        self.is_begun = true;
        // One moment by three clocks, from which a reader computes dates.
        let monotonic_ns = now::monotonic_ns();
        let boot_ns = u64::try_from(i128::from(monotonic_ns) + now::boot_offset_ns()).unwrap_or(monotonic_ns);
        let clocks = [
            (clock::MONOTONIC, monotonic_ns),
            (clock::BOOTTIME, boot_ns),
            (clock::REALTIME, now::realtime_ns()),
        ];
        let clocks = clocks.map(|(id, ns)| ClockTime { clock_id: Some(id), timestamp: Some(ns) });
        let first = TracePacket {
            clock_snapshot: Some(ClockSnapshot {
                clocks: clocks.to_vec(),
                primary_trace_clock: Some(clock::MONOTONIC),
            }),
            interned_data: Some(InternedData {
                debug_annotation_names: annotations::names(),
                ..InternedData::default()
            }),
            trace_packet_defaults: Some(TracePacketDefaults { timestamp_clock_id: Some(clock::MONOTONIC) }),
            ..self.packet(STATE_CLEARED)
        };
        let mut packets = vec![first];
        for track in tracks::first_tracks(command) {
            packets.extend(self.declare(track));
        }
        packets
    }

    /// The packet that declares a track. `None`: it was declared before.
    pub(super) fn declare(&mut self, track: TrackDescriptor) -> Option<TracePacket> {
        let is_new = self.tracks.insert(track.uuid.unwrap_or(0));
        is_new.then(|| self.track(track))
    }

    /// The packets of counters' values at `at_ns`, CLOCK_MONOTONIC nanoseconds. The first value of a track is preceded by the
    /// packet that declares the track.
    pub(super) fn values(&mut self, at_ns: u64, values: Vec<Value>) -> Vec<TracePacket> {
        let mut packets = Vec::new();
        for Value { track, value } in values {
            let uuid = track.uuid.unwrap_or(0);
            packets.extend(self.declare(track));
            // Bytes and counts are written as integers, up to about 2^53, where an `f64` has every integer.
            let is_whole = value.fract() == 0.0 && value.abs() < 9e15;
            let event = TrackEvent {
                counter_value: is_whole.then_some(value as i64),
                double_counter_value: (!is_whole).then_some(value),
                ..TrackEvent::default()
            };
            packets.push(self.event(at_ns, event::COUNTER, uuid, event));
        }
        packets
    }

    /// The packets of a process: its track if that is new, the start of its slice, and the end.
    pub(super) fn process(&mut self, process: &EndedProcess) -> Vec<TracePacket> {
        let (usage, start_ns) = (&process.usage, process.start_ns);
        let end_ns = start_ns.saturating_add((usage.wall_s * 1e9).round() as u64);
        let lane = self.lanes.take(&usage.command, start_ns, end_ns);
        let track_uuid = tracks::lane_uuid(self.id, lane.number);
        let new_track = lane.is_new.then(|| self.track(tracks::lane(track_uuid, &usage.command)));
        let arguments = usage.args.as_ref().map(|args| self.arguments.number(quote::words(args)));
        let (arguments_iid, new_arguments) = arguments.unzip();
        let event = event_with([
            number(Name::Pid, Some(usage.pid.into())),
            number(Name::ParentPid, usage.ppid.map(u64::from)),
            number(Name::Start, Some(start_ns)),
            arguments_iid
                .map(|iid| DebugAnnotation { string_value_iid: Some(iid), ..named(Name::Arguments) }),
        ]);
        let new_arguments = new_arguments.unwrap_or_default();
        let begin = self.slice_begin(start_ns, track_uuid, &usage.command, event, new_arguments);
        let end = self.event(end_ns, event::SLICE_END, track_uuid, end_event(process));
        new_track.into_iter().chain([begin, end]).collect()
    }

    /// The packet that begins a slice on a track, at `at_ns`, CLOCK_MONOTONIC nanoseconds. `name` is given by number, as are the texts
    /// of the arguments in `event`, and the packet declares those that are new.
    fn slice_begin(
        &mut self,
        at_ns: u64,
        track: u64,
        name: &str,
        event: TrackEvent,
        new_texts: Vec<InternedName>,
    ) -> TracePacket {
        let (name_iid, event_names) = self.names.number(tracks::name(name));
        let event = TrackEvent { name_iid: Some(name_iid), ..event };
        let interned = InternedData {
            event_names,
            debug_annotation_string_values: new_texts,
            ..InternedData::default()
        };
        TracePacket {
            interned_data: Some(interned).filter(|interned| *interned != InternedData::default()),
            ..self.event(at_ns, event::SLICE_BEGIN, track, event)
        }
    }

    /// The packets of a task that ran from `began_ns` on (CLOCK_MONOTONIC nanoseconds): the tracks that are new, the start of its slice,
    /// and the end with the figures of all its tries.
    pub(super) fn task(&mut self, task: &EndedTask, began_ns: u64) -> Vec<TracePacket> {
        let tracks = tracks::task_tracks(task);
        let mut packets: Vec<TracePacket> =
            tracks.into_iter().filter_map(|track| self.declare(track)).collect();
        let uuid = tracks::task_uuid(task.usage.id);
        let event = event_with([number(Name::Task, Some(task.usage.id.into()))]);
        packets.push(self.slice_begin(began_ns, uuid, &task.usage.title(), event, Vec::new()));
        let end_ns = task.end_ns.max(began_ns);
        packets.push(self.event(end_ns, event::SLICE_END, uuid, end_of_task(&task.usage)));
        packets
    }

    /// Makes the packet of an instant event on the run's track, at `at_ns`, CLOCK_MONOTONIC nanoseconds.
    pub(super) fn instant(
        &self,
        at_ns: u64,
        name: &str,
        arguments: impl IntoIterator<Item = Option<DebugAnnotation>>,
    ) -> TracePacket {
        let event = TrackEvent { name: Some(name.to_owned()), ..event_with(arguments) };
        self.event(at_ns, event::INSTANT, tracks::RUN, event)
    }

    /// Makes the packet of an event of this kind on a track, at `at_ns`, CLOCK_MONOTONIC nanoseconds.
    fn event(&self, at_ns: u64, kind: i32, track: u64, event: TrackEvent) -> TracePacket {
        let event = TrackEvent { kind: Some(kind), track_uuid: Some(track), ..event };
        TracePacket { timestamp: Some(at_ns), track_event: Some(event), ..self.packet(NEEDS_STATE) }
    }

    /// Makes the packet that declares a track.
    fn track(&self, track: TrackDescriptor) -> TracePacket {
        TracePacket { track_descriptor: Some(track), ..self.packet(NEEDS_STATE) }
    }

    /// Makes an empty packet of this sequence. `flags`: [`STATE_CLEARED`] for the first one, else [`NEEDS_STATE`].
    fn packet(&self, flags: u32) -> TracePacket {
        TracePacket {
            trusted_packet_sequence_id: Some(self.id),
            sequence_flags: Some(flags),
            ..TracePacket::default()
        }
    }
}

/// Makes the event that ends a process's slice, with how the process ended and what it used.
fn end_event(process: &EndedProcess) -> TrackEvent {
    let usage = &process.usage;
    let used = [
        mark(Name::StillRunning, process.is_still_running),
        fraction(Name::CpuTime, usage.cpu_s),
        quality(Name::CpuQuality, usage.cpu_quality),
        number(Name::PeakRss, usage.peak_rss_bytes),
        quality(Name::PeakQuality, usage.peak_quality),
    ];
    event_with(annotations::exit(usage.exit).into_iter().chain(used))
}

/// Makes the event that ends a task's slice, with how the task ended and what it used.
fn end_of_task(usage: &TaskUsage) -> TrackEvent {
    let used = [
        number(Name::Processes, Some(usage.processes)),
        number(Name::Tries, usage.starts),
        number(Name::FailedTries, usage.failed_starts),
        mark(Name::StillRunning, usage.still_running > 0),
        fraction(Name::CpuTime, usage.cpu_s),
        number(Name::PeakRam, usage.peak_ram_bytes),
        quality(Name::PeakRamQuality, usage.peak_quality),
        number(Name::GpuRam, usage.gpu_ram_bytes),
        number(Name::ReadBytes, usage.io.read_bytes),
        number(Name::WriteBytes, usage.io.write_bytes),
        usage.why.as_deref().map(|why| text(Name::Why, &quote::escape(why))),
    ];
    event_with(annotations::exit(usage.exit).into_iter().chain(used))
}

/// Makes an event with those arguments that are not `None`.
fn event_with(arguments: impl IntoIterator<Item = Option<DebugAnnotation>>) -> TrackEvent {
    TrackEvent { debug_annotations: arguments.into_iter().flatten().collect(), ..TrackEvent::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_one_number_and_memory_is_bounded() {
        let mut texts = Texts::default();
        assert_eq!(
            texts.number("a".into()),
            (1, vec![InternedName { iid: Some(1), name: Some("a".into()) }])
        );
        assert_eq!(texts.number("a".into()), (1, Vec::new()));
        let long = |n: u64| format!("{n:0>4096}");
        assert!((2..1000).all(|n| texts.number(long(n)).0 == n));
        assert!(texts.bytes <= MOST_TEXT && texts.numbers.len() <= MOST_TEXT / 4096);
        // It was forgotten: a reader takes the number that it got last.
        let (iid, given) = texts.number("a".into());
        assert_eq!((iid, given.len()), (1000, 1));
    }
}
