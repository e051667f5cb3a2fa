"""Bundles of evidence while the program goes on: on request, and at an out-of-memory error.

`gpu-track record` makes them from outside. What keeps it from that costs the bundle and one warning, never the program.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import math
import os
import re
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Any, Callable, TypeVar, cast

from gpu_track import _torch
from gpu_track._program import ask
from gpu_track.tracker import session_of_newest

LOG = logging.getLogger("gpu_track")

_Function = TypeVar("_Function", bound=Callable[..., Any])
# The segments of the runs that this process is in, the innermost last.
_SESSIONS = "GPU_TRACK_SESSION"
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
    given = None if metadata is None else _json(metadata)
    try:
        return _ask(segment, context, given)
    except Exception as problem:
        LOG.warning("No bundle was made: %s", problem)
        return None


class capture_oom(contextlib.ContextDecorator):  # noqa: N801 (as `contextlib.suppress`)
    """Makes a bundle if the block or function runs out of memory, and lets the exception pass.

    That is MemoryError, with CuPy's, PyTorch's of a GPU, and errors of JAX and cuBLAS by their text. The bundle has the
    exception's text, and what PyTorch's allocator tells of each GPU, beside `context` and `metadata` as of `record()`.
    One object can be used again, nested and in threads. Of nested ones the innermost makes the bundle.
    """

    def __init__(self, context: str | None = None, metadata: object = None) -> None:
        _check(context)
        self._context = context
        self._metadata = metadata

    def __call__(self, function: _Function) -> _Function:
        """As a decorator, of a coroutine function, too."""
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
        if error is None or not is_out_of_memory(error) or hasattr(error, _MARK):
            return
        with contextlib.suppress(AttributeError, TypeError):
            setattr(error, _MARK, True)
        try:
            record(self._context, _evidence(error, self._metadata))
        except Exception as problem:
            LOG.warning("No bundle was made of an out-of-memory error: %s", problem)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this says that memory, or that of a GPU, was exhausted."""
    if isinstance(error, MemoryError) or _is_torchs(error):
        return True
    if isinstance(error, RuntimeError) and _TEXTS.search(str(error)):
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
    sessions = os.environ.get(_SESSIONS) or session_of_newest()
    if not sessions:
        return None
    return next((path for path in reversed(sessions.split(":")) if path and os.path.exists(path)), None)


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
    """JSON of a value. Raises TypeError if it has something that JSON can't have."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False)


def _finite(value: object) -> object:
    """The value with NaN and infinity as texts."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, (list, tuple)) else value


def _evidence(error: BaseException, metadata: object) -> dict[str, object]:
    """What a bundle has of an exception: as much as there is room for."""
    name = f"{type(error).__module__}.{type(error).__qualname__}"
    found: dict[str, object] = {
        "exception": {"type": name, "text": str(error)[:_MOST_TEXT]},
        "metadata": metadata,
        "torch": _torch_memory(),
    }
    for device in cast("list[dict[str, object]]", found["torch"] or []):
        if len(_json(found)) <= _MOST_BYTES:
            break
        device["memory_summary"] = None
    if len(_json(found)) > _MOST_BYTES:
        found["torch"] = None
    return found


def _torch_memory() -> list[dict[str, object]] | None:
    """What PyTorch's allocator tells of each GPU. None: the program uses none by PyTorch, or it can't be asked."""
    with contextlib.suppress(Exception):
        cuda = _torch.cuda()
        if cuda is not None:
            return [
                {
                    "device": device,
                    "memory_stats": dict(cuda.memory_stats(device)),
                    "memory_summary": str(cuda.memory_summary(device))[:_MOST_TEXT],
                }
                for device in range(cuda.device_count())
            ]
    return None
