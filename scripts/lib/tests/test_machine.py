"""The parts of scripts/machine that need no machine: what it boots, what is run in it, and when there is none."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import tempfile
import unittest
from unittest import mock

from gpu_track_scripts.machine import cli, image
from gpu_track_scripts.tools import Unavailable


class Command(unittest.TestCase):
    def test_words_and_variables_reach_the_command_as_they_are(self) -> None:
        words = ["sh", "-c", 'printf "%s" "$A$1"', "sh", "it's $HOME"]
        with mock.patch.dict(os.environ, {"A": "a 'b'\n$c ", "BASH_FUNC_x%%": "() { :; }"}, clear=True):
            script = cli.script(words)
        self.assertNotIn("BASH_FUNC", script)
        with tempfile.TemporaryDirectory() as name:
            here = script.replace("/dev/", f"{name}/").replace("/proc/", f"{name}/").replace("stty", ":")
            (pathlib.Path(name) / "null").touch()
            self.assertEqual(os.waitstatus_to_exitcode(os.system(here + "\n:")), 0)
            self.assertEqual((pathlib.Path(name) / "ttyS1").read_text(), "a 'b'\n$c it's $HOME")
            self.assertEqual((pathlib.Path(name) / "ttyS2").read_text(), "0\n")

    def test_without_qemu_the_status_is_77_with_the_reason(self) -> None:
        with mock.patch("shutil.which", return_value=None), contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(cli.main(["--", "true"]), 77)
        self.assertIn("qemu-system-x86", said.getvalue())


class Image(unittest.TestCase):
    def test_modules_are_copied_with_what_they_depend_on(self) -> None:
        lines = [
            "kernel/fs/ext4.ko.xz: kernel/lib/crc16.ko.xz",
            "kernel/net/other.ko.xz: kernel/lib/crc16.ko.xz",
            "alias x ext4",
        ]
        with tempfile.TemporaryDirectory() as name:
            base, tree, directory = (
                pathlib.Path(name, "base"),
                pathlib.Path(name, "tree"),
                pathlib.Path("lib/modules/6.1"),
            )
            for file in ("kernel/fs/ext4.ko.xz", "kernel/lib/crc16.ko.xz", "kernel/net/other.ko.xz"):
                (base / directory / file).parent.mkdir(parents=True, exist_ok=True)
                (base / directory / file).write_text(file)
            image.copy_modules("\n".join(lines), base, tree, directory)
            copied = {f"{file.relative_to(tree / directory)}" for file in tree.rglob("*") if file.is_file()}
            self.assertEqual(copied, {"kernel/fs/ext4.ko.xz", "kernel/lib/crc16.ko.xz", "modules.dep"})
            self.assertEqual((tree / directory / "modules.dep").read_text(), lines[0] + "\n")

    def test_kernel_without_modules_is_refused(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            kernel = pathlib.Path(name, "vmlinuz-6.1")
            kernel.touch()
            with self.assertRaises(Unavailable) as caught:
                image.make_image(kernel, pathlib.Path(name, "made"))
            self.assertIn(f"{kernel}", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
