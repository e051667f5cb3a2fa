"""What a cell of a notebook used: figures, and how they are shown. Nothing here needs IPython."""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpu_track._cell_metrics import MOST_SHOWN, CellMetric, CellMetrics, Point
from gpu_track._memory import UNREADABLE, Memory
from gpu_track._shown import UNKNOWN, bytes_text, change_text, one_line, percent_text, seconds_text

# What a frontend shows of an object, by MIME type, and beside it the metadata of the output.
Bundle = tuple[dict[str, str], dict[str, Any]]
# The key of the figures in the metadata of an output.
METADATA_KEY = "gpu_track"
_WIDTH, _HEIGHT = 240, 24
# Why the peak is None where memory can be read.
_NO_PEAK = "nothing was sampled, and the kernel's mark (VmHWM) has not grown: the peak lies between"


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

    def __init__(
        self,
        span: Span,
        report: Mapping[str, Any] | None,
        reason: str | None = None,
        metrics: CellMetrics | None = None,
    ) -> None:
        """`metrics`: None: none could be told, for the same reason."""
        self._report = report
        self._metrics = metrics if metrics is not None else CellMetrics(reason=reason)
        peak_bytes = span.peak_bytes(None if report is None else report["max_ram_bytes"]["main"]["total_rss"])
        before_bytes, after_bytes = span.before.rss_bytes, span.after.rss_bytes
        self.figures: dict[str, Any] = {
            "wall_s": span.wall_s,
            "cpu_s": None,
            "ram": {
                "before_bytes": before_bytes,
                "after_bytes": after_bytes,
                "kept_bytes": _more(after_bytes, before_bytes),
                "peak_bytes": peak_bytes,
                # As %memit of memory_profiler has it.
                "increment_bytes": _more(peak_bytes, before_bytes),
                "all_peak_bytes": None,
                "total_bytes": None,
                "reason": _why_not_known(before_bytes, after_bytes, peak_bytes),
            },
            "other_processes": None,
            "gpu": None,
            "metrics": None if self._metrics.reason else [metric.figures for metric in self._metrics.found],
            "metrics_left_out": None if self._metrics.reason else self._metrics.left_out,
            "metrics_reason": self._metrics.reason,
            "warnings": [],
            "reason": reason,
        }
        if report is not None:
            self._add(report)

    def _add(self, report: Mapping[str, Any]) -> None:
        ram = self.figures["ram"]
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
        time_, *rest = self._parts()
        parts = [time_[1], *(f"{name} {text}" for name, text, _ in rest)]
        if self.figures["reason"] is not None:
            parts.append(self.figures["reason"])
        return one_line(" | ".join(parts))

    def _parts(self) -> list[tuple[str, str, str]]:
        """What the line has: a name, a text, and a chart for the table, or nothing."""
        ram, others, gpu = self.figures["ram"], self.figures["other_processes"], self.figures["gpu"]
        parts = [
            ("Time", f"{seconds_text(self.figures['wall_s'])}, CPU {seconds_text(self.figures['cpu_s'])}", ""),
            (
                "RAM",
                f"{bytes_text(ram['before_bytes'])} before, {bytes_text(ram['after_bytes'])} after"
                f" ({change_text(ram['kept_bytes'])}), peak {bytes_text(ram['peak_bytes'])} of"
                f" {bytes_text(ram['total_bytes'])}, increment {bytes_text(ram['increment_bytes'])}",
                "" if self._report is None else sparkline(self._report["series"]),
            ),
        ]
        if others:
            name = f"with {others} other process{'es' if others > 1 else ''}"
            parts.append((name, bytes_text(ram["all_peak_bytes"]), ""))
        if gpu is not None:
            count = UNKNOWN if gpu["count"] is None else gpu["count"]
            memory = f"peak {bytes_text(gpu['memory_peak_bytes'])} of {bytes_text(gpu['memory_total_bytes'])}"
            # The sum of all GPUs.
            mean, most = percent_text(gpu["mean_sum_percent"]), percent_text(gpu["max_sum_percent"])
            name = "GPU" if count == 1 else f"{count} GPUs"
            parts.append((name, f"memory {memory}, utilization {mean} mean, {most} most", ""))
        shown, more = self._metrics.found[:MOST_SHOWN], self._metrics.found[MOST_SHOWN:]
        parts += [(metric.name, metric.line(), _metric_chart(metric)) for metric in shown]
        if more:
            count = len(more) + self._metrics.left_out
            parts.append(("and", f"{count} more metric{'s' if count > 1 else ''}", ""))
        if self._metrics.reason is not None and self._metrics.reason != self.figures["reason"]:
            parts.append(("Metrics", f"{UNKNOWN}: {self._metrics.reason}", ""))
        return parts

    def rows(self) -> list[tuple[str, str]]:
        """What the folded table has."""
        ram = self.figures["ram"]
        rows = [
            ("Time", seconds_text(self.figures["wall_s"])),
            ("CPU time of all processes", seconds_text(self.figures["cpu_s"])),
            ("RAM of the kernel before", bytes_text(ram["before_bytes"])),
            ("RAM of the kernel after", bytes_text(ram["after_bytes"])),
            ("RAM that the cell kept (after, less before)", change_text(ram["kept_bytes"])),
            ("RAM of the kernel, peak", bytes_text(ram["peak_bytes"])),
            ("Increment (peak, less before)", bytes_text(ram["increment_bytes"])),
            ("RAM of all processes, peak", bytes_text(ram["all_peak_bytes"])),
            ("RAM that may be used", bytes_text(ram["total_bytes"])),
        ]
        if ram["reason"] is not None:
            rows.append(("RAM is not known", ram["reason"]))
        if self._report is not None:
            rows += self._rows_of(self._report)
        rows += [(f"Metric {metric.name}", metric.row()) for metric in self._metrics.found]
        if self._metrics.left_out:
            rows.append(("More metrics, not shown", str(self._metrics.left_out)))
        return rows + [("Warning", text) for text in self.figures["warnings"]]

    def _rows_of(self, report: Mapping[str, Any]) -> list[tuple[str, str]]:
        io = report["io"]
        rows = [
            ("Other processes", str(self.figures["other_processes"])),
            ("Read from storage", bytes_text(io["read_bytes"])),
            ("Written to storage", bytes_text(io["write_bytes"])),
        ]
        for gpu in report["gpus"]:
            memory, utilization, power = gpu["memory"], gpu["utilization"], gpu["power"]
            peak, total = bytes_text(memory["max_combined_bytes"]), bytes_text(memory["total_bytes"])
            mean, most = percent_text(utilization["mean_percent"]), percent_text(utilization["max_percent"])
            energy = UNKNOWN if power["energy_j"] is None else f"{power['energy_j']:.3g} J"
            name = f"GPU {UNKNOWN if gpu['index'] is None else gpu['index']} {gpu['name'] or ''}".strip()
            rows.append((name, f"memory peak {peak} of {total}, utilization {mean} mean, {most} most, energy {energy}"))
        return rows

    def to_html(self) -> str:
        """A table of what the line has, with charts, and a folded one of all figures. No text in it becomes markup.

        It has no script and no colour of its own: text and lines are in the colour of the page.
        """
        parts = self._parts()
        if self.figures["reason"] is not None:
            parts.append(("Note", self.figures["reason"], ""))
        rows = [(name, text, "") for name, text in self.rows()]
        return f"{_table(parts)}<details><summary>gpu_track: all figures</summary>{_table(rows)}</details>"

    def __repr__(self) -> str:
        return self.line()

    def _repr_html_(self) -> str:
        """For frontends that know nothing of bundles."""
        return self.to_html()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Bundle:  # noqa: ARG002
        return {"text/plain": self.line(), "text/html": self.to_html()}, {METADATA_KEY: self.figures}


