"""The GPUs of this machine as they are now: `gpus()`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpu_track._program import ask_json

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
    driver. Raises RuntimeError if a driver can't be read, so that there may be more GPUs than are known.
    """
    try:
        listing = ask_json(["gpus"])
    except ValueError as error:
        raise RuntimeError(str(error)) from error
    return [_gpu(listed) for listed in listing["gpus"]]


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
