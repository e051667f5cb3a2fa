"""The table of differences from gpu_tracker: what counts as one, and how it is said."""

from __future__ import annotations

import dataclasses
import unittest

from gpu_track_scripts.gpu_tracker.cli import BEGIN, END, with_section
from gpu_track_scripts.gpu_tracker.lines import LINES
from gpu_track_scripts.gpu_tracker.outcome import Outcome, Text, stderr_of, text_of, without_figures
from gpu_track_scripts.gpu_tracker.table import difference, table

TRACKED = Outcome(0, True, Text("a text report", "d1"), "nothing")
CRASHED = Outcome(1, True, Text("nothing", "d0"), "traceback", "ValueError")
REFUSED = Outcome(1, False, Text("nothing", "d0"), "error", "ERROR:root:x")


class Figures(unittest.TestCase):
    def test_figures_are_left_out_but_not_their_types(self) -> None:
        self.assertEqual(without_figures('"a": 1.5e-05, "b": 12, gpu0: -3.0'), '"a": #.#, "b": #, gpu0: #.#')
        one, same, other = (text_of(f'{{"a": {figure}}}'.encode()) for figure in ["1.5", "0.0", "0"])
        self.assertEqual(one, same)
        self.assertNotEqual(one.digest, other.digest)
        self.assertNotEqual(one.digest, text_of(b'{"a": null}').digest)

    def test_exit_status_in_words_is_no_figure(self) -> None:
        line = "Resource tracking complete. Process completed with status code: {}\nMax RAM:\n   System: 1.0\n"
        three, zero = (text_of(line.format(status).encode()) for status in [3, 0])
        self.assertEqual((three.kind, zero.kind), ("a text report", "a text report"))
        self.assertNotEqual(three.digest, zero.digest)


class Errors(unittest.TestCase):
    def test_kinds_of_stderr_are_told_apart(self) -> None:
        self.assertEqual(stderr_of("WARNING:root:x\n"), ("nothing", ""))
        self.assertEqual(stderr_of("--o is not unique\nUsage:\n  x\n"), ("usage", "--o is not unique"))
        self.assertEqual(stderr_of("ERROR:root:no\n"), ("error", "ERROR:root:no"))
        self.assertEqual(stderr_of("Traceback (most\n  x\nValueError: y: z\n"), ("traceback", "ValueError"))


class Differences(unittest.TestCase):
    def test_what_differs_is_said(self) -> None:
        self.assertEqual(difference(TRACKED, TRACKED), "")
        self.assertEqual(difference(TRACKED, REFUSED), "status 1, an `ERROR:root:` line")
        self.assertEqual(difference(CRASHED, REFUSED), "an `ERROR:root:` line, before the command is started")
        other_keys = dataclasses.replace(TRACKED, stdout=Text("a text report", "d2"))
        self.assertEqual(difference(TRACKED, other_keys), "in other words")
        silent = dataclasses.replace(TRACKED, stdout=Text("nothing", "d0"))
        self.assertEqual(difference(TRACKED, silent), "without a text report on stdout")

    def test_table_has_only_what_differs(self) -> None:
        rows = table({"-h": TRACKED, "-v": TRACKED}, {"-h": TRACKED, "-v": REFUSED}, ["-h", "-v"]).splitlines()
        self.assertTrue(rows[2].startswith("| `gpu-tracker -v` |"), rows)
        self.assertEqual(len(rows), 3)

    def test_section_replaces_only_what_is_between_the_marks(self) -> None:
        page = with_section(f"a\n{BEGIN}\nold\n{END}\nb\n", "new")
        self.assertEqual(page, f"a\n{BEGIN}\nnew\n{END}\nb\n")

    def test_there_are_forty_lines(self) -> None:
        self.assertEqual(len({line.text for line in LINES}), 40)


if __name__ == "__main__":
    unittest.main()
