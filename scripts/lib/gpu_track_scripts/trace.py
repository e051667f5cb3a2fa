"""Reads a tracking file in the form .pftrace with Perfetto's own classes, which know nothing of gpu-track.

    python3 -m gpu_track_scripts.trace FILE [REPORT]

prints as JSON what is in FILE, and under "problems" what is wrong with it: events of tracks that nothing declares,
numbers that stand for no text, slices of a track that overlap, processes that are there twice. With the JSON report of
the same run, it compares the figures of both. The status is 1 if there is a problem.

Needs the package `perfetto` of PyPI: `python3 -m gpu_track_scripts.tools perfetto==0.59.1` installs it.
"""

from __future__ import annotations

import collections
import json
import pathlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2

if TYPE_CHECKING:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import DebugAnnotation, TracePacket, TrackDescriptor

CLEARED = perfetto_trace_pb2.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
NEEDED = perfetto_trace_pb2.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
Event = perfetto_trace_pb2.TrackEvent
# The argument that each row has once.
ROW_END = "end of the interval (ns)"
# A counter, and the figure of the report that is its largest value.
OF_TREE = {
    "Largest RAM so far": "max_ram_bytes.combined.total_rss",
    "Largest RAM of main so far": "max_ram_bytes.main.total_rss",
    "Largest RAM of descendants so far": "max_ram_bytes.descendants.total_rss",
    "RAM in use on the machine": "max_ram_bytes.system",
    "CPU": "cpu_utilization.combined.max_sum_percent",
    "CPU of main": "cpu_utilization.main.max_sum_percent",
    "CPU of descendants": "cpu_utilization.descendants.max_sum_percent",
    "CPU of the machine": "cpu_utilization.system.max_sum_percent",
    "Live processes": "processes.max_concurrent",
}
# Figures of the report that are no less than a mean, which no single value need reach.
MEANS = {
    "cpu_utilization.combined.max_sum_percent": "cpu_utilization.combined.mean_sum_percent",
    "cpu_utilization.main.max_sum_percent": "cpu_utilization.main.mean_sum_percent",
    "cpu_utilization.descendants.max_sum_percent": "cpu_utilization.descendants.mean_sum_percent",
    "cpu_utilization.system.max_sum_percent": "cpu_utilization.system.mean_sum_percent",
    "utilization.max_percent": "utilization.mean_percent",
    "power.max_w": "power.mean_w",
}
OF_GPU = {
    "Utilization": "utilization.max_percent",
    "Memory of the run": "memory.max_combined_bytes",
    "Memory in use by all": "memory.max_used_bytes",
    "Power": "power.max_w",
    "Temperature": "max_temperature_c",
    "SM clock": "clocks.max_sm_mhz",
}


@dataclass
class Sequence:
    """What the packets of a sequence have given numbers to."""

    names: dict[int, str] = field(default_factory=dict)
    arguments: dict[int, str] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    clock: int = 0

    def take(self, packet: TracePacket) -> None:
        """Takes the texts of a packet."""
        self.clock = packet.trace_packet_defaults.timestamp_clock_id or self.clock
        interned = packet.interned_data
        self.names.update((one.iid, one.name) for one in interned.event_names)
        self.arguments.update((one.iid, one.name) for one in interned.debug_annotation_names)
        self.texts.update((one.iid, one.str.decode()) for one in interned.debug_annotation_string_values)


@dataclass
class Occurrence:
    """An event with its texts."""

    at_ns: int
    kind: int
    track: int
    name: str
    arguments: dict[str, Any]
    value: float


