"""Marks code blocks, as gpu_tracker 5.0.1's `SubTracker` and `sub_track` do, and analyses what they used."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from contextvars import ContextVar
from inspect import iscoroutinefunction
from time import time_ns
from types import TracebackType
from typing import Any, TypeVar, cast

from gpu_track._marks import files, mark_file
from gpu_track.analysis import CodeBlockResults, SubTrackingAnalyzer, SubTrackingResults
from gpu_track.comparison import ComparisonResults, TrackingComparison

__all__ = [
    "CodeBlockResults",
    "ComparisonResults",
    "SubTracker",
    "SubTrackingAnalyzer",
    "SubTrackingResults",
    "TrackingComparison",
    "sub_track",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Self = TypeVar("_Self", bound="SubTracker")


class _Entry:
    """An object that was entered. It has no constructor, which would take as long as the rest."""

    __slots__ = ("around", "start_ns", "tracker")

    # None: it was left.
    tracker: SubTracker | None
    start_ns: int
    # What this thread or task had entered before.
    around: _Entry | None


# What this thread or task has entered last. It can have been left by another one.
_innermost: ContextVar[_Entry | None] = ContextVar("_innermost", default=None)

# This process. Asking the kernel each time would take as long as the rest of a block.
_pid = os.getpid()
# Names of code files, as they are shown. A program that changes its directory keeps the names of its blocks.
_shown: dict[str, str] = {}


def _note_fork() -> None:
    global _pid  # noqa: PLW0603
    _pid = os.getpid()
    # What the parent has entered, the parent marks.
    _innermost.set(None)


os.register_at_fork(after_in_child=_note_fork)


def _relative(path: str) -> str:
    try:
        return os.path.relpath(path)
    except FileNotFoundError:
        # The working directory was removed.
        return path


class SubTracker:
    """Marks a code block: from the start of a `with` to its end.

    `code_block_name` is the block's name. Without it, that is the path of the code and `code_block_attribute`, which is
    the line if it is not given. Marks go to `sub_tracking_file` (.csv or .sqlite), else to `<process id>.csv`. A file
    that exists raises FileExistsError when the first block is entered, unless `overwrite`.

    An object can be entered again before it is left, by any thread or task. Each leaves what it has entered last. A
    copy, also in another process, has the name and the file, and is not entered. A mark that can't be written is a
    warning.
    """

    # Of most objects.
    _has_own_file = False
    _overwrite = False

    def __init__(
        self,
        code_block_name: str | None = None,
        code_block_attribute: str | None = None,
        sub_tracking_file: str | None = None,
        overwrite: bool = False,
    ) -> None:
        if code_block_name is None:
            caller = sys._getframe(1)
            code = caller.f_code.co_filename
            shown = _shown.get(code) or _shown.setdefault(code, _relative(code))
            line = caller.f_lineno if code_block_attribute is None else code_block_attribute
            code_block_name = f"{shown}:{line}"
        self.code_block_name = name = str(code_block_name)
        if sub_tracking_file is None:
            self._has_own_file = True
            sub_tracking_file = f"{_pid}.csv"
        self.sub_tracking_file = path = sub_tracking_file
        if overwrite:
            self._overwrite = True
        # As `_begin`, without its calls where file and block are known.
        self._entries: dict[_Entry, None] = {}
        self.process_id = _pid
        self._file = file = files.get(path) or mark_file(path)
        self._form = file.forms.get(name) or file.form(name)

    def __getstate__(self) -> dict[str, Any]:
        own = ("_entries", "_file", "_form")
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def _begin(self) -> None:
        """Makes it an object of this process, which has not entered it."""
        # In the order in which they were made.
        self._entries = {}
        self.process_id = _pid
        if self._has_own_file:
            self.sub_tracking_file = f"{_pid}.csv"
        self._file = mark_file(self.sub_tracking_file)
        self._form = self._file.form(self.code_block_name)

    def _entry_to_leave(self) -> _Entry:
        """What is left where that is not the innermost one. Raises KeyError if there is none.

        If this thread or task has not entered the object, it leaves what another has, as an asynchronous generator can.
        """
        later, entry = None, _innermost.get()
        while entry is not None and entry.tracker is not self:
            later, entry = entry, entry.around
        if entry is None:
            return self._entries.popitem()[0]
        self._entries.pop(entry, None)
        if later is not None:
            later.around = entry.around
        return entry

    def __enter__(self: _Self) -> _Self:
        if self.process_id != _pid:
            self._begin()
        if not self._file.is_open:
            self._file.open(self._overwrite)
        around = _innermost.get()
        while around is not None and around.tracker is None:
            around = around.around
        entry = _Entry()
        entry.tracker = self
        entry.around = around
        self._entries[entry] = None
        _innermost.set(entry)
        entry.start_ns = time_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stop_ns = time_ns()
        if self.process_id == _pid and self._entries:
            entry = _innermost.get()
            if entry is not None and entry.tracker is self:
                _innermost.set(entry.around)
                self._entries.pop(entry, None)
            else:
                entry = self._entry_to_leave()
            entry.tracker = None
            self._file.add(self._form, entry.start_ns, stop_ns)


def sub_track(
    code_block_name: str | None = None,
    code_block_attribute: str | None = None,
    sub_tracking_file: str | None = None,
    overwrite: bool = False,
) -> Callable[[_Function], _Function]:
    """Marks each call of a function. Without a name, that is the path of the code and the function's name.

    A call of a coroutine function lasts until the coroutine is over. Other arguments are those of `SubTracker`.
    """
    code = sys._getframe(1).f_code.co_filename

    def decorate(function: _Function) -> _Function:
        attribute = getattr(function, "__name__", "") if code_block_attribute is None else code_block_attribute
        name = f"{os.path.abspath(code)}:{attribute}" if code_block_name is None else code_block_name

        @functools.wraps(function)
        def call(*arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401
            with SubTracker(name, None, sub_tracking_file, overwrite):
                return function(*arguments, **keywords)

        @functools.wraps(function)
        async def call_coroutine(*arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401
            with SubTracker(name, None, sub_tracking_file, overwrite):
                return await function(*arguments, **keywords)

        return cast("_Function", call_coroutine if iscoroutinefunction(function) else call)

    return decorate
