#!/usr/bin/env python3
"""What a marked block costs: `marked_block.py gpu_track`, or gpu_tracker, in a Python that has the module.

Prints microseconds: the best mean of 150 rounds, for an empty block with a new `SubTracker`, with one that is used
again, for an empty function with `sub_track`, and for a metric. They take turns with an append of two lines, which is
what the kernel's part of a block costs at that time.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

ROUNDS = 150
CALLS = 300


def mean_us(call: Callable[[], object]) -> float:
    """The mean of a round of calls, microseconds."""
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - start) / CALLS * 1e6


def main() -> None:
    """Measures in a directory of its own."""
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        os.environ["GPU_TRACK_METRICS"] = "metrics.csv"
        module: Any = importlib.import_module(sys.argv[1])
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
        appended = os.open("appended", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        lines = b"4711,new,0,1700000000.123456789\r\n4711,new,1,1700000000.123456789\r\n"
        calls = {"append": lambda: os.write(appended, lines), "new": new_object, "same": same_object}
        calls["decorator"] = decorated
        if hasattr(module, "metric"):
            calls["metric"] = lambda: module.metric("loss", 0.3125)
        means = [[mean_us(call) for call in calls.values()] for _ in range(ROUNDS)]
        for name, of_call in zip(calls, zip(*means)):
            print(f"{name} {min(of_call):.2f} us")
        os.chdir("/")


if __name__ == "__main__":
    main()
