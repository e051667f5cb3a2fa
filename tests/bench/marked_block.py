#!/usr/bin/env python3
"""What a marked block costs: `marked_block.py gpu_track`, or gpu_tracker, in a Python that has the module.

Prints microseconds: the best mean of 15 rounds, for an empty block with a new `SubTracker`, with one that is used
again, and for an empty function with `sub_track`.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

ROUNDS = 15
CALLS = 2000


def best_us(call: Callable[[], object]) -> float:
    """The best mean of a call, microseconds."""
    means = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        means.append((time.perf_counter() - start) / CALLS)
    return min(means) * 1e6


def main() -> None:
    """Measures in a directory of its own."""
    module: Any = importlib.import_module(sys.argv[1])
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        again = module.SubTracker("again", sub_tracking_file="marks.csv")

        def new_object() -> None:
            with module.SubTracker("new", sub_tracking_file="marks.csv"):
                pass

        def same_object() -> None:
            with again:
                pass

        def nothing() -> None:
            pass

        decorated = module.sub_track("call", sub_tracking_file="marks.csv")(nothing)
        for name, call in (("new", new_object), ("same", same_object), ("decorator", decorated)):
            print(f"{name} {best_us(call):.2f} us")
        os.chdir("/")


if __name__ == "__main__":
    main()