def _why_not_known(before_bytes: int | None, after_bytes: int | None, peak_bytes: int | None) -> str | None:
    if before_bytes is None or after_bytes is None:
        return UNREADABLE
    return _NO_PEAK if peak_bytes is None else None


def _more(value: int | None, than: int | None) -> int | None:
    return None if value is None or than is None else value - than


def _text(text: str) -> str:
    return html.escape(one_line(text))


def html_line(line: str) -> str:
    """A line as an element."""
    return f'<div style="font-family:monospace">{_text(line)}</div>'


def _table(rows: Sequence[tuple[str, str, str]]) -> str:
    """Rows of a name, a text, and markup below the text."""
    left = 'style="text-align:left"'
    found = ""
    for name, text, chart in rows:
        below = f"<br/>{chart}" if chart else ""
        found += f"<tr><th {left}>{_text(name)}</th><td {left}>{_text(text)}{below}</td></tr>"
    return f"<table>{found}</table>"


def sparkline(series: Mapping[str, Any]) -> str:
    """RAM of all processes over the time that was tracked, as SVG. Empty: it is not known."""
    points: list[Point] = list(zip(series["start_s"], series["end_s"], series["ram_bytes"]["combined"]["max"]))
    top = max([ram for _, _, ram in points if ram is not None], default=0.0)
    return _chart("RAM of all processes", points, 0.0, max(top, 1.0), bytes_text)


def _metric_chart(metric: CellMetric) -> str:
    """A metric over the same time. Empty: it has no point with a finite value."""
    known = [value for _, _, value in metric.points if value is not None]
    return _chart(metric.name, metric.points, min(known), max(known), metric.text) if known else ""


def _chart(name: str, points: Sequence[Point], low: float, high: float, shown: Callable[[float | None], str]) -> str:
    """Values over time, as SVG. A time in which the value is not known is left out."""
    end_s = points[-1][1] if points else 0.0
    if end_s <= 0.0 or all(value is None for _, _, value in points):
        return ""
    path = ""
    joins = False
    for start_s, stop_s, value in points:
        if value is not None:
            # Halves: the difference of two numbers can be larger than the largest one.
            height = (value / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.5
            y = _HEIGHT - height * (_HEIGHT - 2) - 1
            path += (
                f"{f'V{y:.1f}' if joins else f'M{start_s / end_s * _WIDTH:.1f} {y:.1f}'}H{stop_s / end_s * _WIDTH:.1f}"
            )
        joins = value is not None
    title = f"{name} over {seconds_text(end_s)}, from {'0' if low == 0.0 else shown(low)} to {shown(high)}"
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">'
        f'<title>{_text(title)}</title><path d="{path}" fill="none" stroke="currentColor"/></svg>'
    )
