"""The variables that make programs report to a tracker: a shim in LD_PRELOAD, and its session.

Trackers can overlap. The newest one has the variables; when it stops, those of the one before it are there again, and
at last what the program had itself. What the program has changed meanwhile stays.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from typing import Callable

_PRELOAD = "LD_PRELOAD"
# The segments of the runs that a process is in, the innermost last.
_SESSION = "GPU_TRACK_SESSION"


class Environment:
    """An environment of which trackers hold variables for a while."""

    def __init__(self, variables: dict[str, str] | os._Environ[str]) -> None:
        self._variables = variables
        self._lock = threading.Lock()
        # The variables of each tracker, the newest last.
        self._layers: list[Mapping[str, str]] = []
        # What the program had itself, and what was set in its place.
        self._before: dict[str, str | None] = {}
        self._set: dict[str, str] = {}

    def add(self, layer: Mapping[str, str]) -> None:
        """Sets variables, in front of what is in LD_PRELOAD."""
        with self._lock:
            self._layers.append(layer)
            self._apply()

    def remove(self, layer: Mapping[str, str]) -> None:
        """Undoes `add`, if that was done, also where Ctrl-C has interrupted `add` or `remove`."""
        with self._lock:
            self._layers = [other for other in self._layers if other is not layer]
            self._apply()

    def without(self) -> dict[str, str]:
        """The environment as it is without trackers."""
        with self._lock:
            variables = dict(self._variables)
            for name in self._set:
                _put(variables, name, self._own(name))
            return variables

    def of_helper(self) -> dict[str, str]:
        """The environment for a program of gpu-track. It reports to all trackers, which leave it out."""
        with self._lock:
            variables = dict(self._variables)
            lists = [self._own(_SESSION), *(layer.get(_SESSION) for layer in self._layers)]
            sessions = dict.fromkeys(":".join(filter(None, lists)).split(":"))
            _put(variables, _SESSION, ":".join(sessions) or None)
            return variables

    def _own(self, name: str) -> str | None:
        """What the program itself has under this name by now."""
        now = self._variables.get(name)
        ours = self._set.get(name)
        if now == ours:
            return self._before.get(name)
        if name == _PRELOAD and now is not None and ours is not None:
            # The program has added libraries to ours.
            before = self._before.get(name)
            shim = ours[: len(ours) - len(before) - 1] if before else ours
            # ld.so(8): colons or spaces separate libraries.
            return ":".join(part for part in re.split("[: ]", now) if part != shim) or None
        return now

    def _apply(self) -> None:
        newest = self._layers[-1] if self._layers else {}
        names = {*self._set, *newest}
        own = {name: self._own(name) for name in names}
        values = dict(newest)
        if _PRELOAD in values and own[_PRELOAD]:
            values[_PRELOAD] += f":{own[_PRELOAD]}"
        # While they change, both the old values and the new ones are known as ours: Ctrl-C can come in between.
        self._before, self._set = own, {**self._set, **values}
        for name in names:
            _put(self._variables, name, values.get(name, own[name]))
        self._before, self._set = {name: own[name] for name in newest}, values


def _put(variables: dict[str, str] | os._Environ[str], name: str, value: str | None) -> None:
    if value is None:
        variables.pop(name, None)
    else:
        variables[name] = value


def session() -> str | None:
    """The segments of the runs that this process is in, as programs get them. None: it is in none."""
    return os.environ.get(_SESSION) or None


class Newest:
    """Finds the segments of the newest tracker of this process that runs. `gpu_track.tracker` says how."""

    def __init__(self) -> None:
        self.session: Callable[[], str | None] = lambda: None


newest = Newest()


def segment_of(sessions: str | None) -> str | None:
    """The segment of the innermost run that still goes on. None: there is none."""
    return next((path for path in reversed((sessions or "").split(":")) if path and os.path.exists(path)), None)


# That of this process.
PROCESS = Environment(os.environ)


def _renew_lock() -> None:
    """A thread that held the lock is not in a forked child."""
    PROCESS._lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
