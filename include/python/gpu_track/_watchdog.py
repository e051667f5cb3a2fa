"""Gives back memory that is only kept for later, when an alert says that there is little left."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from typing import Any

from gpu_track import _torch

_KINDS = ("warning", "critical")
_QUANTITIES = ("ram", "gpu_ram")


class MemoryWatchdog:
    """A function for `Tracker(on_alert=...)`: at an alert of RAM or GPU RAM it frees what is only kept for later.

    It collects garbage, and empties PyTorch's cache, at most each `interval_s`, in the thread of the alerts. `cleanups`
    counts. `last_cleanup` is the time of the last one by `clock`, seconds; None: there was none.
    """

    def __init__(self, interval_s: float = 30.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.interval_s = interval_s
        self.cleanups = 0
        self.last_cleanup: float | None = None
        self._clock = clock
        # Is held while a thread finds out whether it is to clean up. Several trackers can have one watchdog.
        self._deciding = threading.Lock()

    def __call__(self, event: dict[str, Any]) -> None:
        """Cleans up, if the event is such an alert."""
        if event.get("kind") in _KINDS and event.get("quantity") in _QUANTITIES:
            self.clean_up()

    def clean_up(self) -> bool:
        """Cleans up, unless the last time was too short a while ago. Gives whether it did."""
        if not self._begins():
            return False
        # The cache can only give back what nothing refers to any more.
        gc.collect()
        cuda = _torch.cuda()
        if cuda is not None:
            cuda.empty_cache()
        return True

    def _begins(self) -> bool:
        """Whether it is time to clean up. If so, this time counts."""
        # The thread that has the lock cleans up, or it is too early to. It can be this one, in a finalizer.
        if not self._deciding.acquire(blocking=False):
            return False
        try:
            now = self._clock()
            if self.last_cleanup is not None and now - self.last_cleanup < self.interval_s:
                return False
            self.last_cleanup = now
            self.cleanups += 1
            return True
        finally:
            self._deciding.release()
