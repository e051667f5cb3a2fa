"""What root takes from an environment that can be another user's. Another user's directories need root."""

from __future__ import annotations

import os
import pathlib
import tempfile
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from gpu_track import _program, _trusted
from gpu_track_tests.places import InDirectory

ANOTHER = 64002
needs_root = unittest.skipUnless(_trusted.is_root(), "needs root, for directories of another user")


class OfRoot(InDirectory):
    """A directory of root's, in which another user has one."""

    def setUp(self) -> None:
        """Makes both."""
        super().setUp()
        self.directory = self.directory.resolve()
        self.own = self.program(self.directory / "own", 0)
        self.theirs = self.program(self.directory / "theirs", ANOTHER)

    def program(self, directory: pathlib.Path, uid: int) -> str:
        """The path of a user's program, in a new directory of that user."""
        directory.mkdir(0o755)
        path = directory / "gpu-track"
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        for part in (path, directory):
            os.chown(part, uid, uid)
        return os.fspath(path)

    @contextmanager
    def environment(self, **variables: str) -> Iterator[None]:
        """Variables alone, and no program beside Python."""
        # The user's own programs are below HOME.
        home = variables.get("HOME", "/nowhere")
        places = mock.patch("sysconfig.get_path", lambda _name, scheme=None: home if scheme else "/nowhere")
        with places, mock.patch.dict(os.environ, variables, clear=True):
            yield


@needs_root
class OfAnotherUser(OfRoot):
    # Requirement: FAULT-15
    def test_program_of_another_user_is_not_run(self) -> None:
        own, theirs = os.path.dirname(self.own), os.path.dirname(self.theirs)
        with self.environment(GPU_TRACK_RUN=self.own, PATH=theirs):
            self.assertEqual(_program.find("gpu-track"), self.own)
        with self.environment(GPU_TRACK_RUN=self.theirs, HOME=theirs, PATH=f"{theirs}::{own}"):
            with self.assertLogs("gpu_track", "WARNING") as logs:
                self.assertEqual(_program.find("gpu-track"), self.own)
            self.assertIn("GPU_TRACK_RUN is ignored", logs.output[0])
        with self.environment(PATH=theirs), self.assertRaises(FileNotFoundError):
            _program.find("gpu-track")

    # Requirement: FAULT-15
    def test_what_a_link_leads_to_is_run_only_where_the_link_is_roots(self) -> None:
        os.symlink(self.own, self.directory / "theirs/link")
        self.assertIsNone(_trusted.path(f"{self.directory}/theirs/link"))
        os.symlink("own", self.directory / "link")
        self.assertEqual(_trusted.path(f"{self.directory}/link/gpu-track"), self.own)
        os.symlink("gpu-track", self.directory / "own/link")
        self.assertEqual(_trusted.path(f"{self.directory}/own/link"), f"{self.directory}/own/link")
        os.chmod(self.directory, 0o757)
        self.assertIsNone(_trusted.path(self.own))

    # Requirement: FAULT-15
    def test_what_is_missing_could_be_made_by_another_user(self) -> None:
        for directory in (self.directory, self.directory / "sticky"):
            directory.mkdir(exist_ok=True)
            directory.chmod(0o1777)
            missing = f"{directory}/missing"
            self.assertIsNone(_trusted.path(missing))
            self.assertIsNone(_trusted.path(f"{missing}/file", is_made=True))
            self.assertEqual(_trusted.path(missing, is_made=True), missing)
            # A link of theirs can lead elsewhere at any time.
            os.symlink(self.own, f"{directory}/link")
            os.chown(f"{directory}/link", ANOTHER, ANOTHER, follow_symlinks=False)
            self.assertIsNone(_trusted.path(f"{directory}/link"))

    # Requirement: FAULT-15
    def test_temporary_files_are_not_in_a_directory_of_another_user(self) -> None:
        own = os.path.dirname(self.own)
        with mock.patch.object(tempfile, "tempdir", None):
            with self.environment(TMPDIR=os.path.dirname(self.theirs), TMP=own), _trusted.temporary_directory() as made:
                self.assertEqual(os.path.dirname(made), own)
            with self.environment(TMPDIR=os.path.dirname(self.theirs)):
                made = _trusted.new_directory()
        self.addCleanup(os.rmdir, made)
        self.assertTrue(made.startswith("/tmp/"), made)

    # Requirement: FAULT-15
    def test_metrics_go_to_no_file_that_another_user_leads_to(self) -> None:
        module = "from gpu_track import metric; metric('loss', 1)"
        os.symlink(self.directory / "own/new.csv", self.directory / "theirs/new.csv")
        for named in (
            f"{self.directory}/theirs/new.csv",
            f"{self.directory}/theirs/it.csv",
            f"{self.directory}/own/profile",
        ):
            done = self.python(module, GPU_TRACK_METRICS=named)
            self.assertIn("GPU_TRACK_METRICS is ignored", done.stderr)
            self.assertFalse(os.path.exists(named), named)
        done = self.python(module, GPU_TRACK_METRICS=f"{self.directory}/own/new.csv")
        self.assertEqual((done.stderr, os.path.exists(self.directory / "own/new.csv")), ("", True))


class OfAnOrdinaryUser(InDirectory):
    def test_environment_of_an_ordinary_user_counts(self) -> None:
        with mock.patch.object(_trusted, "is_root", lambda: False):
            self.assertEqual(_trusted.path("any/link"), "any/link")
            with _trusted.temporary_directory() as made:
                self.assertEqual(os.path.dirname(made), tempfile.gettempdir())
