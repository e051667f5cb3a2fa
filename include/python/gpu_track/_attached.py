"""A gpu-track-run that is attached to a process and runs beside this program.

It is no child of the program, whose `os.wait()` would else wait for it: a shell starts it and ends at once. It has a
session of its own, so Ctrl-C at the terminal does not reach it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

from gpu_track._environment import PROCESS
from gpu_track._program import find, without_name

# Starts the rest of its arguments in the background, with stderr in the file that the first one names.
_SCRIPT = 'errors=$1; shift; "$@" >/dev/null 2>"$errors" & echo $!'
# Longest time from the start to the first sample. A GPU driver that was not in use can take seconds.
_READY_WITHIN_S = 60.0
# Longest time that one which refuses takes to say why.
_END_WITHIN_S = 10.0
_POLL_S = 0.002


class NotTracked(RuntimeError):
    """Tracking could not begin. The message says why."""


class Attached:
    """A gpu-track-run that tracks a process. `environment` is what makes programs report to it."""

    def __init__(self, arguments: Sequence[str], errors: str) -> None:
        """Starts it with these arguments, and waits until it tracks. `errors`: a file for what it writes to stderr.

        Raises NotTracked if it refuses, FileNotFoundError if it is not installed.
        """
        ready, ready_end = _pipe()
        try:
            try:
                command = [find("gpu-track-run"), *arguments, "--ready-fd", str(ready_end)]
                self._pid, self._start = _start(command, errors, ready_end)
            finally:
                os.close(ready_end)
            try:
                line = _line(ready)
                self.environment: Mapping[str, str] = json.loads(line)["environment"] if line else {}
            except BaseException:
                # Ctrl-C, for example.
                self.ask_to_end()
                raise
        finally:
            os.close(ready)
        if line is None:
            # Its message can come after it has closed the pipe.
            self.wait(_END_WITHIN_S)
            self.kill()
            raise NotTracked(" ".join(messages(errors)) or "gpu-track-run did not begin to track")

    def is_running(self) -> bool:
        """Whether it has not ended."""
        return _start_of(self._pid) == self._start is not None

    def ask_to_end(self) -> None:
        """Ends tracking: it writes its report."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it without a report."""
        self._signal(signal.SIGKILL)

    def wait(self, timeout_s: float) -> bool:
        """Waits for its end. Gives whether it has ended."""
        deadline = time.monotonic() + timeout_s
        while self.is_running():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        # Where this process adopts orphans, as the first one of a container does, it is a child after all.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, os.WNOHANG)
        return True

    def _signal(self, number: signal.Signals) -> None:
        if self.is_running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)


def _pipe() -> tuple[int, int]:
    """A pipe whose end for writing has no number of a standard stream, also where the program has closed those."""
    for_reading, low = os.pipe()
    try:
        return for_reading, fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(low)


def _start(command: Sequence[str], errors: str, ready_end: int) -> tuple[int, str | None]:
    """Starts a program that is no child. Gives its pid and when it started."""
    done = subprocess.run(
        ["/bin/sh", "-c", _SCRIPT, "sh", errors, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=(ready_end,),
        # An outer tracker of this process is not to count it.
        env={**PROCESS.without(), "GPU_TRACK_NODES": "off"},
        check=False,
    )
    if not done.stdout.strip().isdigit():
        raise NotTracked(f"/bin/sh could not start gpu-track-run: status {done.returncode}")
    pid = int(done.stdout)
    return pid, _start_of(pid)


def _line(descriptor: int) -> bytes | None:
    """Reads a line. None: there is none, since the writer has ended, or it takes too long."""
    deadline = time.monotonic() + _READY_WITHIN_S
    found = b""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while not found.endswith(b"\n"):
        if not poll.poll(max(deadline - time.monotonic(), 0.0) * 1000):
            return None
        read = os.read(descriptor, 65536)
        if not read:
            return None
        found += read
    return found


def _start_of(pid: int) -> str | None:
    """What tells a process from a later one of its pid. None: it has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state, *fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in "ZX" else fields[18]


def has_ended(pid: int) -> bool:
    """Whether there is no process of this pid, or it only waits to be reaped."""
    return _start_of(pid) is None


def messages(path: str) -> list[str]:
    """The lines that it wrote to stderr, without its name."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    return [without_name(line) for line in lines]