class Trace:
    """A trace that was read."""

    def __init__(self, data: bytes) -> None:
        self.problems: collections.Counter[str] = collections.Counter()
        self.tracks: dict[int, TrackDescriptor] = {}
        self.clocks: list[set[int]] = []
        packets = perfetto_trace_pb2.Trace.FromString(data).packet
        self.events = list(self._events(packets))

    def _events(self, packets: Iterable[TracePacket]) -> Iterator[Occurrence]:
        sequences: dict[int, Sequence] = {}
        for packet in packets:
            number = packet.trusted_packet_sequence_id
            if packet.sequence_flags & CLEARED:
                self._expect(number not in sequences, "a sequence of packets begins twice")
                sequences[number] = Sequence()
            elif packet.sequence_flags & NEEDED:
                self._expect(number in sequences, "a packet needs texts of a sequence that has not begun")
            sequence = sequences.setdefault(number, Sequence())
            sequence.take(packet)
            if packet.HasField("clock_snapshot"):
                self.clocks.append({clock.clock_id for clock in packet.clock_snapshot.clocks})
                primary = packet.clock_snapshot.primary_trace_clock
                self._expect(primary == sequence.clock, "the time axis has another clock than the events")
            if packet.HasField("track_descriptor"):
                self._declare(packet.track_descriptor)
            if packet.HasField("track_event"):
                yield self._event(packet, sequence)

    def _expect(self, holds: bool, problem: str) -> None:
        if not holds:
            self.problems[problem] += 1

    def _declare(self, track: TrackDescriptor) -> None:
        is_plain = not (track.HasField("process") or track.HasField("thread"))
        self._expect(is_plain, "a track of a process or a thread, whose parent Perfetto ignores")
        has_parent = not track.HasField("parent_uuid") or track.parent_uuid in self.tracks
        self._expect(has_parent, "a track is below one that nothing declares")
        before = self.tracks.get(track.uuid, track)
        is_same = (before.name, before.parent_uuid) == (track.name, track.parent_uuid)
        self._expect(is_same, "two tracks have one number")
        self.tracks[track.uuid] = track

    def _event(self, packet: TracePacket, sequence: Sequence) -> Occurrence:
        event = packet.track_event
        self._expect(event.track_uuid in self.tracks, "an event is on a track that nothing declares")
        clock = packet.timestamp_clock_id or sequence.clock
        self._expect(clock in set().union(*self.clocks), "an event has the time of a clock without a snapshot")
        name = event.name
        if event.HasField("name_iid"):
            self._expect(event.name_iid in sequence.names, "a number stands for no name of an event")
            name = sequence.names.get(event.name_iid, "")
        value = event.counter_value if event.HasField("counter_value") else event.double_counter_value
        arguments = dict(self._argument(argument, sequence) for argument in event.debug_annotations)
        return Occurrence(packet.timestamp, event.type, event.track_uuid, name, arguments, value)

    def _argument(self, argument: DebugAnnotation, sequence: Sequence) -> tuple[str, Any]:
        self._expect(argument.name_iid in sequence.arguments, "a number stands for no name of an argument")
        name = sequence.arguments.get(argument.name_iid, "")
        # The protobuf has the text's number beside the other kinds of values.
        if argument.HasField("string_value_iid"):
            self._expect(argument.string_value_iid in sequence.texts, "a number stands for no text of an argument")
            return name, sequence.texts.get(argument.string_value_iid, "")
        kind = argument.WhichOneof("value")
        self._expect(kind is not None, "an argument has no value")
        return name, getattr(argument, kind) if kind else None

    def processes(self) -> list[dict[str, Any]]:
        """The slices: each process with its arguments, in the order of their starts."""
        found: list[dict[str, Any]] = []
        begun: dict[int, Occurrence] = {}
        # Perfetto sorts by time, and leaves the order of events at one time.
        for event in sorted(self.events, key=lambda event: event.at_ns):
            if event.kind == Event.TYPE_SLICE_BEGIN:
                self._expect(event.track not in begun, "slices of one track overlap")
                begun[event.track] = event
            elif event.kind == Event.TYPE_SLICE_END:
                begin = begun.pop(event.track, None)
                self._expect(begin is not None, "a slice ends that has not begun")
                if begin:
                    self._expect(
                        begin.name == getattr(self.tracks.get(event.track), "name", None),
                        "a process is on another's track",
                    )
                    spans = {"start_ns": begin.at_ns, "end_ns": event.at_ns, "track": event.track}
                    found.append({"name": begin.name, **spans, **begin.arguments, **event.arguments})
        self.problems.update(["a slice has no end"] * len(begun))
        keys = collections.Counter((process.get("pid"), process["start_ns"]) for process in found)
        self.problems.update(["a process is there twice"] * (len(found) - len(keys)))
        return sorted(found, key=lambda process: process["start_ns"])

    def counters(self) -> dict[str, dict[str, list[tuple[int, float]]]]:
        """The values of each counter with their times, by the names of the track above it and its own."""
        values: dict[str, dict[str, list[tuple[int, float]]]] = collections.defaultdict(dict)
        for event in self.events:
            track = self.tracks.get(event.track)
            if event.kind == Event.TYPE_COUNTER and track is not None:
                has_unit = track.counter.unit or track.counter.unit_name
                self._expect(has_unit, "a counter has no unit")
                parent = self.tracks[track.parent_uuid].name if track.parent_uuid in self.tracks else ""
                values[parent].setdefault(track.name, []).append((event.at_ns, event.value))
        return values

    def rows(self) -> list[int]:
        """The keys of the rows, in their order."""
        return [event.arguments[ROW_END] for event in self.events if ROW_END in event.arguments]

    def ends(self) -> list[dict[str, Any]]:
        """The events of the run."""
        return [event.arguments for event in self.events if event.kind == Event.TYPE_INSTANT]


def figure(report: dict[str, Any], path: str) -> float | None:
    """The figure of a report, None where it is not known."""
    *above, last = path.split(".")
    for key in above:
        report = report[key]
    found: float | None = report[last]
    return found


def differences(trace: Trace, report: dict[str, Any]) -> Iterator[str]:
    """What a trace has otherwise than the report of its run."""
    total, drawn = report["processes"]["total"], len(trace.processes())
    if drawn != total:
        yield f"{drawn} processes, and {total} in the report"
    counters = trace.counters()
    command = next((track.name for track in trace.tracks.values() if not track.HasField("parent_uuid")), "")
    of_gpus = [(name, gpu) for name in counters for gpu in report["gpus"] if f"({gpu['id']})" in name]
    if len(of_gpus) != len([name for name in counters if name != command]):
        yield "counters are of no GPU of the report"
    compared = [(command, OF_TREE, report), *((name, OF_GPU, gpu) for name, gpu in of_gpus)]
    for name, figures, part in compared:
        for counter, path in figures.items():
            largest = max((value for _, value in counters[name].get(counter, [])), default=None)
            told = figure(part, path)
            mean = figure(part, MEANS[path]) if path in MEANS else None
            is_mean = mean is not None and mean == told and (largest is None or largest <= mean)
            if largest != told and not is_mean:
                yield f"{counter} is {largest} at most, and {path} is {told} in the report"


def main(file: str, report: str | None = None) -> int:
    """Prints what is in a file."""
    data = pathlib.Path(file).read_bytes()
    trace = Trace(data)
    processes, counters = trace.processes(), trace.counters()
    problems = [f"{problem} ({count})" for problem, count in trace.problems.items()]
    if report:
        problems += differences(trace, json.loads(pathlib.Path(report).read_text()))
    found = {
        "bytes": len(data),
        "tracks": len({process["track"] for process in processes}),
        "processes": processes,
        "rows": trace.rows(),
        "counters": counters,
        "ends": trace.ends(),
        "problems": problems,
    }
    print(json.dumps(found))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
