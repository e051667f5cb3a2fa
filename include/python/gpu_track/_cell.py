"""What a cell of a notebook used: figures, and how they are shown. Nothing here needs IPython."""

from __future__ import annotations

import html
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# What a frontend shows of an object, by MIME type, and beside it the metadata of the output.
Bundle = tuple[dict[str, str], dict[str, Any]]
# The key of the figures in the metadata of an output.
METADATA_KEY = "gpu_track"
_UNKNOWN = "n/a"
_WIDTH, _HEIGHT = 240, 24


@dataclass
class Memory:
    """Resident memory of this process, bytes: now, and the most since it was started. None: not known."""

    rss_bytes: int | None
    most_bytes: int | None

    @classmethod
    def now(cls) -> Memory:
        """Reads it from /proc/self/status."""
        fields: dict[str, int] = {}
        try:
            with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
                for line in file:
                    name, _, value = line.partition(":")
                    if name in {"VmRSS", "VmHWM"}:
                        fields[name] = int(value.split()[0]) * 1024
        except OSError:
            pass
        return cls(fields.get("VmRSS"), fields.get("VmHWM"))


class Span:
    """A time in this process: how long it lasts, and the memory at its begin and end."""

    def __init__(self) -> None:
        """Begins it."""
        self.before = Memory.now()
        self.after = Memory(None, None)
        self.wall_s = 0.0
        self._begin_s = time.perf_counter()

    def end(self) -> None:
        """Ends it."""
        self.wall_s = time.perf_counter() - self._begin_s
        self.after = Memory.now()

    def peak_bytes(self, sampled_bytes: int | None) -> int | None:
        """The largest memory in it: the kernel's own mark where that has grown, else the largest that was read.

        None if nothing was sampled and the mark has not grown: the peak lies between.
        """
        marks = (self.before.most_bytes, self.after.most_bytes)
        grown = [marks[1]] if marks[0] is not None and marks[1] is not None and marks[1] > marks[0] else []
        if sampled_bytes is None and not grown:
            return None
        read = [sampled_bytes, self.before.rss_bytes, self.after.rss_bytes, *grown]
        return max(value for value in read if value is not None)


class CellFigures:
    """What was used in a span. `report`: that of its tracker. None: there is none, for the `reason`."""

    def __init__(self, span: Span, report: Mapping[str, Any] | None, reason: str | None = None) -> None:
        self._report = report
        self.figures: dict[str, Any] = {
            "wall_s": span.wall_s,
            "cpu_s": None,
            "ram": {
                "before_bytes": span.before.rss_bytes,
                "after_bytes": span.after.rss_bytes,
                "peak_bytes": span.peak_bytes(None),
                "all_peak_bytes": None,
                "total_bytes": None,
            },
            "other_processes": None,
            "gpu": None,
            "warnings": [],
            "reason": reason,
        }
        if report is not None:
            self._add(report, span)

    def _add(self, report: Mapping[str, Any], span: Span) -> None:
        ram = self.figures["ram"]
        ram["peak_bytes"] = span.peak_bytes(report["max_ram_bytes"]["main"]["total_rss"])
        all_peak = report["max_ram_bytes"]["combined"]["total_rss"]
        # All processes have no less than this one.
        ram["all_peak_bytes"] = None if all_peak is None else max(all_peak, ram["peak_bytes"] or 0)
        ram["total_bytes"] = report["usable"]["memory"]["bytes"]
        self.figures["cpu_s"] = report["cpu_time"]["total_s"]
        self.figures["other_processes"] = report["processes"]["total"] - 1
        self.figures["warnings"] = [warning["text"] for warning in report["warnings"]]
        count = report["gpu"]["system_gpu_count"]
        if count != 0:
            percentages = report["gpu"]["gpu_percentages"]
            self.figures["gpu"] = {
                # Those that were tracked, unless a driver that failed has not named them.
                "count": len(report["gpus"]) or count,
                "memory_peak_bytes": report["max_gpu_ram_bytes"]["combined"],
                "memory_total_bytes": report["max_gpu_ram_bytes"]["system_capacity"],
                "mean_sum_percent": percentages["mean_sum_percent"],
                "max_sum_percent": percentages["max_sum_percent"],
            }

    def line(self) -> str:
        """All in one line."""
        ram = self.figures["ram"]
        parts = [
            f"{seconds_text(self.figures['wall_s'])}, CPU {seconds_text(self.figures['cpu_s'])}",
            f"RAM {bytes_text(ram['before_bytes'])} before, {bytes_text(ram['after_bytes'])} after, "
            f"peak {bytes_text(ram['peak_bytes'])} of {bytes_text(ram['total_bytes'])}",
        ]
        others = self.figures["other_processes"]
        if others:
            parts.append(f"with {others} other process{'es' if others > 1 else ''} {bytes_text(ram['all_peak_bytes'])}")
        gpu = self.figures["gpu"]
        if gpu is not None:
            parts.append(
                gpu_text(
                    gpu["count"],
                    f"peak {bytes_text(gpu['memory_peak_bytes'])} of {bytes_text(gpu['memory_total_bytes'])}",
                    f"{percent_text(gpu['mean_sum_percent'])} mean, {percent_text(gpu['max_sum_percent'])} most",
                )
            )
        if self.figures["reason"] is not None:
            parts.append(self.figures["reason"])
        return one_line(" | ".join(parts))

    def rows(self) -> list[tuple[str, str]]:
        """What the folded table has."""
        ram = self.figures["ram"]
        rows = [
            ("Time", seconds_text(self.figures["wall_s"])),
            ("CPU time of all processes", seconds_text(self.figures["cpu_s"])),
            ("RAM of the kernel before", bytes_text(ram["before_bytes"])),
            ("RAM of the kernel after", bytes_text(ram["after_bytes"])),
            ("RAM of the kernel, peak", bytes_text(ram["peak_bytes"])),
            ("RAM of all processes, peak", bytes_text(ram["all_peak_bytes"])),
            ("RAM that may be used", bytes_text(ram["total_bytes"])),
        ]
        if self._report is None:
            return rows
        io = self._report["io"]
        rows += [
            ("Other processes", str(self.figures["other_processes"])),
            ("Read from storage", bytes_text(io["read_bytes"])),
            ("Written to storage", bytes_text(io["write_bytes"])),
        ]
        for gpu in self._report["gpus"]:
            memory, utilization, power = gpu["memory"], gpu["utilization"], gpu["power"]
            peak, total = bytes_text(memory["max_combined_bytes"]), bytes_text(memory["total_bytes"])
            mean, most = percent_text(utilization["mean_percent"]), percent_text(utilization["max_percent"])
            energy = _UNKNOWN if power["energy_j"] is None else f"{power['energy_j']:.3g} J"
            name = f"GPU {_UNKNOWN if gpu['index'] is None else gpu['index']} {gpu['name'] or ''}".strip()
            rows.append((name, f"memory peak {peak} of {total}, utilization {mean} mean, {most} most, energy {energy}"))
        return rows + [("Warning", text) for text in self.figures["warnings"]]

    def to_html(self) -> str:
        """The line, a chart of RAM, and a folded table. No text in it becomes markup."""
        table = "".join(
            f'<tr><th style="text-align:left">{_text(name)}</th><td style="text-align:left">{_text(value)}</td></tr>'
            for name, value in self.rows()
        )
        chart = "" if self._report is None else sparkline(self._report["series"])
        return f"{html_line(self.line())}{chart}<details><summary>gpu_track</summary><table>{table}</table></details>"

    def __repr__(self) -> str:
        return self.line()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Bundle:  # noqa: ARG002
        return {"text/plain": self.line(), "text/html": self.to_html()}, {METADATA_KEY: self.figures}


