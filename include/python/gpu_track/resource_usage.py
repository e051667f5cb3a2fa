"""What a process and its descendants used, in the objects of gpu_tracker 5.0.1.

A figure that is not known is NaN, and None in `to_json()`. The report's reasons are in its own keys.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

UNKNOWN = math.nan


def _figure(value: float | None) -> float:
    return UNKNOWN if value is None else value


@dataclass
class RSSValues:
    """Resident memory, in the unit of `MaxRAM`: all, what processes do not share, and the rest."""

    total_rss: float = 0.0
    private_rss: float = 0.0
    shared_rss: float = 0.0


@dataclass
class MaxRAM:
    """The largest RAM: of the machine, the main process, its descendants, and both."""

    unit: str
    system_capacity: float
    system: float = 0.0
    main: RSSValues = field(default_factory=RSSValues)
    descendants: RSSValues = field(default_factory=RSSValues)
    combined: RSSValues = field(default_factory=RSSValues)


@dataclass
class MaxGPURAM:
    """The largest memory in use on GPUs: by all, the main process, its descendants, and both."""

    unit: str
    system_capacity: float
    system: float = 0.0
    main: float = 0.0
    descendants: float = 0.0
    combined: float = 0.0


@dataclass
class ProcessingUnitPercentages:
    """Utilization of cores or GPUs: sums are percent of one, hardware percentages are divided by how many there are."""

    max_sum_percent: float = 0.0
    max_hardware_percent: float = 0.0
    mean_sum_percent: float = 0.0
    mean_hardware_percent: float = 0.0


@dataclass
class CPUUtilization:
    """Utilization of cores, and the most threads at one time."""

    system_core_count: int
    n_expected_cores: int
    system: ProcessingUnitPercentages = field(default_factory=ProcessingUnitPercentages)
    main: ProcessingUnitPercentages = field(default_factory=ProcessingUnitPercentages)
    descendants: ProcessingUnitPercentages = field(default_factory=ProcessingUnitPercentages)
    combined: ProcessingUnitPercentages = field(default_factory=ProcessingUnitPercentages)
    main_n_threads: float = 0
    descendants_n_threads: float = 0
    combined_n_threads: float = 0


@dataclass
class GPUUtilization:
    """Utilization of the tracked GPUs."""

    system_gpu_count: int
    n_expected_gpus: int
    gpu_percentages: ProcessingUnitPercentages = field(default_factory=ProcessingUnitPercentages)


@dataclass
class ComputeTime:
    """The wall time that was tracked."""

    unit: str
    time: float = 0.0


@dataclass
class ResourceUsage:
    """All of it."""

    max_ram: MaxRAM
    max_gpu_ram: MaxGPURAM
    cpu_utilization: CPUUtilization
    gpu_utilization: GPUUtilization
    compute_time: ComputeTime

    @classmethod
    def of_report(cls, report: Mapping[str, Any]) -> ResourceUsage:
        """Reads the first five objects of a report. Raises KeyError or TypeError if it is none."""
        return cls(
            MaxRAM(**_parts(report["max_ram"], RSSValues)),
            MaxGPURAM(**_parts(report["max_gpu_ram"], RSSValues)),
            CPUUtilization(**_parts(report["cpu_utilization"], ProcessingUnitPercentages)),
            GPUUtilization(**_parts(report["gpu_utilization"], ProcessingUnitPercentages)),
            ComputeTime(**_parts(report["compute_time"], ComputeTime)),
        )

    @classmethod
    def unknown(cls, ram_unit: str, gpu_ram_unit: str, time_unit: str) -> ResourceUsage:
        """That of a process of which nothing is known."""
        unknown: Any = UNKNOWN
        ram = (RSSValues(*[unknown] * 3) for _ in range(3))
        system, main, descendants, combined, gpus = (ProcessingUnitPercentages(*[unknown] * 4) for _ in range(5))
        return cls(
            MaxRAM(ram_unit, unknown, unknown, *ram),
            MaxGPURAM(gpu_ram_unit, *[unknown] * 5),
            CPUUtilization(unknown, unknown, system, main, descendants, combined, unknown, unknown, unknown),
            GPUUtilization(unknown, unknown, gpus),
            ComputeTime(time_unit, unknown),
        )

    def to_json(self) -> dict[str, Any]:
        """The objects as dictionaries. What is not known is None."""
        known: dict[str, Any] = _known(asdict(self))
        return known


def _parts(entry: Mapping[str, Any], part: type[Any]) -> dict[str, Any]:
    """The arguments of an object: texts, numbers, and objects of the class `part`."""
    return {
        name: part(**_parts(value, part))
        if isinstance(value, dict)
        else value
        if isinstance(value, str)
        else _figure(value)
        for name, value in entry.items()
    }


def _known(value: Any) -> Any:  # noqa: ANN401 (JSON)
    if isinstance(value, dict):
        return {name: _known(entry) for name, entry in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value


def joined(stretches: Sequence[ResourceUsage]) -> ResourceUsage:
    """What was used in several stretches of time: maxima, means over the time of all, and that time."""
    times = [usage.compute_time.time for usage in stretches]
    whole = asdict(stretches[0])
    for usage, time in zip(stretches[1:], times[1:]):
        _join(whole, asdict(usage), time / (whole["compute_time"]["time"] + time))
    return ResourceUsage.of_report(whole)


def _join(whole: dict[str, Any], part: Mapping[str, Any], share: float) -> None:
    """Joins the figures of a later stretch to those before. `share`: its part of the time of both."""
    for name, value in part.items():
        before = whole[name]
        if isinstance(value, dict):
            _join(before, value, share)
        elif name == "time":
            whole[name] = before + value
        elif name.startswith("mean_"):
            whole[name] = before * (1.0 - share) + value * share
        elif not isinstance(value, str):
            # One that is not known makes the largest unknown.
            whole[name] = UNKNOWN if math.isnan(before) or math.isnan(value) else max(before, value)


def unknown_figures(value: Mapping[str, Any], path: str = "") -> list[str]:
    """The names of the figures of `to_json()` that are None."""
    found: list[str] = []
    for name, entry in value.items():
        if isinstance(entry, dict):
            found += unknown_figures(entry, f"{path}{name}.")
        elif entry is None:
            found.append(f"{path}{name}")
    return found
