"""Alerts of a tracker: the rules that gpu-track-run gets, its events, and the function that they call."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Union

from gpu_track._arguments import file_name

LOG = logging.getLogger("gpu_track")

AlertEvent = dict[str, Any]
# What is called at each event: a function, or several, which are called in their order.
Called = Union[Callable[[AlertEvent], object], Sequence[Callable[[AlertEvent], object]]]
# What "default" stands for: launcher/src/cli/rules.rs.
_DEFAULT = ("ram>80%", "ram>95%", "gpu_ram>80%", "gpu_ram>95%")
# What has a threshold, and the sign between. `growth` has none.
_SIGNS = {"ram": ">", "gpu_ram": ">", "cpu": ">", "disk": "<", "gpu_idle": ">", "fragmentation": ">"}
# The rule that `torch_metrics()` is compared with, here: gpu-track-run knows nothing of PyTorch's allocator.
_FRAGMENTATION = "fragmentation"
_FRAGMENTATION_RULE = re.compile(r"fragmentation>(\d+(?:\.\d+)?)%")
# PyTorch takes memory in blocks of 2 and 20 MiB. Of few of them, large parts are always free.
_LEAST_RESERVED = 256 << 20
# An alert goes off below this part of its threshold.
_OFF_PART = 0.9
# The kinds of events that alerts cause: docs/REPORT.md, "Alerts and events".
_KINDS = frozenset(("warning", "critical", "recovered", "growth", "gpu_idle"))
# How often the thread looks for events. An alert itself waits for 1 s.
_PERIOD_S = 0.2
# How long the end of tracking may wait for a function that is called.
_END_WITHIN_S = 1.0


class Alerts:
    """The alerts of a tracker. Each stretch has a file of events. A thread reads it if there is a function to call."""

    def __init__(self, rules: str | Sequence[str] | None, on_alert: Called | None) -> None:
        """Raises TypeError for what is no rule or no function."""
        functions = _functions(on_alert)
        if rules is None and functions:
            rules = "default"
        self.rules = _split(rules)
        self._caller = _Caller(functions) if functions else None
        # The events of stretches that are over, and the file of the one that is not. Replaced as a whole, so that any
        # thread, or a forked child, can read it at any time.
        self._known: tuple[tuple[AlertEvent, ...], _EventFile | None] = (), None
        self._thread: _Thread | None = None
        # Where the events of fragmentation go, and when the stretch began. None: none is under way.
        self._own: tuple[str, float] | None = None
        # The devices whose alert of fragmentation is on, each with when it went on, seconds after the begin.
        self._fragmented: dict[int, float] = {}

    @property
    def errors(self) -> int:
        """How many calls of the function have raised."""
        return 0 if self._caller is None else self._caller.errors

    def set_threshold(self, name: str, value: str | None) -> None:
        """Replaces the rules of a quantity by one. None: by none. Raises ValueError for another quantity."""
        if name not in _SIGNS:
            raise ValueError(f'"{name}" has no threshold. Supported values are {", ".join(_SIGNS)}.')
        if value is not None and not isinstance(value, str):
            raise TypeError(f'a threshold is a text such as "80%" or "8G", not {value!r}')
        begin = name + _SIGNS[name]
        rules = [rule for rule in self.rules if not rule.startswith(begin)]
        self.rules = _checked(rules if value is None else [*rules, begin + value])

    def needs_new_run(self, name: str) -> bool:
        """Whether a rule of this quantity is held by gpu-track-run, which takes rules at its start only."""
        return name != _FRAGMENTATION

    def options(self, path: str) -> list[str]:
        """The options of gpu-track-run for a stretch whose events go to this file."""
        rules = [rule for rule in self.rules if not rule.startswith(_FRAGMENTATION)]
        return [f"--alert={','.join(rules)}", "--events", file_name(path)] if rules else []

    def begin(self, path: str, later_s: float) -> None:
        """Follows the events of a stretch that has begun, which started `later_s` after the first one."""
        own = f"{path}.own"
        self._own, self._fragmented = (own, time.monotonic()), {}
        self._known = self._known[0], _EventFile((path, own), later_s)
        if self.rules and self._caller is not None:
            self._thread = _Thread(_EventFile((path, own), later_s), self._caller, before=self._thread)
            self._thread.start()

    def end(self) -> None:
        """Takes in the rest of a stretch that is over. Its file is not needed any more."""
        self._known, self._own = (tuple(self.events()), None), None
        if self._thread is not None:
            self._thread.end()

    def note_torch(self, device: int, stats: dict[str, Any]) -> None:
        """Compares what PyTorch's allocator tells of a device with the rule of fragmentation, if there is one."""
        found = next(filter(None, map(_FRAGMENTATION_RULE.fullmatch, self.rules)), None)
        split, reserved = (stats.get(f"{name}_bytes.all.current") for name in ("inactive_split", "reserved"))
        if found is None or self._own is None or split is None or not reserved:
            return
        path, begin_s = self._own
        at_s, allowed, percent = time.monotonic() - begin_s, float(found[1]), 100 * split / reserved
        event = {"at_s": at_s, "kind": "warning", "rule": found[0], "quantity": _FRAGMENTATION, "unit": "percent"}
        event.update(amount=percent, allowed=allowed, since_s=None, pid=os.getpid(), device=f"cuda:{device}")
        if device in self._fragmented:
            if percent > allowed * _OFF_PART:
                return
            event.update(kind="recovered", since_s=self._fragmented.pop(device))
        elif percent > allowed and reserved >= _LEAST_RESERVED:
            self._fragmented[device] = at_s
        else:
            return
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"event": event}) + "\n")

    def events(self) -> list[AlertEvent]:
        """What alerts did so far, in all stretches."""
        before, file = self._known
        return [*before, *(file.all() if file is not None else ())]


