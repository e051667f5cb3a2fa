"""Each script has --help, which builds and installs nothing."""

from __future__ import annotations

import os
import pathlib
import subprocess
import tempfile
import unittest

from gpu_track_scripts.paths import ROOT

# Programs by which scripts build and install.
BUSY = ("cargo", "cc", "apt-get", "pip", "mdbook", "curl")


class Help(unittest.TestCase):
    def test_help_is_printed_and_nothing_is_built_or_installed(self) -> None:
        scripts = sorted(file for file in (ROOT / "scripts").iterdir() if file.is_file() and os.access(file, os.X_OK))
        self.assertGreater(len(scripts), 10)
        for script in scripts:
            with self.subTest(script=script.name), tempfile.TemporaryDirectory() as name:
                self.check([script, "--help"], pathlib.Path(name))

    def test_help_of_the_tests_may_stand_behind_a_name(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            self.check([ROOT / "scripts" / "test", "memory", "--help"], pathlib.Path(name))

    def check(self, command: list[pathlib.Path | str], directory: pathlib.Path) -> None:
        """Runs a script where the programs above leave a mark."""
        home, programs, mark = directory / "home", directory / "bin", directory / "mark"
        home.mkdir()
        programs.mkdir()
        for program in BUSY:
            (programs / program).write_text(f"#!/bin/sh\necho {program} >>{mark}\n")
            (programs / program).chmod(0o755)
        variables = {**os.environ, "HOME": f"{home}", "XDG_CACHE_HOME": f"{home}", "TMPDIR": f"{home}"}
        variables["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
        variables["CARGO_TARGET_DIR"] = f"{home}"
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertGreater(len(done.stdout.splitlines()), 2, done.stdout)
        self.assertIn(pathlib.Path(command[0]).name, done.stdout)
        self.assertFalse(mark.exists(), f"it ran {mark.read_text() if mark.exists() else ''}")
        self.assertEqual(list(home.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
