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
from gpu_track._handle import Handle, parent_of, start_of
from gpu_track._program import find, without_name

# Starts the rest of its arguments in the background, with stderr in the file that the first one names, and in the
# sessions that the second one names: what reports to it is not to report to the trackers of this process, too. If
# nobody reads its pid, as after Ctrl-C, it is ended.
_SCRIPT = (
    'errors=$1 session=$2; shift 2; GPU_TRACK_SESSION=$session "$@" >/dev/null 2>"$errors" & trap "" PIPE; '
    "echo $! || kill $!"
)
# The name of a file with that script. By this name, the trackers of this process know the shell, and leave it and what
# it starts out of their figures: `is_helper` in collector/core/src/model/command.rs.
_SCRIPT_NAME = "gpu-track-background"
# Longest time from the start to the first sample. A GPU driver that was not in use can take seconds.
_READY_WITHIN_S = 60.0
# Longest time that one which refuses takes to say why.
_END_WITHIN_S = 10.0


class NotTracked(RuntimeError):
    """Tracking could not begin. The message says why."""


class Attached:
    """A gpu-track-run that tracks a process. `environment` is what makes programs report to it."""

    def __init__(self, arguments: Sequence[str], errors: str, variables: Mapping[str, str]) -> None:
        """Starts it with these arguments, and waits until it tracks. `errors`: a file for what it writes to stderr.

        Another file is made beside that. `variables` are added to its environment.

        Raises NotTracked if it refuses, FileNotFoundError if it is not installed.
        """
        ready, ready_end = _pipe()
        try:
            try:
                command = [find("gpu-track-run"), *arguments, "--ready-fd", str(ready_end)]
                self._pid = _start(command, errors, ready_end, variables)
                self._handle = Handle(self._pid)
            finally:
                os.close(ready_end)
            try:
                line = _line(ready)
                self.environment: Mapping[str, str] = json.loads(line)["environment"] if line else {}
            except (ValueError, LookupError, TypeError):
                self.kill()
                self.close()
                raise NotTracked(f'"{command[0]}" is no gpu-track-run: it says {line!r}') from None
            except BaseException:
                # Ctrl-C, for example.
                self.ask_to_end()
                self.close()
                raise
        finally:
            os.close(ready)
        if line is None:
            # Its message can come after it has closed the pipe.
            self.wait(_END_WITHIN_S)
            self.kill()
            self.close()
            raise NotTracked(" ".join(messages(errors)) or "gpu-track-run did not begin to track")

    def ask_to_end(self) -> None:
        """Ends tracking: it writes its report."""
        self._handle.ask_to_end()

    def kill(self) -> None:
        """Ends it without a report."""
        self._handle.kill()

    def close(self) -> None:
        """Gives back the descriptors."""
        self._handle.close()

    def wait(self, timeout_s: float) -> bool:
        """Waits for its end. Gives whether it has ended."""
        if not self._handle.wait(timeout_s):
            return False
        # Where this process adopts orphans, as the first one of a container does, it is a child after all.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, os.WNOHANG)
        return True


def _pipe() -> tuple[int, int]:
    """A pipe whose end for writing has no number of a standard stream, also where the program has closed those."""
    for_reading, low = os.pipe()
    try:
        return for_reading, fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(low)


def _start(command: Sequence[str], errors: str, ready_end: int, variables: Mapping[str, str]) -> int:
    """Starts a program that is no child. Gives its pid."""
    script = os.path.join(os.path.dirname(errors), _SCRIPT_NAME)
    with open(script, "w", encoding="utf-8") as file:
        file.write(_SCRIPT)
    shell = subprocess.Popen(
        ["/bin/sh", script, errors, PROCESS.without().get("GPU_TRACK_SESSION", ""), *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=(ready_end,),
        env={**PROCESS.of_helper(), "GPU_TRACK_NODES": "off", **variables},
    )
    with shell:
        assert shell.stdout is not None
        try:
            pid = shell.stdout.read()
        except BaseException:
            # Ctrl-C, for example.
            _end(shell.stdout.read())
            raise
    if not pid.strip().isdigit():
        raise NotTracked(f"/bin/sh could not start gpu-track-run: status {shell.returncode}")
    return int(pid)


def _end(pid: bytes) -> None:
    """Ends the process of this pid, if it is one."""
    if pid.strip().isdigit():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGTERM)


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


def has_ended(pid: int) -> bool:
    """Whether there is no process of this pid, or it only waits to be reaped."""
    return start_of(pid) is None


def is_own_or_ancestor(pid: int) -> bool:
    """Whether a process is this one, or one that this one descends from."""
    own = os.getpid()
    while own > 0 and own != pid:
        own = parent_of(own)
    return own == pid


def messages(path: str) -> list[str]:
    """The lines that it wrote to stderr, without its name."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    return [without_name(line) for line in lines]
