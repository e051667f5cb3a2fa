"""Gives back memory that is only kept for later: at an alert that there is little left, or at a call."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpu_track import _torch
from gpu_track._memory import UNREADABLE, Memory
from gpu_track._shown import bytes_text

_KINDS = ("warning", "critical")
_QUANTITIES = ("ram", "gpu_ram")


@dataclass(frozen=True)
class Freed:
    """What a clean-up gave back. A figure is less than 0 if other threads took more meanwhile. None: see its reason.

    `objects` is how many objects the garbage collector found unreachable. `gpu_ram_bytes` is of PyTorch's allocator.
    """

    objects: int
    ram_bytes: int | None
    ram_reason: str | None
    gpu_ram_bytes: int | None
    gpu_ram_reason: str | None

    def __str__(self) -> str:
        gpu = f"n/a ({self.gpu_ram_reason})" if self.gpu_ram_bytes is None else bytes_text(self.gpu_ram_bytes)
        ram = f"n/a ({self.ram_reason})" if self.ram_bytes is None else bytes_text(self.ram_bytes)
        return f"freed RAM {ram}, GPU RAM {gpu}, {self.objects} unreachable objects"


class MemoryWatchdog:
    """A function for `Tracker(on_alert=...)`: at an alert of RAM or GPU RAM it frees what is only kept for later.

    It collects garbage, and empties PyTorch's cache. At alerts it does so in their thread, at most each `interval_s`.
    `clean_up()` does it at any time. `cleanups` counts both, and `last_freed` is what the last one gave back.
    `last_cleanup` is the time of its begin by `clock`, seconds. None: there was none.
    """

    def __init__(self, interval_s: float = 30.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.interval_s = interval_s
        self.cleanups = 0
        self.last_cleanup: float | None = None
        self.last_freed: Freed | None = None
        self._clock = clock
        # By process: is held while a thread cleans up. A thread that held it is not in a forked child.
        self._cleaning: dict[int, threading.Lock] = {}

    def __call__(self, event: dict[str, Any]) -> None:
        """Cleans up, if the event is such an alert, and the last clean-up was not too short a while ago."""
        if event.get("kind") in _KINDS and event.get("quantity") in _QUANTITIES:
            self._clean_up(self._is_time)

    def clean_up(self) -> Freed | None:
        """Cleans up now, whatever the interval says, and gives what that freed. Any thread can call it.

        None: a clean-up is going on already, in another thread, or in this one, which has called a finalizer. An alert
        within `interval_s` of this one does not clean up again.
        """
        return self._clean_up(lambda _now: True)

    def _clean_up(self, is_due: Callable[[float], bool]) -> Freed | None:
        cleaning = self._cleaning.setdefault(os.getpid(), threading.Lock())
        # To wait for it could be for ever: a finalizer that this thread runs can call this, too.
        if not cleaning.acquire(blocking=False):
            return None
        try:
            now = self._clock()
            if not is_due(now):
                return None
            self.last_cleanup = now
            self.cleanups += 1
            self.last_freed = _free()
            return self.last_freed
        finally:
            cleaning.release()

    def _is_time(self, now: float) -> bool:
        return self.last_cleanup is None or now - self.last_cleanup >= self.interval_s


def _free() -> Freed:
    cuda = _torch.cuda()
    ram_before, gpu_before = Memory.now().rss_bytes, _torch.reserved_bytes(cuda)
    # The cache can only give back what nothing refers to any more.
    objects = gc.collect()
    if cuda is not None:
        cuda.empty_cache()
    ram_bytes = _difference(ram_before, Memory.now().rss_bytes)
    gpu_ram_bytes = _difference(gpu_before, _torch.reserved_bytes(cuda))
    no_gpu_ram = "the program uses no GPU by PyTorch" if cuda is None else "PyTorch does not tell how much it keeps"
    return Freed(
        objects,
        ram_bytes,
        UNREADABLE if ram_bytes is None else None,
        gpu_ram_bytes,
        no_gpu_ram if gpu_ram_bytes is None else None,
    )


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else before - after
