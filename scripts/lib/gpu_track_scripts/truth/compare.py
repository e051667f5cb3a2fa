"""Compares a report with the kernel's record of the same run."""

from __future__ import annotations

import collections
import dataclasses
import os
import statistics
from typing import Any

from workloads import Workload

# How far CPU time may be off.
CPU_PERCENT = 1.0
# From this size on, errors of a peak are also shown in percent.
LARGE_RSS_BYTES = 10e6

HEADS = [
    "workload",
    "processes: ours / kernel's",
    "exact %",
    "CPU s",
    "CPU error %",
    "peak RSS error %, those of 10 MB and more: median, worst (of)",
    "the same of all, in parts of the tolerance",
    "wall ratio",
    "short of",
]


def rss_tolerance_bytes(rss_bytes: float, cores: int, page_bytes: int) -> float:
    """How far the kernel's own figure of an RSS may be off.

    RSS is the sum of three counters. Each processor collects a batch of pages before it adds them to a counter; the
    batch has max(32, 2 * processors) pages (percpu_counter_batch in lib/percpu_counter.c).
    """
    return max(rss_bytes / 100, 3 * max(32, 2 * cores) * page_bytes * cores)


def tolerance_here_bytes(rss_bytes: float) -> float:
    """The tolerance on this machine."""
    return rss_tolerance_bytes(rss_bytes, os.cpu_count() or 1, os.sysconf("SC_PAGESIZE"))


@dataclasses.dataclass
class Peaks:
    """Differences between reported and recorded peak RSS of single processes."""

    # Of processes of 10 MB and more, in percent.
    percents: list[float] = dataclasses.field(default_factory=list)
    # Of all processes, as a fraction of the tolerance.
    parts: list[float] = dataclasses.field(default_factory=list)
    # Descriptions of those above the tolerance.
    wrong: list[str] = dataclasses.field(default_factory=list)
    # Processes whose peak the report itself does not call exact; they are not compared.
    inexact: int = 0


def recorded_process(candidates: list[dict[str, Any]], ours: dict[str, Any]) -> dict[str, Any] | None:
    """The record of a reported process. A pid that was used twice must differ in its parent."""
    if len(candidates) > 1:
        candidates = [process for process in candidates if process["ppid"] == ours["ppid"]]
    return candidates[0] if len(candidates) == 1 else None


def compare_peaks(record: dict[str, Any], report: dict[str, Any], may_grow_before_exec: bool) -> Peaks:
    """Compares the processes that the report lists singly (the heaviest ones) and calls exact.

    If a process executed several programs, the kernel's figure is the last program's and the report's is the largest.
    So only a report below the kernel's figure is an error there. The same holds for a fork child that may allocate
    memory before its first exec. The workloads of the table have no such child: there a larger figure would be the
    parent's memory, which is an error. Random trees do have them.

    `record` is what the recorder wrote (`Record` in tests/truth/src/record.rs).
    """
    result = Peaks()
    by_pid = collections.defaultdict(list)
    for process in record["processes"]:
        by_pid[process["pid"]].append(process)
    # They are in the order of their starts; the first one is the command.
    root_pid = record["processes"][0]["pid"]
    for ours in report["processes"]["heaviest"]:
        recorded = recorded_process(by_pid[ours["pid"]], ours)
        if recorded is None:
            continue
        peak_bytes = ours["peak_rss_bytes"]
        if ours["peak_quality"] != "exact" or peak_bytes is None:
            result.inexact += 1
            continue
        truth_bytes = recorded["hiwater_rss_bytes"]
        if recorded["pid"] == root_pid:
            # Its peak before it became the command.
            truth_bytes = max(truth_bytes, record["entrance_rss_bytes"])
        difference_bytes = peak_bytes - truth_bytes
        # How many programs it executed; 0 if it ended as a copy of its parent.
        may_be_larger = recorded["execs"] > (0 if may_grow_before_exec else 1)
        if difference_bytes > 0 and may_be_larger:
            continue
        part = abs(difference_bytes) / tolerance_here_bytes(truth_bytes)
        result.parts.append(part)
        if truth_bytes >= LARGE_RSS_BYTES:
            result.percents.append(100 * abs(difference_bytes) / truth_bytes)
        if part > 1:
            result.wrong.append(f"pid {ours['pid']} {recorded['comm']}: {peak_bytes} for {truth_bytes}")
    return result


@dataclasses.dataclass
class Row:
    """A workload's row of the table."""

    name: str
    processes: int
    recorded_processes: int
    exact_percent: float
    cpu_s: float
    cpu_error_percent: float
    peaks: Peaks
    static_executables: list[str]
    # Tracked over bare; None where the two runs don't wait for the same processes.
    wall_ratio: float | None = None

    def broken_rules(self) -> list[str]:
        """The figures that differ from the kernel's by more than they may."""
        broken = []
        if self.processes != self.recorded_processes:
            broken.append("processes")
        if abs(self.cpu_error_percent) > CPU_PERCENT:
            broken.append("CPU")
        if self.peaks.wrong:
            broken.append(f"peak RSS ({len(self.peaks.wrong)})")
        return broken

    def cells(self) -> list[str]:
        """The columns of HEADS."""
        inexact = f", {self.peaks.inexact} inexact" if self.peaks.inexact else ""
        return [
            self.name.replace("|", "\\|"),
            f"{self.processes} / {self.recorded_processes}",
            f"{self.exact_percent:.1f}",
            f"{self.cpu_s:.3f}",
            f"{self.cpu_error_percent:+.2f}",
            median_and_worst(self.peaks.percents),
            median_and_worst(self.peaks.parts) + inexact,
            "" if self.wall_ratio is None else f"{self.wall_ratio:.2f}",
            ", ".join(self.broken_rules()) or "-",
        ]

    def notes(self) -> list[str]:
        """Details for below the table."""
        notes = [f"{self.name}: peak RSS of {wrong}" for wrong in self.peaks.wrong[:3]]
        if self.static_executables and self.processes != self.recorded_processes:
            notes.append(f"{self.name}: static executables: {', '.join(self.static_executables)}")
        return notes


def median_and_worst(errors: list[float]) -> str:
    """Median, largest value, and in brackets how many there are."""
    return f"{statistics.median(errors):.2f}, {max(errors):.2f} ({len(errors)})" if errors else ""


def row_of(workload: Workload, record: dict[str, Any], report: dict[str, Any]) -> Row:
    """The row of one tracked run."""
    coverage = report["coverage"]
    cpu_s = record["cpu_s"] if workload.wait_all else record["cpu_at_end_s"]
    return Row(
        name=workload.name,
        processes=report["processes"]["total"],
        recorded_processes=len(record["processes"]),
        exact_percent=100 * coverage["exact"] / max(coverage["processes"], 1),
        cpu_s=cpu_s,
        cpu_error_percent=100 * (report["cpu_time"]["total_s"] - cpu_s) / cpu_s,
        peaks=compare_peaks(record, report, workload.may_grow_before_exec),
        static_executables=coverage["static_executables"],
    )


def worst_of(rows: list[Row]) -> Row:
    """The row that breaks most rules; among equals, the one whose CPU time is furthest off."""
    return max(rows, key=lambda row: (len(row.broken_rules()), abs(row.cpu_error_percent)))
