"""A program of known work below a Tracker, with marked blocks. It prints what it knows by other means, as JSON.

python3 -m gpu_track_tests.known_program TRACKING_FILE SUB_TRACKING_FILE
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from typing import Any

import gpu_track as gput

CPU_S = 0.2
MEMORY_BYTES = 200_000_000
CHILD_S = 0.05
# Seconds that each block took, by its name: without its marks, and with them.
took: dict[str, tuple[float, float]] = {}


class Block:
    """A marked block whose time is also taken by another clock."""

    def __init__(self, name: str, file: str) -> None:
        self.name = name
        self.mark = gput.SubTracker(name, sub_tracking_file=file)

    def __enter__(self) -> None:
        self.before = time.perf_counter()
        self.mark.__enter__()
        self.start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        inner = time.perf_counter() - self.start
        self.mark.__exit__(None, None, None)
        took[self.name] = inner, time.perf_counter() - self.before


def spin(seconds: float) -> None:
    """Uses CPU time."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def main(tracking_file: str, file: str) -> dict[str, Any]:
    """Does the work."""

    @gput.sub_track("recursive", sub_tracking_file=file)
    def recurse(depth: int) -> None:
        if depth > 1:
            recurse(depth - 1)

    @gput.sub_track("coroutine", sub_tracking_file=file)
    async def wait() -> None:
        await asyncio.sleep(0.01)

    async def wait_for_all() -> None:
        await asyncio.gather(*(wait() for _ in range(5)))

    def threaded() -> None:
        with gput.SubTracker("thread", sub_tracking_file=file):
            time.sleep(0.01)

    with gput.Tracker(0.1, "bytes", time_unit="seconds", tracking_file=tracking_file) as tracker:
        begin_s = time.perf_counter()
        cpu_s = time.process_time()
        with Block("outer", file):
            with Block("cpu", file):
                spin(CPU_S)
            with Block("memory", file):
                held = bytearray(MEMORY_BYTES)
                time.sleep(0.3)
            del held
        with Block("child", file):
            child = subprocess.run(["sleep", str(CHILD_S)], check=True)
        recurse(4)
        threads = [threading.Thread(target=threaded) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        asyncio.run(wait_for_all())
        workers = []
        for _ in range(3):
            pid = os.fork()
            if not pid:
                for _ in range(10):
                    with gput.SubTracker("worker", sub_tracking_file=file):
                        pass
                os._exit(0)
            workers.append(pid)
        for pid in workers:
            os.waitpid(pid, 0)
        cpu_s = time.process_time() - cpu_s
        wall_s = time.perf_counter() - begin_s
    return {
        "pid": os.getpid(),
        "usage": tracker.to_json(),
        "report": tracker.reports[0],
        "took": took,
        "cpu_s": cpu_s,
        "wall_s": wall_s,
        "child": child.returncode,
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
