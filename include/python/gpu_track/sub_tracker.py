"""Marks code blocks, as gpu_tracker 5.0.1's `SubTracker` and `sub_track` do, and analyses what they used."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Any, TypeVar, cast

from gpu_track._marks import mark_file
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

# This process. Asking the kernel each time would take as long as the rest of a block.
_pid = os.getpid()
# Names of code files, as they are shown. A program that changes its directory keeps the names of its blocks.
_shown: dict[str, str] = {}


def _note_fork() -> None:
    global _pid  # noqa: PLW0603
    _pid = os.getpid()


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

    An object can be entered again before it is left, by any thread or task. A mark that can't be written is a warning.
    """

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
        self.code_block_name = code_block_name
        self._has_own_file = sub_tracking_file is None
        self.sub_tracking_file = f"{_pid}.csv" if sub_tracking_file is None else sub_tracking_file
        self.process_id = _pid
        self._starts_s: list[float] = []
        self._overwrite = overwrite
        self._file = mark_file(self.sub_tracking_file)
        self._form = self._file.form(_pid, code_block_name)

    def _begin_in_child(self) -> None:
        """Makes an object of the parent one of this forked child. What the parent has entered, the parent marks."""
        self._starts_s = []
        self.process_id = _pid
        if self._has_own_file:
            self.sub_tracking_file = f"{_pid}.csv"
            self._file = mark_file(self.sub_tracking_file)
        self._form = self._file.form(_pid, self.code_block_name)

    def __enter__(self: _Self) -> _Self:
        if self.process_id != _pid:
            self._begin_in_child()
        if not self._file.is_open:
            self._file.open(self._overwrite)
        self._starts_s.append(time.time())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stop_s = time.time()
        if self.process_id == _pid and self._starts_s:
            self._file.add(self._form, self._starts_s.pop(), stop_s)


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
