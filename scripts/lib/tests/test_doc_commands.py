"""The commands of a page are found and run, and each fault of one is told."""

from __future__ import annotations

import contextlib
import io
import pathlib
import shutil
import tempfile
import unittest

from gpu_track_scripts.checks.doc_commands import check, commands

PAGE = """Text with `gpu-track-run --gpus` and `gpu-track-run [OPTIONS]`, `gpu-track-run -- ...`.

```sh
cargo install --path launcher
gpu-track-run ./app
```

```text
$ gpu-track-run --recover
output
$ cat report.txt
```
"""


def checked(text: str) -> tuple[int, int, list[str]]:
    """Checks a page with a program that succeeds, but not to recover, and with `bad`."""
    with tempfile.TemporaryDirectory() as directory:
        program = pathlib.Path(directory, "program")
        program.write_text('#!/bin/sh\ncase "$*" in *--recover*) exit 1;; *bad*) exit 2;; esac\n')
        program.chmod(0o755)
        with contextlib.redirect_stdout(io.StringIO()):
            return check("page.md", text, program)


class DocCommands(unittest.TestCase):
    def test_commands_of_blocks_examples_and_text_are_found(self) -> None:
        found = [(command.line, command.script.strip()) for command in commands("page.md", PAGE)]
        block = "cargo install --path launcher\ngpu-track-run ./app"
        examples = [(8, "gpu-track-run --recover"), (8, "cat report.txt")]
        self.assertEqual(found, [(1, "gpu-track-run --gpus"), (3, block), *examples])

    def test_right_page_passes_and_exceptions_are_counted(self) -> None:
        self.assertEqual(checked(PAGE), (3, 2, []))

    def test_failing_command_is_told_with_its_line(self) -> None:
        ran, _, faults = checked("\n```sh\ngpu-track-run --bad\ntrue\n```\n")
        self.assertEqual(ran, 1)
        self.assertIn("page.md:2: status 2: gpu-track-run --bad", faults[0])

    @unittest.skipUnless(shutil.which("jq"), "needs jq")
    def test_key_that_no_report_has_is_told(self) -> None:
        _, _, faults = checked("```sh\necho '{}' | jq .wall_s\n```\n")
        self.assertIn("no such key", faults[0])


if __name__ == "__main__":
    unittest.main()
