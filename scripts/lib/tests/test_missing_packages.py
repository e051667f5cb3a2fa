"""Tests of how scripts/test finds the packages that are missing."""

from __future__ import annotations

import os
import pathlib
import subprocess
import tempfile
import unittest

from gpu_track_scripts.paths import ROOT


class MissingPackages(unittest.TestCase):
    def run_with(self, programs: dict[str, str], *arguments: str) -> str:
        """What scripts/test prints where these programs, shell scripts, come first."""
        with tempfile.TemporaryDirectory() as directory:
            for name, script in programs.items():
                program = pathlib.Path(directory, name)
                program.write_text(f"#!/bin/sh\n{script}\n")
                program.chmod(0o755)
            variables = {**os.environ, "PATH": f"{directory}{os.pathsep}{os.environ['PATH']}"}
            command = [os.fspath(ROOT / "scripts" / "test"), *arguments]
            done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(done.returncode, 0)
        return done.stdout

    def test_clang_without_its_runtimes_is_not_enough(self) -> None:
        missing = self.run_with({"clang": 'echo "${1#*=}"'}, "--missing").split()
        self.assertIn("libclang-rt-dev", missing)
        self.assertNotIn("clang", missing)
        missing = self.run_with({"clang": "echo /bin/sh"}, "--missing").split()
        self.assertNotIn("libclang-rt-dev", missing)

    def test_python_without_ensurepip_is_not_enough(self) -> None:
        without = 'case "$*" in *ensurepip*) exit 1 ;; esac'
        missing = self.run_with({"python3": without}, "--missing").split()
        self.assertIn("python3-venv", missing)
        self.assertNotIn("python3", missing)

    def test_help_runs_nothing(self) -> None:
        forbidden = dict.fromkeys(("apt-get", "cargo", "pip", "python3"), "echo RUNS >&2; kill -9 $PPID")
        text = self.run_with(forbidden, "--help")
        self.assertTrue(text.startswith("scripts/test [ARGUMENT]..."), text)
        self.assertIn("libclang-rt-dev", text.split())


if __name__ == "__main__":
    unittest.main()
