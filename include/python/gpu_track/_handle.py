"""A running process that is no child: how it is asked to end and waited for.

The descriptors for that are open from the start on. So it works where the program has no free descriptor any more, and
where it has become another user, which may send no signal to the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import time

from gpu_track._descriptors import high, identity

_POLL_S = 0.002


class Handle:
    """A process. `close` gives its descriptors back."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._start = start_of(pid)
        # Each with what tells its file from others: the program can close them, and open its own under their numbers.
        self._descriptors: dict[str, tuple[int, tuple[int, int] | None]] = {}
        # A kernel before 5.3 has no pidfd.
        with contextlib.suppress(OSError, AttributeError):
            self._keep("pidfd", os.pidfd_open(pid))
        with contextlib.suppress(OSError):
            self._link()

    def ask_to_end(self) -> None:
        """Sends SIGTERM."""
        end = self._own("end")
        if end is not None:
            with contextlib.suppress(OSError):
                os.write(end, b"\0")
                return
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL, if this user may."""
        self._signal(signal.SIGKILL)

    def wait(self, timeout_s: float) -> bool:
        """Waits for its end. Gives whether it has ended. Raises OSError if that can't be found out."""
        pidfd = self._own("pidfd")
        if pidfd is not None:
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            return bool(poll.poll(timeout_s * 1000))
        deadline = time.monotonic() + timeout_s
        while self._is_running():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def close(self) -> None:
        """Closes the descriptors."""
        for name in list(self._descriptors):
            descriptor = self._own(name)
            if descriptor is not None:
                os.close(descriptor)
            del self._descriptors[name]

    def _link(self) -> None:
        """Makes a pipe that sends SIGTERM when it is written to.

        fcntl(2), F_SETOWN: the kernel checks the permission by the user of now, not by that of the time of the write,
        and the process can't be mistaken for a later one of its pid.
        """
        reader, writer = os.pipe()
        try:
            fcntl.fcntl(reader, fcntl.F_SETOWN, self._pid)
            fcntl.fcntl(reader, fcntl.F_SETSIG, signal.SIGTERM)
            fcntl.fcntl(reader, fcntl.F_SETFL, os.O_ASYNC)
            self._keep("signal", os.dup(reader))
            self._keep("end", os.dup(writer))
        finally:
            os.close(reader)
            os.close(writer)

    def _keep(self, name: str, descriptor: int) -> None:
        kept = high(descriptor)
        self._descriptors[name] = kept, identity(kept)

    def _own(self, name: str) -> int | None:
        """A descriptor. None: there is none, or the program has closed it."""
        descriptor, expected = self._descriptors.get(name, (-1, None))
        with contextlib.suppress(OSError):
            if descriptor >= 0 and identity(descriptor) == expected:
                return descriptor
        return None

    def _is_running(self) -> bool:
        return start_of(self._pid) == self._start is not None

    def _signal(self, number: signal.Signals) -> None:
        if not self.wait(0):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self._pid, number)


def start_of(pid: int) -> str | None:
    """What tells a process from a later one of its pid. None: it has ended."""
    state, *fields = _stat(pid)
    return None if state in "ZX" else fields[18]


def parent_of(pid: int) -> int:
    """The pid of its parent. 0: it has none here, or has ended."""
    return int(_stat(pid)[1])


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name. Of a process that is gone, those of a dead one."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ["X", "0"]