class _EventFile:
    """Files of events that are being written: that of `--events`, and that of fragmentation."""

    def __init__(self, paths: Sequence[str], later_s: float) -> None:
        self._later_s = later_s
        self._read_bytes = dict.fromkeys(paths, 0)

    def all(self) -> list[AlertEvent]:
        """All events that are there."""
        return self._events_of([line for path in self._read_bytes for line in self._lines(path, 0)])

    def new(self) -> list[AlertEvent]:
        """Those since the last time."""
        found = []
        for path, read_bytes in self._read_bytes.items():
            lines = self._lines(path, read_bytes)
            self._read_bytes[path] += sum(len(line) + 1 for line in lines)
            found += lines
        return self._events_of(found)

    @staticmethod
    def _lines(path: str, begin: int) -> list[bytes]:
        """The whole lines from this byte on."""
        with contextlib.suppress(OSError), open(path, "rb") as file:
            file.seek(begin)
            # The end of the last line can be missing.
            return file.read().split(b"\n")[:-1]
        return []

    def _events_of(self, lines: Sequence[bytes]) -> list[AlertEvent]:
        found = [event for event in map(_event, lines) if event.get("kind") in _KINDS]
        found.sort(key=lambda event: event.get("at_s") or 0.0)
        for event in found:
            for key in ("at_s", "since_s"):
                if event.get(key) is not None:
                    event[key] += self._later_s
        return found


class _Caller:
    """The program's functions. What one raises is counted, and said once; the others are called all the same."""

    def __init__(self, functions: Sequence[Callable[[AlertEvent], object]]) -> None:
        self._functions = functions
        self.errors = 0

    def call(self, event: AlertEvent) -> None:
        for function in self._functions:
            try:
                function(event)
            except BaseException as error:
                self.errors += 1
                if self.errors == 1:
                    LOG.warning(
                        "on_alert raised %s: %s; alerts go on, and more errors are only counted", _name(error), error
                    )


class _Thread:
    """Calls the function for each event of a file, one at a time, after all those of the thread `before`."""

    def __init__(self, file: _EventFile, caller: _Caller, before: _Thread | None) -> None:
        self._file = file
        # Is held while the file is read.
        self._reading = threading.Lock()
        # Events that wait for their call.
        self._waiting: deque[AlertEvent] = deque()
        self._caller = caller
        self._before = before
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="gpu_track alerts", daemon=True)

    def start(self) -> None:
        """Begins."""
        try:
            self._thread.start()
        except RuntimeError as problem:
            LOG.warning("on_alert is not called: %s", problem)

    def end(self) -> None:
        """Calls it for what is left. A call that takes long, or is the one that ends tracking, is not waited for.

        The thread goes on with the events that wait for such a call. It needs the file no more.
        """
        self._is_over.set()
        self._read()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_END_WITHIN_S)

    def _read(self) -> None:
        with self._reading:
            self._waiting.extend(self._file.new())

    def _follow(self) -> None:
        if self._before is not None:
            # `resume()` can come while a call for an event before `pause()` goes on.
            self._before._finish()
            self._before = None
        is_last = False
        while not is_last:
            is_last = self._is_over.wait(_PERIOD_S)
            self._read()
            while self._waiting:
                self._caller.call(self._waiting.popleft())

    def _finish(self) -> None:
        """Waits for the last call."""
        if self._thread.is_alive():
            self._thread.join()


def _functions(on_alert: Called | None) -> Sequence[Callable[[AlertEvent], object]]:
    """The functions to call. Raises TypeError for what is none."""
    if on_alert is None:
        return ()
    if callable(on_alert):
        return (on_alert,)
    if isinstance(on_alert, Sequence):
        wrong = [one for one in on_alert if not callable(one)]
        if not wrong:
            return tuple(on_alert)
        on_alert = wrong[0]
    raise TypeError(f"on_alert is no function: {on_alert!r}")


def _split(rules: str | Sequence[str] | None) -> list[str]:
    """The rules of a list, or of a text with commas. "default" is written out, so that a threshold of it can be set."""
    given = [] if rules is None else [rules] if isinstance(rules, str) else list(rules)
    if not all(isinstance(rule, str) for rule in given):
        raise TypeError(f'alerts are texts such as "ram>80%", not {rules!r}')
    parts = [part.strip() for rule in given for part in rule.split(",")]
    written = [rule for part in parts for rule in (_DEFAULT if part == "default" else (part,))]
    return _checked(list(dict.fromkeys(written)))


def _checked(rules: list[str]) -> list[str]:
    """These rules. Raises ValueError for a wrong one of fragmentation; gpu-track-run looks at the others."""
    for rule in rules:
        if rule.startswith(_FRAGMENTATION) and _FRAGMENTATION_RULE.fullmatch(rule) is None:
            raise ValueError(f'"{rule}" is no alert: such as "fragmentation>30%", of what PyTorch keeps')
    return rules


def _event(line: bytes) -> AlertEvent:
    """The event of a line. Empty: it is of something else."""
    with contextlib.suppress(ValueError, AttributeError):
        event = json.loads(line).get("event")
        if isinstance(event, dict):
            return event
    return {}


def _name(error: BaseException) -> str:
    return type(error).__name__
