"""Runs a program of gpu_tracker's users with this module: `python -m gpu_track.drop_in SCRIPT [ARG]...`.

`import gpu_tracker` gives `gpu_track` there, also in processes that multiprocessing starts. `-m MODULE` can take the
place of SCRIPT.
"""

from __future__ import annotations

import os
import runpy
import sys
import types
from collections.abc import Sequence
from importlib.util import find_spec
from pkgutil import get_importer

import gpu_track
from gpu_track import sub_tracker, tracker

_USAGE = "usage: python -m gpu_track.drop_in (SCRIPT | -m MODULE) [ARG]..."


def install() -> None:
    """Makes `import gpu_tracker` give this module."""
    sys.modules["gpu_tracker"] = gpu_track
    sys.modules["gpu_tracker.tracker"] = tracker
    sys.modules["gpu_tracker.sub_tracker"] = sub_tracker


def main(arguments: Sequence[str]) -> None:
    """Runs a script or a module as `python` does."""
    is_module = arguments[:1] == ["-m"]
    given = arguments[1:] if is_module else arguments
    if not given or (given[0].startswith("-") and not is_module):
        sys.exit(_USAGE)
    install()
    sys.argv = [*given]
    # multiprocessing hands this path on to the interpreters that it starts, which find `gpu_tracker` there.
    place = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_drop_in")
    if is_module:
        sys.path.insert(1, place)
        _run_module(given[0])
    else:
        # The script's directory is where its own modules are, unless `python -P` was asked for.
        first = [] if getattr(sys.flags, "safe_path", False) else [os.path.dirname(os.path.realpath(given[0]))]
        sys.path[: len(first)] = [*first, place]
        _run_path(os.path.abspath(given[0]))


def _run_path(path: str) -> None:
    if get_importer(path) is not None or path.endswith(".pyc"):
        # A directory, an archive or compiled code.
        runpy.run_path(path, run_name="__main__")
        return
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    _run(code, {"__file__": path, "__spec__": None, "__package__": None})


def _run_module(name: str) -> None:
    spec = find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = find_spec(f"{name}.__main__")
    code = getattr(spec.loader, "get_code", lambda _: None)(spec.name) if spec is not None else None
    if spec is None or code is None:
        sys.exit(f"{sys.executable}: No module named {name}")
    sys.argv[0] = spec.origin or name
    _run(code, {"__file__": spec.origin, "__spec__": spec, "__package__": spec.parent, "__loader__": spec.loader})


def _run(code: types.CodeType, names: dict[str, object]) -> None:
    """Runs code as `__main__`, which stays that: threads can go on behind the last line. `runpy` would undo it."""
    module = types.ModuleType("__main__")
    module.__dict__.update(names)
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


if __name__ == "__main__":
    main(sys.argv[1:])