def _text(text: str) -> str:
    return html.escape(one_line(text))


def html_line(line: str) -> str:
    """A line as an element."""
    return f'<div style="font-family:monospace">{_text(line)}</div>'


def one_line(text: str) -> str:
    """A text without line breaks and other control characters, which a terminal or a frontend would obey."""
    return "".join(character if character.isprintable() else " " for character in text)


def gpu_text(count: object, memory: str, utilization: str) -> str:
    """The part of the line that is about GPUs, whose utilization is the sum of theirs."""
    name = "GPU" if count == 1 else f"{_UNKNOWN if count is None else count} GPUs"
    return f"{name} memory {memory}, utilization {utilization}"


def sparkline(series: Mapping[str, Any]) -> str:
    """RAM of all processes over the time that was tracked, as SVG. A time in which it is not known is left out."""
    points: Sequence[tuple[float, float, float | None]] = list(
        zip(series["start_s"], series["end_s"], series["ram_bytes"]["combined"]["max"])
    )
    known = [ram for _, _, ram in points if ram is not None]
    end_s = points[-1][1] if points else 0.0
    if not known or end_s <= 0.0:
        return ""
    top = max(*known, 1.0)
    path = ""
    joins = False
    for start_s, stop_s, ram in points:
        if ram is not None:
            y = _HEIGHT - ram / top * (_HEIGHT - 2) - 1
            path += (
                f"{f'V{y:.1f}' if joins else f'M{start_s / end_s * _WIDTH:.1f} {y:.1f}'}H{stop_s / end_s * _WIDTH:.1f}"
            )
        joins = ram is not None
    title = f"RAM of all processes over {seconds_text(end_s)}, from 0 to {bytes_text(top)}"
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">'
        f'<title>{_text(title)}</title><path d="{path}" fill="none" stroke="currentColor"/></svg>'
    )


def bytes_text(value: float | None) -> str:
    if value is None:
        return _UNKNOWN
    for unit in ("B", "kB", "MB", "GB"):
        # 999.5 would be shown as 1e+03.
        if abs(value) < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB" if value < 999.5 else f"{value:.0f} TB"


def percent_text(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.0f}%"


def seconds_text(value: float | None) -> str:
    if value is None:
        return _UNKNOWN
    if value < 59.95:
        return f"{value:.3g} s"
    minutes, seconds = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"
