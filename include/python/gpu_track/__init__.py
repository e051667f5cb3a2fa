"""What a Python program and all that it starts use: RAM, CPU, GPU RAM, GPU utilization and time.

The classes are those of gpu_tracker 5.0.1: `import gpu_track as gpu_tracker`. The installed gpu-track-run does the
work. docs/PYTHON.md has examples, and docs/GPU_TRACKER.md what differs.
"""

import sys
from typing import TYPE_CHECKING, Any

if sys.version_info < (3, 9):  # noqa: UP036 (the wheel is for programs of older ones, too)
    raise ImportError("the module gpu_track needs Python 3.9 or newer; gpu-track-run works without it")

from gpu_track._gpus import Gpu, GpuProcess, TorchMemory, gpus, torch_memory
from gpu_track._metrics import metric, torch_metrics
from gpu_track._record import capture_oom, record
from gpu_track._watchdog import MemoryWatchdog
from gpu_track.resource_usage import ResourceUsage
from gpu_track.sub_tracker import SubTracker, SubTrackingAnalyzer, TrackingComparison, sub_track
from gpu_track.tracker import Tracker

__all__ = [
    "Gpu",
    "GpuProcess",
    "MemoryWatchdog",
    "ResourceUsage",
    "SubTracker",
    "SubTrackingAnalyzer",
    "TorchMemory",
    "Tracker",
    "TrackingComparison",
    "capture_oom",
    "gpus",
    "metric",
    "record",
    "sub_track",
    "torch_memory",
    "torch_metrics",
]


if TYPE_CHECKING:
    __version__: str
else:

    def __getattr__(name: str) -> str:
        if name == "__version__":
            # It takes as long to import as all of this module.
            from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

            try:
                return version("gpu-track")
            except PackageNotFoundError:
                return "unknown"
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load_ipython_extension(shell: Any) -> None:  # noqa: ANN401 (IPython)
    """Gives a notebook `%%gpu_track` and `%gpu_track`: `%load_ext gpu_track` calls it."""
    from gpu_track._magic import load  # noqa: PLC0415 (it needs IPython)

    load(shell)


def unload_ipython_extension(shell: Any) -> None:  # noqa: ANN401 (IPython)
    """Takes them away: `%unload_ext gpu_track` calls it."""
    from gpu_track._magic import unload  # noqa: PLC0415

    unload(shell)
