"""What is beside a run: other programs, a CPU quota, a slow file system."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import shutil
import subprocess
import time
from collections.abc import Iterator

from gpu_track_scripts.commands import compile_c, output
from gpu_track_scripts.paths import ROOT
from gpu_track_scripts.tools import Unavailable

QUOTA_PERIOD_US = 100_000
QUOTA_US = 30_000
READ_MS = 30
# How long the processes of a control group may take to end.
EMPTY_S = 10.0


@dataclasses.dataclass(frozen=True)
class Workplace:
    """What a run finds."""

    # tests/programs/phases.c, built.
    program: pathlib.Path
    directory: pathlib.Path

    def slow_directory(self) -> pathlib.Path:
        """Where slow_system() mounts; `slow` is its file."""
        return self.directory / "slow_file_system"


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))


@contextlib.contextmanager
def two_cores(_: Workplace) -> Iterator[list[str]]:
    """Fails where there is only one core."""
    if cores() < 2:
        raise Unavailable("there is one core")
    yield []


@contextlib.contextmanager
def busy_strangers(place: Workplace) -> Iterator[list[str]]:
    """A busy loop on each core.

    Each has a session of its own, as the tracked run: the kernel may share cores by session (sched_autogroup).
    """
    command = [str(place.program), "--truth", "/dev/null", "compute:100000"]
    with contextlib.ExitStack() as stack:
        for core in os.sched_getaffinity(0):
            busy = stack.enter_context(subprocess.Popen(command, start_new_session=True))
            stack.callback(busy.kill)
            os.sched_setaffinity(busy.pid, {core})
        yield []


def mounts(mountinfo: str) -> Iterator[tuple[pathlib.Path, str, list[str]]]:
    """Directory, type, and options of each file system in /proc/self/mountinfo."""
    for line in mountinfo.splitlines():
        fields, _, of_system = line.partition(" - ")
        kind, _, options = of_system.split(" ", 2)
        yield pathlib.Path(fields.split()[4]), kind, options.split(",")


def own_groups(cgroup: str) -> dict[str, str]:
    """The paths of /proc/self/cgroup by controller; version 2 has the empty name."""
    groups = {}
    for line in cgroup.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            groups[controller] = path
    return groups


def places_for_quota(mountinfo: str, cgroup: str) -> list[tuple[pathlib.Path, dict[str, str]]]:
    """Control groups below which a quota may be possible, and what is to be written to which of its files."""
    own = own_groups(cgroup)
    v2 = {"cpu.max": f"{QUOTA_US} {QUOTA_PERIOD_US}"}
    v1 = {"cpu.cfs_period_us": str(QUOTA_PERIOD_US), "cpu.cfs_quota_us": str(QUOTA_US)}
    places = []
    for directory, kind, options in mounts(mountinfo):
        if kind == "cgroup2":
            places += [(directory / own.get("", "/").strip("/"), v2), (directory, v2)]
        elif kind == "cgroup" and "cpu" in options:
            places += [(directory / own.get("cpu", "/").strip("/"), v1), (directory, v1)]
    return places


def remove_when_empty(group: pathlib.Path) -> None:
    """Removes a control group. A process leaves it a moment after its end."""
    end_s = time.monotonic() + EMPTY_S
    while True:
        try:
            group.rmdir()
            return
        except OSError:
            if time.monotonic() > end_s:
                raise
        time.sleep(0.05)


@contextlib.contextmanager
def quota(_: Workplace) -> Iterator[list[str]]:
    """A control group that gets 30 % of a core."""
    mountinfo = pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    cgroup = pathlib.Path("/proc/self/cgroup").read_text(encoding="utf-8")
    reasons = []
    for parent, files in places_for_quota(mountinfo, cgroup):
        group = parent / f"gpu-track-time-spent.{os.getpid()}"
        try:
            group.mkdir()
        except OSError as error:
            reasons.append(f"{parent}: {error.strerror}")
            continue
        try:
            try:
                for file, text in files.items():
                    # Control groups allow no file to be made, so one that is missing is an error.
                    (group / file).write_text(text, encoding="ascii")
            except OSError as error:
                reasons.append(f"{group / file}: {error.strerror}")
                continue
            yield ["sh", "-c", 'echo $$ >"$0" && exec "$@"', str(group / "cgroup.procs")]
            return
        finally:
            remove_when_empty(group)
    raise Unavailable("; ".join(reasons) or "no control groups for CPU time are mounted")


def fuse_options() -> list[str]:
    """How to compile with libfuse."""
    if shutil.which("pkg-config") is None:
        raise Unavailable("pkg-config is missing (package pkg-config)")
    try:
        return output(["pkg-config", "--silence-errors", "--cflags", "--libs", "fuse3"]).split()
    except subprocess.CalledProcessError:
        raise Unavailable("libfuse is missing (package libfuse3-dev)") from None


@contextlib.contextmanager
def slow_file_system(place: Workplace) -> Iterator[list[str]]:
    """A file system of which every read takes a while."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise Unavailable("/dev/fuse can't be opened")
    source = ROOT / "tests" / "programs" / "delayfs.c"
    # The libraries stand before what needs them.
    program = compile_c(place.directory / "delayfs", source, "-Wl,--no-as-needed", *fuse_options())
    directory = place.slow_directory()
    directory.mkdir()
    with subprocess.Popen([program, str(READ_MS), directory], stdout=subprocess.PIPE, text=True) as server:
        try:
            if server.stdout is None or server.stdout.readline() != "ready\n":
                raise Unavailable("the file system can't be mounted")
            yield []
        finally:
            server.terminate()
