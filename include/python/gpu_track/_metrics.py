"""Metrics of a program, such as its loss: each value is a line of a file, with its time.

A value is one append. So a line of one process or thread is never inside another's, and a process that is killed leaves
whole lines. What keeps a value from being written costs the value and one warning, never the program.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, SupportsFloat

from gpu_track import _torch, _trusted
from gpu_track._descriptors import identity
from gpu_track._marks import CHECK_EVERY_NS, CsvFile, first_cells
from gpu_track._open import open_file
from gpu_track._placeless import VARIABLE, Placeless

COLUMNS = "process_id,name,timestamp,value"
LOG = logging.getLogger("gpu_track")

_NS_PER_S = 1_000_000_000
# What PyTorch's allocator tells of a device, and the name of its metric behind the device's.
_TORCH_STATS = {
    "allocated_bytes.all.current": "allocated_bytes",
    "reserved_bytes.all.current": "reserved_bytes",
    "inactive_split_bytes.all.current": "inactive_split_bytes",
}


class MetricFile(CsvFile):
    """A file of metrics. `open` makes a new one; else the first value opens the one that is there, or makes it.

    `is_own`: it is in a directory of a tracker's, which is removed with the tracker.
    """

    _lacks = "No more metrics are written to it."
    _head = f"{COLUMNS}\n".encode()

    def __init__(self, path: str, *, is_own: bool = False) -> None:
        super().__init__(path)
        self._is_own = is_own
        # Gets what PyTorch's allocator tells of a device, at each `torch_metrics()`.
        self.on_torch: Callable[[int, dict[str, Any]], None] | None = None
        # When the file is looked for again, nanoseconds since the epoch.
        self._until_ns = 0
        # A handler of a signal can tell a value while the first one opens the file.
        self._joining = threading.RLock()

    @property
    def path(self) -> str:
        """Its absolute path."""
        return self._path

    def has_values(self) -> bool:
        """Whether any process has written a value to it."""
        with contextlib.suppress(OSError):
            return os.stat(self._path).st_size > len(self._head)
        return False

    def add_value(self, name: str, value: float, now_ns: int) -> None:
        """Writes a value and its time, in nanoseconds since the epoch."""
        if not 0 < self._until_ns - now_ns <= CHECK_EVERY_NS:
            if not self._is_usable():
                return
            self._until_ns = now_ns + CHECK_EVERY_NS
        form = self.forms.get(name) or self.form(name)
        try:
            self._append(form % (now_ns // _NS_PER_S, now_ns % _NS_PER_S, value))
        except FileNotFoundError:
            self._end()

    def close(self) -> None:
        """Gives back its descriptor. A value that comes all the same is written without one."""
        descriptor, self._descriptor = self._descriptor, -1
        with contextlib.suppress(OSError):
            if identity(descriptor) == self._identity is not None:
                os.close(descriptor)

    def renew(self) -> None:
        super().renew()
        self._joining = threading.RLock()

    def _form(self, process_id: int, name: str) -> bytes:
        """A line with places for time and value."""
        # `%r` is the shortest text that is read back as the same number. NaN and infinity are nan and inf.
        return first_cells(process_id, str(name)) + b",%d.%09d,%r\n"

    def _is_usable(self) -> bool:
        """Looks for the file now and then. A file that was removed gets no more values."""
        if not self.is_open:
            self._join()
        if not self._failed:
            try:
                self._check()
            except FileNotFoundError:
                self._end()
        return not self._failed

    def _join(self) -> None:
        """Opens a file that other processes write to as well. Whichever finds it empty writes the head."""
        with self._joining:
            if self.is_open:
                return
            try:
                descriptor = open_file(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
                is_empty = os.fstat(descriptor).st_size == 0
                self._keep(descriptor)
                if is_empty:
                    self._append(self._head)
            except OSError as error:
                if self._is_own and error.errno == errno.ENOENT:
                    self._end()
                else:
                    self._give_up(error.strerror)
            self.is_open = True

    def _check_path(self) -> None:
        if not os.path.isfile(self._path):
            raise self._gone()

    def _give_up(self, problem: object) -> None:
        super()._give_up(problem)
        # The next value looks at `_failed`.
        self._until_ns = 0

    def _end(self) -> None:
        self._failed = True


class _Warnings:
    """What went wrong with a value is said once."""

    def __init__(self) -> None:
        self._is_said = False

    def say(self, message: str, *arguments: object) -> None:
        if not self._is_said:
            self._is_said = True
            LOG.warning(message, *arguments)


_warnings = _Warnings()
# The files that values go to: that of the environment, and one for each tracker that runs. Replaced, never changed.
_files: tuple[MetricFile, ...] = ()
_changing = threading.Lock()
# The devices of which PyTorch's memory was told.
_torch_devices: set[int] = set()


def add(file: MetricFile) -> None:
    """From now on, values go to this file, too."""
    global _files  # noqa: PLW0603
    with _changing:
        _files = (*_files, file)


def remove(file: MetricFile) -> None:
    """Undoes `add`, if that was done."""
    global _files  # noqa: PLW0603
    with _changing:
        _files = tuple(other for other in _files if other is not file)


def metric(name: str, value: SupportsFloat) -> None:
    """Tells a number of the program, such as its loss, to the trackers that run. Without one it does nothing.

    `Tracker.metrics()`, `Tracker.timeline()` and the output of `%%gpu_track` have it. Under gpu-track-run, the variable
    GPU_TRACK_METRICS names a file for it. A run without that, or a cell that nothing tracks, is one warning.
    `float(value)` must be possible; of a tensor on a GPU, that waits for the GPU.
    """
    files = _files
    if not files:
        if placeless.is_open:
            placeless.note(name)
    else:
        try:
            now_ns = time.time_ns()
            number = float(value)
            for file in files:
                file.add_value(name, number, now_ns)
        except Exception as problem:
            _warnings.say('The metric "%s" is left out where its value is no number: %s', name, problem)


def torch_metrics() -> None:
    """Tells how much memory PyTorch has of each GPU that this process uses, as metrics in bytes.

    For a device 0 they are `torch_cuda0_allocated_bytes` (live tensors), `torch_cuda0_reserved_bytes` (these and what
    the allocator keeps for later) and `torch_cuda0_inactive_split_bytes` (of what it keeps, parts that it can't give
    back).
    Without a tracker, or in a program that has not used PyTorch on a GPU, it does nothing.
    """
    if not _files:
        if placeless.is_open and _torch.cuda() is not None:
            placeless.note("torch_metrics()")
        return
    try:
        for device, _uuid, stats in torch_stats():
            for key, suffix in _TORCH_STATS.items():
                # Another allocator than PyTorch's own lacks some.
                if key in stats:
                    metric(f"torch_cuda{device}_{suffix}", stats[key])
            for file in _files:
                if file.on_torch is not None:
                    file.on_torch(device, stats)
    except Exception as problem:
        _warnings.say("The memory of PyTorch is not known: %s", problem)


def torch_stats() -> Iterator[tuple[int, str | None, dict[str, Any]]]:
    """What the allocator tells of each device that it has had memory of, with its UUID if PyTorch knows it (2.5)."""
    cuda = _torch.cuda()
    if cuda is None:
        return
    for device in range(cuda.device_count()):
        stats = cuda.memory_stats(device)
        if device in _torch_devices or stats.get("reserved_bytes.all.current", 0) > 0:
            _torch_devices.add(device)
            yield device, _uuid_of(cuda, device), stats


def _uuid_of(cuda: Any, device: int) -> str | None:  # noqa: ANN401 (PyTorch)
    """The UUID of a device, without its kind."""
    try:
        return str(cuda.get_device_properties(device).uuid)
    except Exception:
        return None


def _renew() -> None:
    """A thread that held the lock is not in a forked child, which has a pid of its own."""
    global _changing  # noqa: PLW0603
    _changing = threading.Lock()
    for file in _files:
        file.renew()


os.register_at_fork(after_in_child=_renew)
_named = os.environ.get(VARIABLE)
placeless = Placeless(_named)
if _named:
    # Another user may have set it, and could have lines added to any file of root's.
    _path = _trusted.path(_named, is_made=True) if _named.endswith(".csv") or not _trusted.is_root() else None
    if _path is None:
        LOG.warning("%s is ignored: root writes only a .csv that no other user can replace: %s", VARIABLE, _named)
    else:
        add(MetricFile(_path))
