"""Worker processes of joblib (loky) and of the standard library's process pool."""

import concurrent.futures
import subprocess
import time

import joblib


def work(n: int) -> int:
    """Computes for 0.1 s, and runs a program that prints the numbers up to n; gives the length of its output."""
    end = time.thread_time() + 0.1
    while time.thread_time() < end:
        pass
    return len(subprocess.run(["seq", str(n)], capture_output=True, check=True).stdout)


if __name__ == "__main__":
    expected = [work(n) for n in range(8)]
    assert joblib.Parallel(n_jobs=3)(joblib.delayed(work)(n) for n in range(8)) == expected
    with concurrent.futures.ProcessPoolExecutor(3) as pool:
        assert list(pool.map(work, range(8))) == expected
