"""The few calls of NVML that the checks make themselves."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Protocol

from gpu_track_scripts.gpu_check.driver import library

# nvml.h: NVML_GPU_UTILIZATION_SAMPLES, NVML_DEVICE_UUID_V2_BUFFER_SIZE.
UTILIZATION_SAMPLES = 1
UUID_BYTES = 96
# Entries of nvmlProcessInfo_t, which has 24 bytes and begins with the pid. (The _v3 of the drivers 535.43 to 535.86
# has 32 bytes.)
PROCESS_WORDS = 6
PROCESSES_AT_MOST = 512
SAMPLES_AT_MOST = 512


class Refused(Exception):
    """There is a driver, and it does not work."""


class Sample(ctypes.Structure):
    """nvmlSample_t; the value is the low half of a union of 8 bytes."""

    _fields_: ClassVar = [("time_us", ctypes.c_ulonglong), ("value", ctypes.c_uint), ("rest", ctypes.c_uint)]


class ProcessSample(ctypes.Structure):
    """nvmlProcessUtilizationSample_t."""

    _fields_: ClassVar = [
        ("pid", ctypes.c_uint),
        ("time_us", ctypes.c_ulonglong),
        ("sm", ctypes.c_uint),
        ("memory", ctypes.c_uint),
        ("encoder", ctypes.c_uint),
        ("decoder", ctypes.c_uint),
    ]


class Timed(Protocol):
    """A sample of either kind."""

    time_us: int


class Nvml:
    """NVML and its first device."""

    def __init__(self) -> None:
        self.lib: Any = library("libnvidia-ml.so.1")
        start = time.perf_counter()
        code = self.lib.nvmlInit_v2()
        self.init_ms = (time.perf_counter() - start) * 1e3
        if code:
            raise Refused(f"nvmlInit_v2 returned {code}")
        count = ctypes.c_uint()
        self.lib.nvmlDeviceGetCount_v2(ctypes.byref(count))
        self.count = count.value
        self.device = ctypes.c_void_p()
        if self.count == 0 or self.lib.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device)):
            raise OSError("no device")
        text = ctypes.create_string_buffer(UUID_BYTES)
        self.lib.nvmlDeviceGetUUID(self.device, text, UUID_BYTES)
        self.uuid = text.value.decode()

    def listed_pids(self) -> set[int]:
        """The pids of compute processes on any device. In a container they may be the host's pids."""
        pids: set[int] = set()
        newest = getattr(self.lib, "nvmlDeviceGetComputeRunningProcesses_v3", None)
        call = newest or self.lib.nvmlDeviceGetComputeRunningProcesses_v2
        for index in range(self.count):
            device, count = ctypes.c_void_p(), ctypes.c_uint(PROCESSES_AT_MOST)
            # Large enough for entries of 32 bytes, too.
            buffer = (ctypes.c_uint * (8 * PROCESSES_AT_MOST))()
            self.lib.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
            if not call(device, ctypes.byref(count), buffer):
                pids |= {buffer[PROCESS_WORDS * entry] for entry in range(min(count.value, PROCESSES_AT_MOST))}
        return pids

    def energy_j(self) -> float | None:
        """The energy counter; None if the device has none."""
        energy_mj = ctypes.c_ulonglong()
        code = self.lib.nvmlDeviceGetTotalEnergyConsumption(self.device, ctypes.byref(energy_mj))
        return None if code else energy_mj.value / 1e3

    def sample_clocks(self) -> Iterator[str]:
        """By which clock the driver dates its samples: how far the newest ones are from the machine's clocks."""
        count, kind = ctypes.c_uint(SAMPLES_AT_MOST), ctypes.c_uint()
        samples = (Sample * SAMPLES_AT_MOST)()
        code = self.lib.nvmlDeviceGetSamples(
            self.device,
            UTILIZATION_SAMPLES,
            ctypes.c_ulonglong(0),
            ctypes.byref(kind),
            ctypes.byref(count),
            samples,
        )
        yield clock_line("the device", code, samples[: count.value])
        count = ctypes.c_uint(SAMPLES_AT_MOST)
        of_processes = (ProcessSample * SAMPLES_AT_MOST)()
        code = self.lib.nvmlDeviceGetProcessUtilization(
            self.device, of_processes, ctypes.byref(count), ctypes.c_ulonglong(0)
        )
        yield clock_line("processes", code, of_processes[: count.value])


def clock_line(whose: str, code: int, samples: Sequence[Timed]) -> str:
    """Compares the newest sample with the time of day and with the time since boot."""
    newest_s = max((sample.time_us for sample in samples), default=0) / 1e6
    if code or not newest_s:
        return f"samples of {whose}: none (NVML returned {code}, {len(samples)} entries)"
    since_boot_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    return (
        f"samples of {whose}: {len(samples)}; the newest is {newest_s - time.time():+.3f} s from the time of day, "
        f"{newest_s - since_boot_s:+.3f} s from the time since boot"
    )
