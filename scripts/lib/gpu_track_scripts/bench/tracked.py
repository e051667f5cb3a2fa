"""Looks at a tracked run from outside while it goes on."""

from __future__ import annotations

import dataclasses
import mmap
import pathlib
import re
import struct
import subprocess
import time
from collections.abc import Sequence
from types import TracebackType
from typing import IO

from gpu_track_scripts.bench.workbench import Workbench
from gpu_track_scripts.commands import Word, words

# The layout of the live file, by gpu_track_abi.h: the offset of the header's count of samples, and the sample ring,
# which follows the header page. A sample's second word is its monotonic time in nanoseconds.
LIVE_SUFFIX = ".live"
SAMPLES_AT = 64
RING_AT = 4096
SAMPLE_BYTES = 64
SAMPLE_CAPACITY = 1024
SAMPLE_TIME_AT = 8

# A collector appears within milliseconds; this also covers a busy machine.
COLLECTOR_APPEARS_S = 10


@dataclasses.dataclass(frozen=True)
class Resident:
    """Resident memory of processes together."""

    rss_bytes: int
    pss_bytes: int
    private_bytes: int
    dirty_bytes: int


def parse_smaps_rollup(text: str) -> Resident:
    """Reads /proc/PID/smaps_rollup, whose figures are in KiB."""

    def bytes_of(field: str) -> int:
        found = re.search(rf"^{field}:\s+(\d+) kB", text, re.MULTILINE)
        if found is None:
            raise ValueError(f"smaps_rollup has no {field}")
        return int(found[1]) * 1024

    dirty = bytes_of("Private_Dirty")
    return Resident(bytes_of("Rss"), bytes_of("Pss"), bytes_of("Private_Clean") + dirty, dirty)


def resident_of(*pids: int) -> Resident:
    """The sum over processes."""
    parts = [parse_smaps_rollup(pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")) for pid in pids]
    return Resident(
        sum(part.rss_bytes for part in parts),
        sum(part.pss_bytes for part in parts),
        sum(part.private_bytes for part in parts),
        sum(part.dirty_bytes for part in parts),
    )


def cpu_clock_ns(pid: int) -> int:
    """CPU time of a process by its CPU clock, whose id is made of the pid (clock_getcpuclockid)."""
    return time.clock_gettime_ns(~pid << 3 | 2)


def segment_of(cmdline: bytes) -> str | None:
    """The segment that a collector was started with; None if it is another program's command line."""
    program, *arguments = cmdline.split(b"\0")
    if program != b"gpu-track-collector":
        return None
    return next((word.decode() for word in arguments if b"/gpu-track." in word), None)


def children(pid: int) -> list[int]:
    """The children of a process with a single thread; none if it has ended."""
    try:
        text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(child) for child in text.split()]


def samples_taken(live: bytes | mmap.mmap) -> int:
    """How many samples the collector has written since the start of the run."""
    return int(struct.unpack_from("<Q", live, SAMPLES_AT)[0])


def sample_time_ns(live: bytes | mmap.mmap, number: int) -> int:
    """When a sample was taken that is still in the ring."""
    at = RING_AT + number % SAMPLE_CAPACITY * SAMPLE_BYTES
    return int(struct.unpack_from("<Q", live, at + SAMPLE_TIME_AT)[0])


class TrackedRun:
    """A run of gpu-track-run, its collector and its segment. Leaving the context waits for its end."""

    def __init__(self, bench: Workbench, command: Sequence[Word], *options: Word) -> None:
        line = words([*bench.track(*options), *command])
        self.launcher = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.collector, self.segment = self._find_collector()

    def _find_collector(self) -> tuple[int, str]:
        give_up = time.monotonic() + COLLECTOR_APPEARS_S
        while time.monotonic() < give_up:
            for pid in children(self.launcher.pid):
                segment = segment_of(pathlib.Path(f"/proc/{pid}/cmdline").read_bytes())
                if segment is not None:
                    return pid, segment
        self._close()
        raise RuntimeError(f"gpu-track-run started no collector within {COLLECTOR_APPEARS_S} s")

    def __enter__(self) -> TrackedRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        if self.launcher.stdin is not None:
            self.launcher.stdin.close()
        self.launcher.wait()

    @property
    def stdout(self) -> IO[str]:
        """What the command writes."""
        if self.launcher.stdout is None:
            raise RuntimeError("the standard output is no pipe")
        return self.launcher.stdout

    def collector_cpu_ns(self) -> int:
        """CPU time of the collector."""
        return cpu_clock_ns(self.collector)

    def launcher_cpu_ns(self) -> int:
        """CPU time of the launcher."""
        return cpu_clock_ns(self.launcher.pid)

    def samples(self) -> int:
        """How many samples the collector has taken."""
        with open(self.live, "rb") as file:
            return samples_taken(file.read(SAMPLES_AT + 8))

    @property
    def live(self) -> str:
        """The live file, which the collector makes soon after its start."""
        path = self.segment + LIVE_SUFFIX
        give_up = time.monotonic() + COLLECTOR_APPEARS_S
        while not pathlib.Path(path).exists() and time.monotonic() < give_up:
            time.sleep(0.001)
        return path

    def resident(self) -> Resident:
        """Memory of collector and launcher."""
        return resident_of(self.collector, self.launcher.pid)

    def resident_launcher(self) -> Resident:
        """Memory of the launcher."""
        return resident_of(self.launcher.pid)

    def command_pids(self) -> list[int]:
        """The launcher's children other than the collector: the command's first process."""
        return [pid for pid in children(self.launcher.pid) if pid != self.collector]
