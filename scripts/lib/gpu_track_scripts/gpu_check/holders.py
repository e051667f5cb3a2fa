"""The parts `hold` and `hold_all`: processes that hold a known amount of GPU memory."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import pathlib
import shutil
import subprocess
import sys
import time
from typing import Any

from gpu_track_scripts.gpu_check.driver import cuda_context, must
from gpu_track_scripts.gpu_check.nvml import Nvml
from gpu_track_scripts.gpu_check.parts import MIB, PART_AT_MOST_S, part_command

# Long enough for several samples.
HELD_S = 2

# The same as `hold`, by CUDA's runtime. Arguments: bytes, kind, seconds at most.
CUDA_C = r"""
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#define MUST(call) do { cudaError_t code = (call); \
    if (code) { fprintf(stderr, "%s returned %d\n", #call, code); return 1; } } while (0)
int main(int argc, char **argv) {
    size_t before, after, total;
    void *place;
    if (argc < 4) return 2;
    alarm(atoi(argv[3]));
    MUST(cudaMemGetInfo(&before, &total));
    MUST(cudaMalloc(&place, strtoull(argv[1], NULL, 10)));
    MUST(cudaMemGetInfo(&after, &total));
    printf("held %lld\n", (long long)before - (long long)after);
    fflush(stdout);
    while (getchar() != EOF) {}
    return 0;
}
"""


@dataclasses.dataclass(frozen=True)
class Planned:
    """A process that is to hold memory."""

    size_bytes: int
    # context (nothing but a context), plain, pool, torch, cupy, or "CUDA C".
    kind: str
    # A program to start instead of this one.
    program: str | None = None


@dataclasses.dataclass(frozen=True)
class Held:
    """What is known of a process that held memory."""

    pid: int
    # By how much the device's free memory fell; None if the process failed.
    fallen_bytes: int | None
    # What nvidia-smi says; None if it does not list the process.
    driver_bytes: int | None
    # Whether NVML lists the process by this pid.
    is_listed: bool


def to_json(items: list[Planned] | list[Held]) -> str:
    """For another process."""
    return json.dumps([dataclasses.astuple(item) for item in items])


def plan_from_json(text: str) -> list[Planned]:
    """The reverse of `to_json`."""
    return [Planned(*fields) for fields in json.loads(text)]


def held_from_json(text: str) -> list[Held]:
    """The reverse of `to_json`."""
    return [Held(*fields) for fields in json.loads(text)]


def hold_by_driver(size_bytes: int, kind: str) -> tuple[int, Any]:
    """Allocates by the driver's API; gives by how much free memory fell, and what keeps the allocation."""
    cuda, context = cuda_context()
    place = ctypes.c_ulonglong()

    def free_bytes() -> int:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        must(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), "cuMemGetInfo")
        return free.value

    before = free_bytes()
    if kind == "pool":
        must(cuda.cuMemAllocAsync(ctypes.byref(place), ctypes.c_size_t(size_bytes), None), "cuMemAllocAsync")
        must(cuda.cuStreamSynchronize(None), "cuStreamSynchronize")
    elif kind == "plain":
        must(cuda.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(size_bytes)), "cuMemAlloc")
    return before - free_bytes(), context


def hold_by_torch(size_bytes: int) -> tuple[int, Any]:
    """The same by PyTorch."""
    import torch  # noqa: PLC0415 - only where it is asked for

    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    held = torch.empty(size_bytes, dtype=torch.uint8, device="cuda:0")
    torch.cuda.synchronize()
    return before - torch.cuda.mem_get_info()[0], held


def hold_by_cupy(size_bytes: int) -> tuple[int, Any]:
    """The same by CuPy."""
    import cupy  # noqa: PLC0415 - only where it is asked for

    cupy.cuda.runtime.free(0)
    before = cupy.cuda.runtime.memGetInfo()[0]
    held = cupy.zeros(size_bytes, dtype=cupy.uint8)
    cupy.cuda.runtime.deviceSynchronize()
    return before - cupy.cuda.runtime.memGetInfo()[0], held


def hold(size_bytes: str, kind: str) -> None:
    """Holds memory on CUDA's first device until the standard input ends."""
    if kind == "torch":
        fallen_bytes, held = hold_by_torch(int(size_bytes))
    elif kind == "cupy":
        fallen_bytes, held = hold_by_cupy(int(size_bytes))
    else:
        fallen_bytes, held = hold_by_driver(int(size_bytes), kind)
    print("held", fallen_bytes, flush=True)
    sys.stdin.read()
    del held


def fallen_from_line(line: str) -> int | None:
    """What a holder printed; None if it failed before."""
    words = line.split()
    return int(words[1]) if len(words) == 2 and words[0] == "held" else None


def hold_all(plan: str, path: str) -> None:
    """Starts the holders as children one after another, asks the driver, writes down the answers, and ends them."""
    holders, fallen = [], []
    for planned in plan_from_json(plan):
        front = [planned.program] if planned.program else part_command("hold")
        command = [*front, str(planned.size_bytes), planned.kind, str(PART_AT_MOST_S)]
        holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        holders.append(holder)
        fallen.append(fallen_from_line(holder.stdout.readline() if holder.stdout else ""))
    time.sleep(HELD_S)
    by_driver = driver_bytes({holder.pid for holder in holders})
    listed = Nvml().listed_pids()
    held = [
        Held(holder.pid, fall, by_driver.get(holder.pid), holder.pid in listed) for holder, fall in zip(holders, fallen)
    ]
    pathlib.Path(path).write_text(to_json(held), encoding="utf-8")
    for holder in holders:
        if holder.stdin:
            holder.stdin.close()
    for holder in holders:
        holder.wait()


def driver_bytes(pids: set[int]) -> dict[int, int]:
    """What nvidia-smi says that these processes use; empty where it is not installed."""
    smi = shutil.which("nvidia-smi")
    if not smi:
        return {}
    query = [smi, "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    done = subprocess.run(query, capture_output=True, text=True, check=False, timeout=PART_AT_MOST_S)
    return {pid: size for pid, size in parse_compute_apps(done.stdout).items() if pid in pids}


def parse_compute_apps(text: str) -> dict[int, int]:
    """nvidia-smi's list of processes: a line has pid and MiB. A process whose memory is not known is left out."""
    rows = [[word.strip() for word in line.split(",")] for line in text.splitlines()]
    numbers = [row for row in rows if len(row) == 2 and row[0].isdigit() and row[1].isdigit()]
    return {int(pid): int(mib) * MIB for pid, mib in numbers}


def compile_cuda_c(directory: pathlib.Path) -> tuple[str | None, str]:
    """The program of CUDA_C, or why it can't be built."""
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if not nvcc:
        return None, "no nvcc"
    source, program = directory / "holder.cu", directory / "holder"
    source.write_text(CUDA_C, encoding="utf-8")
    built = subprocess.run([nvcc, "-o", program, source], capture_output=True, text=True, check=False)
    if built.returncode:
        return None, f"nvcc can't build it ({built.stderr.strip().splitlines()[-1:]})"
    return str(program), ""
