"""Tests of runs with `-f pickle`, with a program in the place of gpu-track-run."""

from __future__ import annotations

import json
import os
import pathlib
import pickle
import pty
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from unittest import mock

from gpu_track import ResourceUsage
from gpu_track._pickle_output import PickleOutput
from gpu_track_tests.places import MODULE, PATIENCE_S, InDirectory, wait_until
from gpu_track_tests.test_tracker import REPORT

# Writes a report.
GOOD = """#!/bin/sh
for word; do
    case $word in --output=*) cp given.json "${word#--output=}" ;; esac
done
"""
# Writes the signals that it gets, until SIGTERM.
NOTING = f"""#!{sys.executable}
import signal, sys
own = {{signal.SIGINT, signal.SIGTERM}}
blocked = signal.pthread_sigmask(signal.SIG_BLOCK, own)
open("ready", "w").write(str(blocked))
while True:
    number = signal.sigwait(own)
    with open("got", "a") as file:
        file.write(f"{{number.name}} ")
    if number == signal.SIGTERM:
        sys.exit(9)
"""
LINE = ["-m", "gpu_track", "-e", "true", "-f", "pickle", "-o"]


class Pickled(InDirectory):
    def setUp(self) -> None:
        super().setUp()
        variables = {"GPU_TRACK_RUN": os.fspath(self.directory / "gpu-track-run"), "PYTHONPATH": os.fspath(MODULE)}
        patch = mock.patch.dict(os.environ, {**variables, "PYTHONDONTWRITEBYTECODE": "1"})
        patch.start()
        self.addCleanup(patch.stop)
        pathlib.Path("given.json").write_text(json.dumps(REPORT), encoding="utf-8")

    def program(self, script: str) -> None:
        path = pathlib.Path("gpu-track-run")
        path.write_text(script, encoding="utf-8")
        path.chmod(0o755)

    def assert_usage(self, content: bytes) -> None:
        self.assertIsInstance(pickle.loads(content), ResourceUsage)


def text(name: str) -> str:
    path = pathlib.Path(name)
    return path.read_text(encoding="utf-8") if path.exists() else ""


class Signals(Pickled):
    # Requirement: PY-15
    def test_signal_that_comes_while_the_program_starts_is_handed_on(self) -> None:
        self.program(NOTING)
        code = """
import os, signal, subprocess, sys, time
from gpu_track import _pickled_run

begin = subprocess.Popen.__init__

def begin_and_signal(child, *arguments, **keywords):
    begin(child, *arguments, **keywords)
    while not os.path.exists("ready"):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)

subprocess.Popen.__init__ = begin_and_signal
sys.exit(_pickled_run.run({"execute": "true", "output": "run.pkl"}))
"""
        done = self.run_python(["-c", code])
        self.assertEqual((done.returncode, done.stderr, text("got")), (9, "", "SIGTERM "))
        self.assertEqual(text("ready"), "set()", "no signal is blocked in the program")

    def interrupted(self, interrupt: Callable[[int, int], None]) -> None:
        """Runs it at a terminal of its own. `interrupt` gets its pid and the other end of the terminal."""
        for name in ("ready", "got"):
            pathlib.Path(name).unlink(missing_ok=True)
        pid, terminal = pty.fork()
        if pid == 0:
            try:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                os.execv(sys.executable, [sys.executable, *LINE, "run.pkl"])
            finally:
                os._exit(1)
        self.addCleanup(os.close, terminal)
        wait_until(lambda: text("ready"))
        interrupt(pid, terminal)
        wait_until(lambda: text("got"))
        os.kill(pid, signal.SIGTERM)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 9)
        self.assertEqual(text("got"), "SIGINT SIGTERM ")

    # Requirement: PY-15
    def test_interrupt_reaches_the_program_once_from_a_terminal_and_from_kill(self) -> None:
        self.program(NOTING)
        self.interrupted(lambda pid, _terminal: os.kill(pid, signal.SIGINT))
        self.interrupted(lambda _pid, terminal: self.assertEqual(os.write(terminal, b"\x03"), 1))


class Output(Pickled):
    # Requirement: PY-15
    def test_pickle_goes_to_the_one_reader_of_a_pipe(self) -> None:
        self.program(GOOD)
        os.mkfifo("pipe")
        with subprocess.Popen([sys.executable, *LINE, "pipe"]) as run:
            content = pathlib.Path("pipe").read_bytes()
            self.assertEqual(run.wait(PATIENCE_S), 0)
        self.assert_usage(content)
        self.assertTrue(stat.S_ISFIFO(os.stat("pipe").st_mode))

    # Requirement: PY-15
    def test_link_to_a_file_that_is_not_there_yet_stays_one(self) -> None:
        os.symlink("real.pkl", "link.pkl")
        self.program("#!/bin/sh\nls -A >seen\nexit 3\n")
        self.assertEqual(self.run_python([*LINE, "link.pkl"]).returncode, 3)
        self.assertEqual((os.readlink("link.pkl"), os.path.exists("real.pkl")), ("real.pkl", False))
        self.assertEqual(text("seen").split(), ["given.json", "gpu-track-run", "link.pkl", "seen"])
        self.program(GOOD)
        self.assertEqual(self.run_python([*LINE, "link.pkl"]).returncode, 0)
        self.assertEqual(os.readlink("link.pkl"), "real.pkl")
        self.assert_usage(pathlib.Path("real.pkl").read_bytes())

    # Requirement: PY-15
    def test_older_pickle_stays_where_there_is_no_room_and_its_mode_in_any_case(self) -> None:
        old = pathlib.Path("run.pkl")
        old.write_bytes(b"old")
        old.chmod(0o640)
        code = """
import resource
from gpu_track._pickle_output import PickleOutput
with PickleOutput("run.pkl") as output:
    # More than that has no room.
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    try:
        output.write(b"new" * 1000)
    except OSError as problem:
        print(type(problem).__name__)
    output.write(b"short")
"""
        failing = code.replace('    output.write(b"short")\n', "")
        files = sorted(os.listdir())
        self.assertEqual((self.python(failing).stdout, old.read_bytes()), ("OSError\n", b"old"))
        self.assertEqual((self.python(code).stdout, old.read_bytes()), ("OSError\n", b"short"))
        self.assertEqual((sorted(os.listdir()), stat.S_IMODE(old.stat().st_mode)), (files, 0o640))

    # Requirement: PY-15
    def test_file_in_a_directory_without_room_for_another_is_overwritten_in_place(self) -> None:
        old = pathlib.Path("run.pkl")
        old.write_bytes(b"old and longer")
        known = old.stat().st_ino
        with mock.patch.object(PickleOutput, "_create", side_effect=PermissionError(13, "Permission denied")):
            with PickleOutput("run.pkl") as output:
                output.write(b"new")
            with self.assertRaises(PermissionError) as refused:
                PickleOutput("other.pkl")
        self.assertEqual((old.read_bytes(), old.stat().st_ino), (b"new", known))
        self.assertEqual(refused.exception.filename, "other.pkl")

    # Requirement: PY-15
    def test_what_is_no_place_for_a_file_is_refused(self) -> None:
        for wrong, problem in (("", IsADirectoryError), (".", IsADirectoryError), ("none/x", FileNotFoundError)):
            with self.assertRaises(problem):
                PickleOutput(wrong)
