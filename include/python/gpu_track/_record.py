"""Bundles of evidence while the program goes on: on request, and at an out-of-memory error.

`gpu-track record` makes them from outside. What keeps it from that costs the bundle and one warning, never the program.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import re
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from types import TracebackType
from typing import Any, Callable, TypeVar, cast

from gpu_track import _torch
from gpu_track._environment import newest, segment_of, session
from gpu_track._program import ask

LOG = logging.getLogger("gpu_track")

_Function = TypeVar("_Function", bound=Callable[..., Any])
# `gpu-track record` takes 64 kB.
_MOST_BYTES = 64 * 1024
_MOST_TEXT = 8 * 1024
# A directory that does not answer must not stop the program for ever.
_TIMEOUT_S = 60.0
# What other errors than MemoryError and PyTorch's say of memory: CUDA and HIP by PyTorch, XLA by JAX, cuBLAS.
_TEXTS = re.compile(
    r"(CUDA|HIP|XPU) out of memory|(CUDA|HIP) error: out of memory|RESOURCE_EXHAUSTED: Out of memory"
    r"|CUBLAS_STATUS_ALLOC_FAILED"
)
# An exception that has its bundle has this attribute.
_MARK = "_gpu_track_recorded"


class NotJson(TypeError):
    """Metadata has something that JSON can't have."""


def record(context: str | None = None, metadata: object = None) -> str | None:
    """Makes a bundle of what the run used so far, and gives its path. None: this process is in no run, or it failed.

    The run is that of gpu-track-run or the `Tracker` that this process is in, or else that of a tracker of another one.
    `context` says what the program does. `metadata` is anything that JSON can have, with NaN and infinity as texts.
    Raises TypeError for what has another type. Anything else that fails is a warning. It waits for the bundle.
    """
    _check(context)
    segment = _segment()
    if segment is None:
        return None
    try:
        return _ask(segment, context, None if metadata is None else _json(metadata))
    except NotJson:
        raise
    except Exception as problem:
        LOG.warning("No bundle was made: %s", problem)
        return None


