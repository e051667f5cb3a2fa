"""The checks. Each function `judge_...` compares a report with what is known from elsewhere."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

from gpu_track_scripts.gpu_check import holders
from gpu_track_scripts.gpu_check.holders import Held, Planned
from gpu_track_scripts.gpu_check.nvml import Nvml
from gpu_track_scripts.gpu_check.parts import BUSY_S, MIB, PART_AT_MOST_S, part_command
from gpu_track_scripts.gpu_check.report import Gpu, Power, Report, device, reason_missing, tracked
from gpu_track_scripts.gpu_check.results import Results

# The driver maps device memory in pages of 2 MiB.
GRANULE_BYTES = 2 * MIB
# The driver's utilization samples are up to a second long, and its first one may begin before the work.
UTILIZATION_OFF_S = 1.5
# How long `count_energy` waits between its two readings, and how far the rates may differ.
ENERGY_S = 20
ENERGY_OFF = 0.02
# Until a busy device is at rest.
REST_S = 10
# What the process allocates that only the driver's accounting sees.
ACCOUNTED_BYTES = 300 * MIB


def check_busy(results: Results, tracker: str, nvml: Nvml) -> None:
    """Utilization of a device and a process that are busy for a known time."""
    start = time.monotonic()
    report = tracked(results, tracker, part_command("spin", BUSY_S))
    took_s = time.monotonic() - start
    if report is None:
        return
    gpu = device(report, nvml.uuid)
    if gpu is None:
        results.check("the busy GPU", False, f"{nvml.uuid} is not in the report")
        return
    judge_busy(results, gpu, took_s)


def judge_busy(results: Results, gpu: Gpu, took_s: float) -> None:
    """The device was busy for BUSY_S of a run of `took_s`."""
    if reason := reason_missing(gpu, "utilization"):
        results.skip("utilization", reason)
    else:
        utilization = gpu["utilization"]
        active_s = utilization["active_s"]
        results.check(
            "the busy GPU's active time",
            BUSY_S - UTILIZATION_OFF_S <= active_s <= took_s,
            f"{active_s:.2f} s of {BUSY_S} in {took_s:.2f} s; mean {utilization['mean_percent']:.1f}%",
        )
        largest = utilization["max_percent"]
        results.check("its largest utilization", largest >= 90, f"{largest:.1f}%")
    if reason := reason_missing(gpu, "utilization by process"):
        results.skip("utilization by process", reason)
    else:
        largest_sm = max((process["max_sm_percent"] or 0 for process in gpu["processes"]), default=None)
        results.check("the process's largest utilization", bool(largest_sm), f"{largest_sm}%")
    if reason := reason_missing(gpu, "memory by process"):
        results.skip("the busy process's memory", reason)
    else:
        peaks = [(process["pid"], process["driver_pid"], process["peak_bytes"]) for process in gpu["processes"]]
        results.check("the busy process is known", len(peaks) == 1, f"pid, the driver's pid, peak: {peaks}")
    power, clocks = gpu["power"], gpu["clocks"]
    results.note(
        f"power mean {power['mean_w']} W, max {power['max_w']} W; SM clock max {clocks['max_sm_mhz']} MHz; "
        f"throttle reasons {gpu['throttle']}; performance states {gpu['pstate']}; "
        f"PCIe {gpu['pcie']}; temperature {gpu['max_temperature_c']} C"
    )
    for missing in gpu["missing"]:
        results.note(f"missing: {missing['figure']} ({missing['reason']})")


def check_memory(results: Results, tracker: str) -> None:
    """Memory of several processes at once."""
    with tempfile.TemporaryDirectory() as name:
        plan = memory_plan(results, pathlib.Path(name))
        held_path = pathlib.Path(name) / "held"
        report = tracked(results, tracker, part_command("hold_all", holders.to_json(plan), held_path))
        if report is None:
            return
        held = holders.held_from_json(held_path.read_text(encoding="utf-8"))
    judge_memory(results, plan, held, report)


def memory_plan(results: Results, directory: pathlib.Path) -> list[Planned]:
    """The processes of `check_memory`: the first has nothing but a context, the others hold 300 MiB and more."""
    kinds: list[tuple[str, str | None]] = [("context", None), ("plain", None), ("plain", None), ("pool", None)]
    program, reason = holders.compile_cuda_c(directory)
    if program:
        kinds.append(("CUDA C", program))
    else:
        results.skip("CUDA C", reason)
    for name in ("torch", "cupy"):
        if importlib.util.find_spec(name):
            kinds.append((name, None))
            # Read from the disk before the run, because the first import can take longer than all the rest.
            subprocess.run([sys.executable, "-c", f"import {name}"], check=False, timeout=PART_AT_MOST_S)
        else:
            results.skip(name, "not installed")
    if not shutil.which("nvidia-smi"):
        results.skip("nvidia-smi", "not found")
    sizes = [0, *((200 + 100 * number) * MIB for number in range(1, len(kinds)))]
    return [Planned(size_bytes, *kind) for size_bytes, kind in zip(sizes, kinds)]


def judge_memory(results: Results, plan: list[Planned], held: list[Held], report: Report) -> None:
    """Compares each process's peak with its allocation, with nvidia-smi, and with the fall of free memory."""
    for planned, process in zip(plan, held):
        if process.fallen_bytes is None:
            results.check(f"a {planned.kind} process", False, "it failed, see above")
    combined_bytes = report["max_gpu_ram"]["combined"]
    reasons = {reason_missing(gpu, "memory by process") for gpu in report["gpus"]} - {None}
    if reasons or not any(process.is_listed for process in held):
        # The driver may name other pids than ours (containers, gVisor), or no memory by process (WSL).
        results.check(
            "memory by process is unknown, and so is its sum",
            combined_bytes is None and bool(reasons),
            f"{combined_bytes}; {reasons}",
        )
        return
    peaks = {process["pid"]: process["peak_bytes"] for gpu in report["gpus"] for process in gpu["processes"]}
    context_bytes = peaks.get(held[0].pid)
    for planned, process in zip(plan, held):
        if process.fallen_bytes is not None:
            judge_holder(results, planned, process, peaks.get(process.pid), context_bytes)
    total_bytes = sum(peak or 0 for peak in peaks.values())
    results.check(
        "combined is their sum",
        combined_bytes is not None and abs(combined_bytes - total_bytes) <= GRANULE_BYTES * len(peaks),
        f"{combined_bytes} and {total_bytes}",
    )


