"""Runs a program of gpu_tracker's users with this module: `python -m gpu_track.drop_in SCRIPT [ARG]...`.

`import gpu_tracker` gives `gpu_track` there, also in processes that multiprocessing starts. `-m MODULE` can take the
place of SCRIPT.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence

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
        runpy.run_module(given[0], run_name="__main__", alter_sys=True)
    else:
        # The script's directory is where its own modules are, unless `python -P` was asked for.
        first = [] if getattr(sys.flags, "safe_path", False) else [os.path.dirname(os.path.realpath(given[0]))]
        sys.path[: len(first)] = [*first, place]
        runpy.run_path(given[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
