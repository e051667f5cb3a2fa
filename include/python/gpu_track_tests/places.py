"""Directories and programs that tests run in."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Callable
from unittest import mock

from gpu_track import _marks
from gpu_track._attached import has_ended

MODULE = pathlib.Path(__file__).resolve().parent.parent
# Longest time for a program of a test, whatever else the machine does.
PATIENCE_S = 120


class InDirectory(unittest.TestCase):
    """A test in an empty working directory."""

    def setUp(self) -> None:
        """Makes the directory."""
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(place.name)
        self.directory = pathlib.Path(place.name)
        # A relative name is that of the file of its first use, also in another directory.
        known = mock.patch.dict(_marks.files, clear=True)
        known.start()
        self.addCleanup(known.stop)

    def python(self, code: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs a program in Python, which must succeed."""
        done = self.run_python(["-c", code, *arguments], **variables)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def run_python(self, arguments: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs Python with this module."""
        environment = {**os.environ, "PYTHONPATH": os.fspath(MODULE), "PYTHONDONTWRITEBYTECODE": "1", **variables}
        return subprocess.run(
            [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=PATIENCE_S
        )


def wait_until(condition: Callable[[], object]) -> None:
    """Waits until a condition is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.01)


def await_end(pid: int) -> None:
    """Waits until no process of this pid runs."""
    wait_until(lambda: has_ended(pid))
