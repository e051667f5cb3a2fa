"""Pools of worker processes by each of Python's three start methods. Every worker computes and holds 40 MB."""

import multiprocessing
import time


def work(_: int) -> int:
    """Holds 40 MB and computes for 0.1 s; gives the size."""
    data = bytearray(40_000_000)
    end = time.thread_time() + 0.1
    while time.thread_time() < end:
        pass
    return len(data)


if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(3) as pool:
            assert pool.map(work, range(6), chunksize=1) == [40_000_000] * 6
            pool.close()
            pool.join()
