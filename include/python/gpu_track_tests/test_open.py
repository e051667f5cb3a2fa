"""Tests of how files that users name are opened: those that are none, and those of another user where all may write."""

from __future__ import annotations

import os
import pathlib
import socket
import stat
import threading
from collections.abc import Callable
from unittest import mock

from gpu_track import _metrics, _pickle_output, metric
from gpu_track._metrics import MetricFile
from gpu_track._open import Place, open_file, read, remove
from gpu_track._pickle_output import PickleOutput
from gpu_track._placeless import VARIABLE
from gpu_track_tests.places import InDirectory

_OTHER = 12_345
# What a run writes its metrics with.
_JOINS = os.O_WRONLY | os.O_APPEND | os.O_CREAT


def written(path: str) -> None:
    """Writes a pickle."""
    with PickleOutput(path) as output:
        output.write(b"new")


class Kinds(InDirectory):
    # Requirement: PY-38
    def test_metric_of_a_fifo_or_device_costs_values_and_one_warning(self) -> None:
        os.mkfifo("fifo.csv")
        code = "import gpu_track\nfor _ in range(10): gpu_track.metric('loss', 0.5)\nprint('went on')"
        done = self.python(code, **{VARIABLE: "fifo.csv"})
        warned = '"fifo.csv" cannot be written: it is a fifo. No more metrics are written to it.\n'
        self.assertEqual((done.stdout, done.stderr), ("went on\n", warned))
        # Root refuses what other users can write to before it is opened.
        done = self.python(code, **{VARIABLE: "/dev/null"})
        self.assertEqual((done.stdout, done.stderr.count("\n"), "/dev/null" in done.stderr), ("went on\n", 1, True))

    # Requirement: PY-38
    def test_only_regular_files_and_open_pipes_are_read_up_to_a_bound(self) -> None:
        pathlib.Path("a").write_bytes(b"text")
        os.symlink("a", "link")
        os.mkdir("directory")
        os.symlink("directory/../a", "way")
        os.mkfifo("fifo")
        os.symlink("endless", "endless")
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind("socket")
        for name in ("a", "link", "way", os.path.abspath("a"), "./directory/.././a"):
            self.assertEqual(read(name, 4), b"text", name)
        for name in ("a", "directory", "fifo", "socket", "endless", "/dev/zero", "none", "none/a", "", ".", "a/"):
            with self.assertRaises(OSError) as refused:
                read(name, 3)
            self.assertEqual(refused.exception.filename or refused.exception.filename2 or name, name)
        reader, writer = os.pipe()
        with open(reader, "rb"):

            def write() -> None:
                with open(writer, "wb") as file:
                    file.write(b"late")

            writing = threading.Thread(target=write)
            writing.start()
            self.assertEqual(read(f"/dev/fd/{reader}", 4), b"late")
            writing.join()

    # Requirement: PY-38
    def test_pickle_of_a_fifo_waits_for_a_reader_for_a_while_only(self) -> None:
        os.mkfifo("fifo")
        with mock.patch.object(_pickle_output, "_READER_WITHIN_S", 0), self.assertRaises(TimeoutError):
            written("fifo")
        with PickleOutput("fifo") as output:
            os.rename("fifo", "away")
            os.mkfifo("fifo")
            reader = os.open("fifo", os.O_RDONLY | os.O_NONBLOCK)
            with open(reader, "rb"), self.assertRaisesRegex(OSError, "another file than at the start"):
                output.write(b"new")
        with PickleOutput("fifo") as output:
            os.remove("fifo")
            os.symlink("victim", "fifo")
            pathlib.Path("victim").touch()
            with self.assertRaises(OSError):
                output.write(b"new")
        self.assertEqual(pathlib.Path("victim").read_bytes(), b"")


class OfAnotherUser(InDirectory):
    def setUp(self) -> None:
        """Makes a directory as /tmp, with a file of this user, and links and a file of another one."""
        super().setUp()
        self.is_root = os.geteuid() == 0
        if not self.is_root:
            print("skipped: needs root, for files of another user")
            return
        os.mkdir("shared")
        os.chmod("shared", 0o1777)
        os.mkdir("own")
        pathlib.Path("own/victim").write_bytes(b"theirs")
        os.symlink("../own/victim", "shared/link")
        os.symlink("../own/made", "shared/dangling")
        os.symlink("../own", "shared/directory")
        os.mkfifo("shared/fifo", 0o666)
        pathlib.Path("shared/file").write_bytes(b"foreign")
        os.chmod("shared/file", 0o666)
        for name in os.listdir("shared"):
            os.lchown(f"shared/{name}", _OTHER, _OTHER)
        os.symlink("../own/new", "shared/good")

    def assert_refused(self, write: Callable[[str], object], *, reads: bool = False) -> None:
        for name in ("link", "dangling", "directory/victim", "directory/made", *(() if reads else ("file",))):
            with self.assertRaisesRegex(PermissionError, "of user 12345, in a directory where all users may write"):
                write(f"shared/{name}")
        self.assertEqual(sorted(os.listdir("own")), ["victim"])
        self.assertEqual(pathlib.Path("own/victim").read_bytes(), b"theirs")
        self.assertEqual(pathlib.Path("shared/file").read_bytes(), b"foreign")

    # Requirement: PY-38
    def test_nothing_of_another_user_is_written_to_where_all_may_write(self) -> None:
        if not self.is_root:
            return
        self.assert_refused(written)
        self.assert_refused(lambda path: os.close(open_file(path, _JOINS)))
        self.assert_refused(lambda path: read(path, 100), reads=True)
        self.assertEqual(read("shared/file", 100), b"foreign")
        with self.assertRaises(PermissionError):
            remove("shared/directory/victim")
        written("shared/good")
        self.assertEqual(pathlib.Path("own/new").read_bytes(), b"new")

    # Requirement: PY-38
    def test_metric_writes_to_nothing_of_another_user(self) -> None:
        if not self.is_root:
            return
        for name in ("link", "dangling", "directory/made", "file", "fifo"):
            file = MetricFile(f"shared/{name}")
            _metrics.add(file)
            self.addCleanup(file.close)
            with self.assertLogs(_metrics.LOG) as logged:
                metric("loss", 1)
            self.assertEqual(len(logged.output), 1)
            _metrics.remove(file)
        self.assertEqual(os.listdir("own"), ["victim"])
        self.assertEqual(pathlib.Path("own/victim").read_bytes(), b"theirs")

    # Requirement: PY-38
    def test_name_that_is_taken_between_look_and_open_is_looked_at_again(self) -> None:
        if not self.is_root:
            return
        with Place("shared/name") as place:
            os.symlink("../own/victim", "shared/name")
            with self.assertRaises(OSError):
                place.open(_JOINS)
            os.replace("shared/file", "shared/name")
            with self.assertRaises(PermissionError):
                place.open(_JOINS)
        self.assertTrue(stat.S_ISREG(os.lstat("shared/name").st_mode))
