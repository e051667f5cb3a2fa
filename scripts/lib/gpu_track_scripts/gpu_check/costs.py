"""Measures what each NVML call of a sample costs, for docs/GPU.md."""

from __future__ import annotations

import ctypes
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

from gpu_track_scripts import markdown
from gpu_track_scripts.gpu_check.nvml import UTILIZATION_SAMPLES, UUID_BYTES, Nvml

REPEATS = 50
# nvml.h: NVML_FI_DEV_PCIE_COUNT_TX_BYTES and ..._RX_BYTES, nvmlEventTypeXidCriticalError.
PCIE_FIELDS = (197, 198)
XID_ERRORS = 8


class Field(ctypes.Structure):
    """nvmlFieldValue_t."""

    _fields_: ClassVar = [
        ("id", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("time", ctypes.c_longlong),
        ("latency", ctypes.c_longlong),
        ("kind", ctypes.c_uint),
        ("code", ctypes.c_uint),
        ("value", ctypes.c_ulonglong),
    ]


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a call costs, and what it returned. No times: the driver has no such call."""

    name: str
    code: int | str
    median_us: float | None = None
    longest_us: float | None = None

    def times(self) -> list[str]:
        """Two cells of the table."""
        if self.median_us is None or self.longest_us is None:
            return ["-", "-"]
        return [f"{self.median_us:.1f}", f"{self.longest_us:.1f}"]


def measure(name: str, call: Callable[[], int]) -> Cost:
    """Times a call."""
    times_ns, code = [], 0
    try:
        for _ in range(REPEATS):
            start_ns = time.perf_counter_ns()
            code = call()
            times_ns.append(time.perf_counter_ns() - start_ns)
    except AttributeError:
        return Cost(name, "no such call")
    return Cost(name, code, sorted(times_ns)[len(times_ns) // 2] / 1e3, max(times_ns) / 1e3)


def costs(nvml: Nvml) -> list[Cost]:
    """What each call costs now."""
    return [measure(name, call) for name, call in calls(nvml).items()]


def calls(nvml: Nvml) -> Mapping[str, Callable[[], int]]:
    """The calls of a sample, on the first device."""
    lib, device = nvml.lib, nvml.device
    word, wide, count = ctypes.c_uint(), ctypes.c_ulonglong(), ctypes.c_uint()
    buffer = (ctypes.c_ubyte * 65536)()
    one, eight, entries = ctypes.byref(word), ctypes.byref(wide), ctypes.byref(count)
    fields = (Field * len(PCIE_FIELDS))(*(Field(number) for number in PCIE_FIELDS))
    wait_event = event_waiter(nvml, buffer)

    def simple(name: str, *arguments: object) -> Callable[[], int]:
        return lambda: int(getattr(lib, name)(device, *arguments))

    def listing(name: str, *arguments: object, capacity: int = 64) -> Callable[[], int]:
        """A call that takes the capacity of its buffer in `count` and leaves the number of entries there."""

        def call() -> int:
            count.value = capacity
            return int(getattr(lib, name)(device, *arguments))

        return call

    def memory2() -> int:
        # nvmlMemory_v2_t begins with its version: its size and its number.
        ctypes.cast(buffer, ctypes.POINTER(ctypes.c_uint))[0] = 40 | 2 << 24
        return int(lib.nvmlDeviceGetMemoryInfo_v2(device, buffer))

    since = ctypes.c_ulonglong(0)
    return {
        "DeviceGetHandleByIndex_v2 (every half second)": lambda: int(
            lib.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(ctypes.c_void_p()))
        ),
        "DeviceGetUUID (likewise)": simple("nvmlDeviceGetUUID", buffer, UUID_BYTES),
        "DeviceGetCount_v2 (likewise)": lambda: int(lib.nvmlDeviceGetCount_v2(one)),
        "DeviceGetPciInfo_v3 (likewise)": simple("nvmlDeviceGetPciInfo_v3", buffer),
        "DeviceGetMigMode (likewise)": simple("nvmlDeviceGetMigMode", one, buffer),
        "EventSetWait_v2 (XID errors; waits for 1 ms)": wait_event,
        "MemoryInfo_v2": memory2,
        "MemoryInfo": simple("nvmlDeviceGetMemoryInfo", buffer),
        "UtilizationRates": simple("nvmlDeviceGetUtilizationRates", buffer),
        "PowerUsage": simple("nvmlDeviceGetPowerUsage", one),
        "TotalEnergyConsumption": simple("nvmlDeviceGetTotalEnergyConsumption", eight),
        "Temperature": simple("nvmlDeviceGetTemperature", 0, one),
        "ClockInfo (SM)": simple("nvmlDeviceGetClockInfo", 1, one),
        "ClockInfo (memory)": simple("nvmlDeviceGetClockInfo", 2, one),
        "PerformanceState": simple("nvmlDeviceGetPerformanceState", one),
        "CurrentClocksEventReasons": simple("nvmlDeviceGetCurrentClocksEventReasons", eight),
        "CurrentClocksThrottleReasons": simple("nvmlDeviceGetCurrentClocksThrottleReasons", eight),
        "TotalEccErrors": simple("nvmlDeviceGetTotalEccErrors", 0, 0, eight),
        "FieldValues (PCIe bytes)": simple("nvmlDeviceGetFieldValues", len(PCIE_FIELDS), fields),
        "Samples (utilization)": listing(
            "nvmlDeviceGetSamples", UTILIZATION_SAMPLES, since, one, entries, buffer, capacity=512
        ),
        "ComputeRunningProcesses_v3": listing("nvmlDeviceGetComputeRunningProcesses_v3", entries, buffer),
        "GraphicsRunningProcesses_v3": listing("nvmlDeviceGetGraphicsRunningProcesses_v3", entries, buffer),
        "MPSComputeRunningProcesses_v3": listing("nvmlDeviceGetMPSComputeRunningProcesses_v3", entries, buffer),
        "ProcessUtilization": listing("nvmlDeviceGetProcessUtilization", buffer, entries, since),
        "AccountingMode": simple("nvmlDeviceGetAccountingMode", one),
    }


def event_waiter(nvml: Nvml, buffer: ctypes.Array[ctypes.c_ubyte]) -> Callable[[], int]:
    """Waits for an XID error for 1 ms; AttributeError where the driver has no such events."""
    lib, events = nvml.lib, ctypes.c_void_p()
    is_ready = (
        hasattr(lib, "nvmlEventSetCreate")
        and not lib.nvmlEventSetCreate(ctypes.byref(events))
        and not lib.nvmlDeviceRegisterEvents(nvml.device, ctypes.c_ulonglong(XID_ERRORS), events)
    )

    def wait() -> int:
        if not is_ready:
            raise AttributeError("no events")
        return int(lib.nvmlEventSetWait_v2(events, buffer, 1))

    return wait


def table(at_rest: list[Cost], later: list[Cost], is_busy: bool) -> Iterator[str]:
    """The costs of the same calls on a device at rest, and later."""
    when = "busy" if is_busy else "again"
    yield markdown.header(
        ["NVML call", "median [us]", "longest [us]", f"{when}: median [us]", "longest [us]", "return values"]
    )
    for first, second in zip(at_rest, later):
        codes = f"{first.code}" if first.code == second.code else f"{first.code}, {second.code}"
        yield markdown.row([first.name, *first.times(), *second.times(), codes])
