"""The other end of what tests/programs/phases.c waits for. It is no process of the tracked tree."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import signal
import socketserver
import threading
import time
from collections.abc import Iterator

# How long a process may take to stop after it said so.
STOP_S = 20.0


class Server(socketserver.ThreadingTCPServer):
    """Answers the lines that the program sends; its head explains them."""

    daemon_threads = True

    def __init__(self, lock: pathlib.Path, fifo: pathlib.Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = lock
        self.fifo = fifo

    def port(self) -> int:
        """Where it listens."""
        port: int = self.socket.getsockname()[1]
        return port


class Handler(socketserver.StreamRequestHandler):
    """One connection."""

    server: Server

    def handle(self) -> None:
        """Reads the line and does what it says. A program that has been killed hears no answer."""
        words = self.rfile.readline().decode().split()
        if len(words) != 3:
            return
        what, seconds, pid = words[0], float(words[1]), int(words[2])
        with contextlib.suppress(OSError):
            if what == "late":
                time.sleep(seconds)
                self.answer()
            elif what in {"flock", "fcntl"}:
                self.hold_lock(what, seconds)
            elif what == "pipe":
                self.write_late(seconds)
            elif what == "stop":
                self.answer()
                if is_stopped(pid):
                    time.sleep(seconds)
                    os.kill(pid, signal.SIGCONT)

    def answer(self) -> None:
        """Sends the byte."""
        self.wfile.write(b"1")

    def hold_lock(self, what: str, seconds: float) -> None:
        """Locks the file, and unlocks it by closing it."""
        with open(self.server.lock, "r+b") as file:
            (fcntl.flock if what == "flock" else fcntl.lockf)(file, fcntl.LOCK_EX)
            self.answer()
            time.sleep(seconds)

    def write_late(self, seconds: float) -> None:
        """Opens the FIFO, whose reader is there already, and writes to it later."""
        with open(self.server.fifo, "wb", buffering=0) as fifo:
            self.answer()
            time.sleep(seconds)
            fifo.write(b"1")


def letter_of(stat: str) -> str:
    """The state in /proc/PID/stat. The name before it may contain anything."""
    return stat.rpartition(")")[2].split()[0]


def is_stopped(pid: int) -> bool:
    """Waits until a process has stopped; False if it never does."""
    end_s = time.monotonic() + STOP_S
    while time.monotonic() < end_s:
        if letter_of(pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")) == "T":
            return True
        time.sleep(0.001)
    return False


@contextlib.contextmanager
def serving(directory: pathlib.Path) -> Iterator[Server]:
    """A server whose lock and FIFO are made in the directory."""
    lock, fifo = directory / "lock", directory / "fifo"
    lock.touch()
    if not fifo.exists():
        os.mkfifo(fifo)
    with Server(lock, fifo) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