def judge_holder(
    results: Results, planned: Planned, process: Held, peak_bytes: int | None, context_bytes: int | None
) -> None:
    """Judges one process of `judge_memory`. `context_bytes` is what a context alone takes."""
    kind = planned.kind
    if peak_bytes is None:
        results.check(f"memory of a {kind} process", False, f"pid {process.pid} has no peak")
        return
    results.check(
        f"memory of a {kind} process",
        peak_bytes >= planned.size_bytes,
        f"{peak_bytes} bytes for {planned.size_bytes} allocated",
    )
    if process.driver_bytes is not None:
        results.check(
            f"the same by nvidia-smi ({kind})",
            abs(peak_bytes - process.driver_bytes) <= GRANULE_BYTES,
            f"{peak_bytes} and {process.driver_bytes}",
        )
    fallen_bytes = process.fallen_bytes or 0
    if kind in {"plain", "pool"} and context_bytes is not None:
        # Their context is like the first process's, so the rest is their allocation.
        results.check(
            f"the same by cudaMemGetInfo ({kind})",
            abs(peak_bytes - context_bytes - fallen_bytes) <= 2 * GRANULE_BYTES,
            f"{peak_bytes - context_bytes} beyond a bare context's {context_bytes}, and {fallen_bytes}",
        )
    else:
        results.note(f"free memory fell by {fallen_bytes} at that")


def count_energy(path: str) -> None:
    """A part: reads the energy counter twice; writes down the difference and the time between."""
    nvml = Nvml()
    before_j, start = nvml.energy_j(), time.monotonic()
    time.sleep(ENERGY_S)
    after_j, end = nvml.energy_j(), time.monotonic()
    if before_j is None or after_j is None:
        sys.exit("the energy counter can't be read")
    pathlib.Path(path).write_text(json.dumps([after_j - before_j, end - start]), encoding="utf-8")


def check_energy(results: Results, tracker: str, nvml: Nvml) -> None:
    """Energy against the counter of NVML's first device."""
    if nvml.energy_j() is None:
        results.skip("energy", "this device has no counter")
        return
    time.sleep(REST_S)
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name) / "energy"
        report = tracked(results, tracker, part_command("count_energy", path))
        if report is None:
            return
        joules, seconds = json.loads(path.read_text(encoding="utf-8"))
    gpu = device(report, nvml.uuid)
    judge_energy(results, gpu["power"] if gpu else None, joules, seconds)


def judge_energy(results: Results, power: Power | None, joules: float, seconds: float) -> None:
    """Compares rates, because the report's time and that of the two readings differ by the driver's start."""
    if not power or power["energy_j"] is None or not power["mean_w"] or joules <= 0:
        results.check("energy", False, f"{power}; {joules} J by hand")
        return
    measured_s = power["integrated_energy_j"] / power["mean_w"]
    ours_w, by_hand_w = power["energy_j"] / measured_s, joules / seconds
    results.check(
        "energy a second within 2% of the counter's",
        abs(ours_w / by_hand_w - 1) < ENERGY_OFF,
        f"{ours_w:.2f} W and {by_hand_w:.2f} W; by integrated power {power['mean_w']:.2f} W",
    )


def check_accounting(results: Results, tracker: str) -> None:
    """The peak of a process that lives between two samples, by the driver's accounting."""
    holder = shlex.join(part_command("hold", ACCOUNTED_BYTES, "plain"))
    command = ["sh", "-c", f"{holder} </dev/null; sleep 3"]
    report = tracked(results, tracker, command, "--gpu-accounting", "--st", "60")
    if report is not None:
        judge_accounting(results, report)


def judge_accounting(results: Results, report: Report) -> None:
    """A process has a peak by the driver's accounting, and it is large enough."""
    peaks = [(process["accounted"], process["peak_bytes"]) for gpu in report["gpus"] for process in gpu["processes"]]
    results.check(
        "a process that no sample saw",
        any(is_accounted and (peak or 0) >= ACCOUNTED_BYTES for is_accounted, peak in peaks),
        f"by the driver's accounting, peak: {peaks}",
    )
