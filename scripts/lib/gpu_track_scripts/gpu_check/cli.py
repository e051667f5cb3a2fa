"""The command line of scripts/gpu-check."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from gpu_track_scripts.gpu_check import checks, holders
from gpu_track_scripts.gpu_check.costs import costs, table
from gpu_track_scripts.gpu_check.nvml import Nvml, Refused
from gpu_track_scripts.gpu_check.parts import BUSY_S, PART_AT_MOST_S, PARTS_AT_MOST_S, part_command
from gpu_track_scripts.gpu_check.results import Results
from gpu_track_scripts.gpu_check.spin import spin
from gpu_track_scripts.paths import ROOT

DESCRIPTION = """\
Compares what gpu-track-run says of a real NVIDIA GPU with the driver's own figures. Takes two or three minutes.

It checks:
- utilization of a device and of a process that are busy for a known time, from a second thread;
- memory of several processes at once, each against its allocation, cudaMemGetInfo and nvidia-smi;
- energy, within 2% of the device's counter;
- with --accounting, the peak of a process that no sample sees.
It prints what each NVML call of a sample costs, for docs/GPU.md, and by which clock the driver dates its samples.

Needs Python 3.9 and the driver's libraries (libcuda.so.1, libnvidia-ml.so.1), on a machine whose GPU is otherwise
unused. nvidia-smi, nvcc, PyTorch and CuPy are used where they are installed; it says which are not.

The status is 0 if all figures are right, 1 if one is wrong, 2 without a gpu-track-run, and 77 without a GPU.
"""
NO_GPU = 77
# The whole check, so that a hung driver does not hold it for ever.
WHOLE_AT_MOST_S = 540

# The parts that run under gpu-track-run: the function, its number of arguments, and its longest time.
PARTS: dict[str, tuple[Callable[..., None], int, int]] = {
    "hold": (holders.hold, 2, PART_AT_MOST_S),
    "hold_all": (holders.hold_all, 2, PARTS_AT_MOST_S),
    "count_energy": (checks.count_energy, 1, PART_AT_MOST_S),
    "spin": (spin, 1, PART_AT_MOST_S),
}


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Reads the command line; ends with status 2 where it is wrong."""
    parser = argparse.ArgumentParser(
        prog="gpu-check", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--accounting",
        action="store_true",
        help="also check the driver's accounting; needs root, and switches it on and back",
    )
    parser.add_argument("tracker", nargs="?", metavar="PATH", help="the gpu-track-run to check")
    return parser.parse_args(arguments)


def print_costs(nvml: Nvml) -> None:
    """What each call of a sample costs, on a device at rest and on a busy one."""
    at_rest = costs(nvml)
    spinning = subprocess.Popen(part_command("spin", BUSY_S), stdout=subprocess.PIPE, text=True)
    is_busy = spinning.stdout is not None and spinning.stdout.readline().strip() == "spins"
    time.sleep(2)  # the driver takes a sample at least once a second
    while_busy = costs(nvml)
    print(f"\nby which clock, {'busy' if is_busy else 'at rest'}:")
    for line in nvml.sample_clocks():
        Results.note(line)
    spinning.wait()
    print(f"\nnvmlInit_v2: {nvml.init_ms:.1f} ms\n")
    for line in table(at_rest, while_busy, is_busy):
        print(line)
    print()


def run_checks(nvml: Nvml, tracker: str, with_accounting: bool) -> int:
    """All checks on a working driver."""
    # CUDA's first device is NVML's first device then.
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    results = Results()
    subprocess.run([tracker, "--gpus"], check=True, timeout=PART_AT_MOST_S)
    print_costs(nvml)
    checks.check_busy(results, tracker, nvml)
    checks.check_memory(results, tracker)
    checks.check_energy(results, tracker, nvml)
    if with_accounting:
        checks.check_accounting(results, tracker)
    else:
        results.skip("accounting", "only with --accounting, since it changes a setting of the driver")
    print("\n" + (f"failed: {', '.join(results.failures)}" if results.failures else "all right"))
    return 1 if results.failures else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs all checks, or one of the parts that they start."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0] in PARTS:
        part, count, seconds = PARTS[arguments[0]]
        signal.alarm(seconds)
        part(*arguments[1 : 1 + count])
        return 0
    options = parse_arguments(arguments)
    # A time limit that ends this must not lose lines.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)
    signal.alarm(WHOLE_AT_MOST_S)
    try:
        nvml = Nvml()
    except Refused as error:
        print(f"the driver does not work: {error}")
        return 1 if os.path.exists("/dev/nvidiactl") else NO_GPU
    except (OSError, AttributeError) as error:
        print(f"no GPU here ({error})")
        return NO_GPU
    built = ROOT / "target" / "release" / "gpu-track-run"
    tracker = options.tracker or shutil.which("gpu-track-run") or str(built)
    if not os.access(tracker, os.X_OK):
        print(f"{tracker} is not there: cargo build --release, or give its path")
        return 2
    return run_checks(nvml, tracker, options.accounting)
