"""What is read of gpu-track-run's JSON report, and how it is made. The report has more keys."""

from __future__ import annotations

import json
import pathlib
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Any, TypedDict

from gpu_track_scripts.gpu_check.results import Results


class GpuProcess(TypedDict):
    """A process on a device."""

    pid: int
    driver_pid: int
    peak_bytes: int | None
    max_sm_percent: float | None
    # Whether the peak comes from the driver's accounting.
    accounted: bool


class Missing(TypedDict):
    """A figure that is not known, and why."""

    figure: str
    reason: str


class Utilization(TypedDict):
    """How busy a device was; None where `missing` has the reason."""

    active_s: float
    mean_percent: float
    max_percent: float


class Power(TypedDict):
    """Power of a device, and energy by its counter and by integrated power."""

    mean_w: float | None
    max_w: float | None
    energy_j: float | None
    integrated_energy_j: float


class Clocks(TypedDict):
    """Clocks of a device."""

    max_sm_mhz: float | None


class Gpu(TypedDict):
    """A device."""

    id: str
    utilization: Utilization
    processes: list[GpuProcess]
    power: Power
    clocks: Clocks
    throttle: Any
    pstate: Any
    pcie: Any
    max_temperature_c: float | None
    missing: list[Missing]


class MaxGpuRam(TypedDict):
    """The tree's largest GPU memory; None where it is not known."""

    combined: float | None


class Report(TypedDict):
    """gpu-track-run's JSON report."""

    gpus: list[Gpu]
    max_gpu_ram: MaxGpuRam
    warnings: list[str]


def tracked(results: Results, tracker: str, command: Sequence[str], *options: str) -> Report | None:
    """The report on a command; None, as a failure, if the command failed."""
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "report.json"
        front = [tracker, "-f", "json", "--gru", "bytes", "--tu", "seconds", "-o", str(path), *options, "--"]
        code = subprocess.run([*front, *command], check=False).returncode
        if code:
            results.check("the command under gpu-track-run", False, f"ended with {code}")
            return None
        report: Report = json.loads(path.read_text(encoding="utf-8"))
    for warning in report["warnings"]:
        results.note(f"warning: {warning}")
    return report


def device(report: Report, uuid: str) -> Gpu | None:
    """The device of this UUID."""
    return next((gpu for gpu in report["gpus"] if gpu["id"] == uuid), None)


def reason_missing(gpu: Gpu, figure: str) -> str | None:
    """Why a device lacks a figure; None if it has it."""
    return next((missing["reason"] for missing in gpu["missing"] if missing["figure"] == figure), None)
