"""Metrics that a cell of a notebook has told, for its output."""

from __future__ import annotations

import contextlib
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from gpu_track._shown import bytes_text, number_text, short_name
from gpu_track.tracker import Tracker

# Begin and end, seconds, and a value that holds from the one to the other. None: it is not known.
Point = tuple[float, float, Optional[float]]

# Most metrics that an output has. Nobody reads those of a program that makes a name of each step.
_MOST = 50
# Most of them in the line, and with a chart.
MOST_SHOWN = 3
# About as many points a chart has, and no more a second than samples can be.
_POINTS = 120
_SHORTEST_S = 0.01


@dataclass
class CellMetric:
    """A metric: its name, with the process if others tell it, too; its figures, and its last value over time.

    Keys of `figures` are those of `gpu-track metrics`.
    """

    name: str
    figures: dict[str, Any]
    points: Sequence[Point] = ()

    def line(self) -> str:
        """Its last value."""
        return self.text(self.figures["last"])

    def row(self) -> str:
        """All that is known of its values."""
        count, bad = self.figures["count"], self.figures["not_finite"]
        texts = ", ".join(f"{key} {self.text(self.figures[key])}" for key in ("last", "min", "max", "mean"))
        return f"{texts} of {count} value{'' if count == 1 else 's'}{f', {bad} NaN or infinite' if bad else ''}"

    def text(self, value: float | None) -> str:
        """A value of it, as `gpu-track metrics` shows it."""
        return bytes_text(value) if self.figures["name"].endswith("_bytes") else number_text(value)


@dataclass
class CellMetrics:
    """The metrics of a cell, and how many more it has. If there is a `reason`, they are not known."""

    found: list[CellMetric] = field(default_factory=list)
    left_out: int = 0
    reason: str | None = None

    @classmethod
    def of(cls, tracker: Tracker, wall_s: float) -> CellMetrics:
        """What was told to a tracker that has stopped."""
        try:
            rows = tracker.metrics()
        except (OSError, ValueError, subprocess.SubprocessError) as problem:
            return cls(reason=f"they can't be read: {problem}")
        if not rows:
            return cls()
        processes = Counter(row["name"] for row in rows)
        keys = [_key(row, has_several=processes[row["name"]] > 1) for row in rows]
        points: list[dict[str, Any]] = []
        # They cost the charts alone: a tracking file can be gone, for example.
        with contextlib.suppress(OSError, ValueError, LookupError, RuntimeError, subprocess.SubprocessError):
            points = tracker.timeline(max(wall_s / _POINTS, _SHORTEST_S))
        found: list[CellMetric] = []
        for row, key in zip(rows[:_MOST], keys):
            several = f" (process {row['process_id']})" if processes[row["name"]] > 1 else ""
            # A name can be made to look like that of another process's metric.
            has_chart = len(found) < MOST_SHOWN and keys.count(key) == 1
            values = [(point["start_s"], point["end_s"], point.get(key)) for point in points] if has_chart else []
            found.append(CellMetric(short_name(row["name"]) + several, row, values))
        return cls(found, len(rows) - len(found))


def _key(row: dict[str, Any], *, has_several: bool) -> str:
    """The key of a metric in the points of `Tracker.timeline()`."""
    process = f"pid{row['process_id']}_" if has_several else ""
    return f"metric_{process}{row['name']}"