class capture_oom(contextlib.ContextDecorator):  # noqa: N801 (as `contextlib.suppress`)
    """Makes a bundle if the block or function runs out of memory, and lets the exception pass.

    That is MemoryError, with CuPy's, PyTorch's of a GPU, and errors of JAX and cuBLAS by their text. The bundle has the
    exception's text, and what PyTorch's allocator tells of each GPU, beside `context` and `metadata` as of `record()`.
    One object can be used again, nested and in threads. Of nested ones the innermost makes the bundle.

    Metadata is that of the time of the exception. If it is too large, or can't be written by then, it is null in the
    bundle, with `metadata_reason`.
    """

    def __init__(self, context: str | None = None, metadata: object = None) -> None:
        """Raises TypeError for what has another type, and ValueError for other metadata that JSON can't have."""
        _check(context)
        _json(metadata)
        self._context = context
        self._metadata = metadata

    def __call__(self, function: _Function) -> _Function:
        """As a decorator, of a coroutine or generator function, too. Raises TypeError for one of an async generator."""
        if isasyncgenfunction(function):
            raise TypeError("capture_oom is no decorator of async generator functions: use `with` in it")
        if isgeneratorfunction(function):

            @functools.wraps(function)
            def call_generator(*arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401
                with self:
                    return (yield from function(*arguments, **keywords))

            return cast("_Function", call_generator)
        if not iscoroutinefunction(function):
            return super().__call__(function)

        @functools.wraps(function)
        async def call_coroutine(*arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401
            with self:
                return await function(*arguments, **keywords)

        return cast("_Function", call_coroutine)

    def __enter__(self) -> capture_oom:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            handle(error, self._context, self._metadata)


def handle(error: BaseException, context: str | None, metadata: object) -> str | None:
    """Makes a bundle of an exception, once, if it says that memory was exhausted. None: none was made."""
    # Classes of the program can raise anything when they are looked at. Its own exception passes all the same.
    try:
        if is_out_of_memory(error) and not hasattr(error, _MARK):
            with contextlib.suppress(Exception):
                setattr(error, _MARK, True)
            return record(context, _evidence(error, metadata))
    except Exception as problem:
        LOG.warning("No bundle was made of %s: %s", _name(error), _text(problem) or _name(problem))
    return None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this says that memory, or that of a GPU, was exhausted."""
    if isinstance(error, MemoryError) or _is_torchs(error):
        return True
    if isinstance(error, RuntimeError) and _TEXTS.search(_text(error) or ""):
        return True
    # Those of an ExceptionGroup.
    within = getattr(error, "exceptions", ())
    return isinstance(within, tuple) and any(isinstance(one, BaseException) and is_out_of_memory(one) for one in within)


def _is_torchs(error: BaseException) -> bool:
    """Whether it is torch.OutOfMemoryError, which older versions have in torch.cuda."""
    kinds = type(error).__mro__
    return any(kind.__name__ == "OutOfMemoryError" and kind.__module__.split(".")[0] == "torch" for kind in kinds)


def _segment() -> str | None:
    """The segment of the run that this process is in, or of the newest tracker. None: there is none."""
    return segment_of(session() or newest.session())


def _ask(segment: str, context: str | None, given: str | None) -> str:
    arguments = ["record", segment]
    if context is not None:
        arguments.append(f"--context={context}")
    if given is not None:
        # Not as an argument: every user of the machine can read those.
        arguments.append("--metadata=-")
    return ask(arguments, given=given, timeout_s=_TIMEOUT_S).rstrip("\n")


def _check(context: object) -> None:
    if context is not None and not isinstance(context, str):
        raise TypeError(f"context is no text: {context!r}")


def _json(value: object) -> str:
    """JSON of a value, with NaN and infinity as texts.

    Raises NotJson if it has something that JSON can't have, and ValueError if it contains itself, is nested too deeply,
    or has a number that Python does not write.
    """
    try:
        return json.dumps(json.loads(json.dumps(value), parse_constant=lambda name: str(float(name))))
    except TypeError as problem:
        raise NotJson(str(problem)) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _evidence(error: BaseException, metadata: object) -> dict[str, object]:
    """What a bundle has of an exception: the exception, then as much of the rest as there is room for."""
    text = _text(error)
    found: dict[str, object] = {
        "exception": {
            "type": _name(error),
            "text": None if text is None else _begin_of(text),
            "text_reason": "its __str__ raised an exception" if text is None else None,
        },
        "metadata": None,
        "metadata_reason": None,
        "torch": None,
    }
    try:
        found["metadata"] = json.loads(_json(metadata))
    except Exception as problem:
        found["metadata_reason"] = _begin_of(f"it can't be written as JSON: {_text(problem) or _name(problem)}")
    if not _has_room(found):
        size = len(_json(found["metadata"]))
        found["metadata"] = None
        found["metadata_reason"] = f"its {size} bytes of JSON are too many beside the exception"
    found["torch"] = devices = _torch_memory()
    for device in devices or []:
        if _has_room(found):
            break
        device["memory_summary"] = None
    if not _has_room(found):
        found["torch"] = None
    return found


def _has_room(found: object) -> bool:
    return len(_json(found)) <= _MOST_BYTES


def _name(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"


def _text(error: BaseException) -> str | None:
    """The text of an exception. None: its class can't give it."""
    try:
        return str(error)
    except Exception:
        return None


def _begin_of(text: str) -> str:
    """As much of the begin of a text as has a place in a bundle."""
    begin = text[:_MOST_TEXT]
    # JSON has up to 12 bytes for a character, and two quotes.
    while len(_json(begin)) > _MOST_TEXT + 2:
        begin = begin[: len(begin) // 2]
    return begin


def _torch_memory() -> list[dict[str, Any]] | None:
    """What PyTorch's allocator tells of each GPU. None: the program uses none by PyTorch, or it can't be asked."""
    with contextlib.suppress(Exception):
        cuda = _torch.cuda()
        if cuda is not None:
            devices: list[dict[str, Any]] = json.loads(
                _json(
                    [
                        {
                            "device": device,
                            "memory_stats": dict(cuda.memory_stats(device)),
                            "memory_summary": _begin_of(str(cuda.memory_summary(device))),
                        }
                        for device in range(cuda.device_count())
                    ]
                )
            )
            return devices
    return None
