"""The GPUs of this machine as they are now: `gpus()`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from gpu_track._metrics import torch_stats
from gpu_track._program import gpu_listing

_MIB = 1 << 20


@dataclass(frozen=True)
class GpuProcess:
    """A process on a GPU. None: not known."""

    pid: int
    # The name of its user.
    user: str | None
    command: str | None
    # Its memory there, bytes.
    used: int | None
    # Its RSS, bytes.
    rss: int | None


@dataclass(frozen=True)
class Gpu:
    """A GPU, or a part of one (MIG). Memory is in bytes, shares of the time in percent. None: not known.

    `figures` has all figures by their names in `gpu-track gpus -f json`, and `missing` why one of them is not known.
    """

    index: int | None
    # Its UUID; the PCI address of a GPU without one.
    uuid: str
    name: str | None
    used: int | None
    free: int | None
    total: int | None
    utilization: float | None
    temperature: float | None
    power: float | None
    # None: the driver does not list them.
    processes: list[GpuProcess] | None
    # The id of the GPU that it is a part of. None: it is a whole one.
    parent: str | None = None
    figures: dict[str, float | None] = field(default_factory=dict, repr=False)
    missing: dict[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        """One line, as `gpu-track gpus -f line`."""
        of = [
            (self.temperature, "'C"),
            (self.utilization, " %"),
            (self.power, " W"),
        ]
        figures = ", ".join(f"{_whole(value)}{unit}" for value, unit in of)
        memory = f"{_mib(self.used)} / {_mib(self.total)} MiB"
        listed = [f"{one.user or 'n/a'}/{one.command or one.pid}({_mib(one.used)}M)" for one in self.processes or ()]
        number = "-" if self.index is None else self.index
        return f"[{number}] {self.name or self.uuid} | {figures} | {memory} | {' '.join(listed)}".rstrip(" |")


def gpus() -> list[Gpu]:
    """The GPUs of this machine and what runs on them now, whoever runs it. No GPU: an empty list.

    It asks the drivers in another process, so it takes some tenths of a second, and never hangs or crashes with a
    driver. Raises RuntimeError with the reason if a driver can't be read, so that there may be more GPUs than are
    known. Other problems, such as a GPU that could not be read, are logged as warnings.
    """
    try:
        listing = gpu_listing()
    except ValueError as error:
        raise RuntimeError(str(error)) from error
    return [_gpu(listed) for listed in listing["gpus"]]


@dataclass(frozen=True)
class TorchMemory:
    """The memory of this process on a GPU that it uses by PyTorch, bytes. None: not known."""

    # PyTorch's number of it.
    device: int
    # That of gpus(). None: this PyTorch does not tell, or no GPU of the machine has it.
    uuid: str | None
    # What tensors have.
    live: int
    # What PyTorch keeps beside that, to use again. Others can't have it.
    cached: int
    # Of what it keeps, parts that it can't give back: a block is freed as a whole.
    fragmented: int | None
    # What the driver counts for this process: all of the above, and `context`.
    driver: int | None
    # CUDA's context, and libraries that don't use PyTorch's memory.
    context: int | None

    @property
    def reserved(self) -> int:
        """What PyTorch's allocator has."""
        return self.live + self.cached


def torch_memory() -> list[TorchMemory]:
    """What this process has on each GPU by PyTorch, apart: live, cached, and what only the driver knows.

    It imports no PyTorch and begins to use no GPU: without that the list is empty. It asks the driver as `gpus()` does.
    In a container the driver may name this process by another pid: then `driver` and `context` are None.
    """
    stats = list(torch_stats())
    if not stats:
        return []
    try:
        listed = gpus()
    except (RuntimeError, OSError):
        listed = []
    return [_torch_memory(device, uuid, of, listed) for device, uuid, of in stats]


def _torch_memory(device: int, uuid: str | None, stats: dict[str, Any], listed: list[Gpu]) -> TorchMemory:
    """The figures of a device, with the driver's where `listed` has it. The two are read one after the other."""
    # PyTorch's lack the kind that the driver's begin with.
    bare = None if uuid is None else uuid.removeprefix("GPU-").removeprefix("MIG-")
    of_device = [gpu for gpu in listed if bare is not None and gpu.uuid.partition("-")[2] == bare]
    own = [one.used for gpu in of_device for one in gpu.processes or () if one.pid == os.getpid()]
    driver = own[0] if own else None
    live, reserved = stats["allocated_bytes.all.current"], stats["reserved_bytes.all.current"]
    return TorchMemory(
        device=device,
        uuid=of_device[0].uuid if of_device else None,
        live=live,
        cached=reserved - live,
        fragmented=stats.get("inactive_split_bytes.all.current"),
        driver=driver,
        # Memory that changed between the two readings leaves no difference that means anything.
        context=None if driver is None or driver < reserved else driver - reserved,
    )


def _gpu(listed: dict[str, Any]) -> Gpu:
    """A GPU of the listing."""
    now = dict(listed["now"])
    processes = now.pop("processes")
    return Gpu(
        index=listed["index"],
        uuid=listed["id"],
        name=listed["name"],
        used=now.get("memory_used_bytes"),
        free=now.get("memory_free_bytes"),
        total=listed["memory_bytes"],
        utilization=now.get("utilization_percent"),
        temperature=now.get("temperature_c"),
        power=now.get("power_w"),
        processes=None if processes is None else [_process(one) for one in processes],
        parent=listed["parent"],
        figures=now,
        missing={one["figure"]: one["reason"] for one in listed["figures"] if not one["available"]},
    )


def _process(listed: dict[str, Any]) -> GpuProcess:
    """A process of the listing."""
    return GpuProcess(
        pid=listed["pid"],
        user=listed["user"],
        command=listed["command"],
        used=listed["memory_bytes"],
        rss=listed.get("rss_bytes"),
    )


def _whole(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.0f}"


def _mib(value: int | None) -> str:
    return "n/a" if value is None else str(value // _MIB)
