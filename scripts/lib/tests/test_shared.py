"""Tests of what the programs share."""

from __future__ import annotations

import json
import pathlib
import sys
import unittest

from gpu_track_scripts import commands, figures, markdown
from gpu_track_scripts.paths import ROOT


class Figures(unittest.TestCase):
    def test_one_value_has_no_quartiles(self) -> None:
        self.assertEqual(figures.with_quartiles([1.25], 1, " s"), "1.2 s")

    def test_quartiles_are_inclusive(self) -> None:
        self.assertEqual(figures.with_quartiles([4, 1, 2, 3, 5], 0, " us"), "3 us [2, 4]")

    def test_values_may_come_from_an_iterator(self) -> None:
        self.assertEqual(figures.with_quartiles(iter([1.0, 2.0])), "1.5 [1.2, 1.8]")

    def test_each_round_starts_with_another_side(self) -> None:
        order: list[str] = []

        def measure(side: str) -> int:
            order.append(side)
            return len(order)

        results = figures.interleave(["a", "b", "c"], 4, measure)
        self.assertEqual("".join(order), "abcbcacababc")
        self.assertEqual(results, {"a": [1, 6, 8, 10], "b": [2, 4, 9, 11], "c": [3, 5, 7, 12]})

    def test_differences_and_ratios_pair_the_rounds(self) -> None:
        by_side = {"ours": [6.0, 9.0], "bare": [2.0, 3.0]}
        self.assertEqual(figures.differences(by_side, "ours", "bare"), [4.0, 6.0])
        self.assertEqual(figures.ratios(by_side, "ours", "bare"), [3.0, 3.0])


class Commands(unittest.TestCase):
    def test_words_are_strings(self) -> None:
        self.assertEqual(commands.words([pathlib.Path("/bin/x"), "-n", 3, 0.5]), ["/bin/x", "-n", "3", "0.5"])

    def test_first_line_includes_standard_error(self) -> None:
        program = "import sys; print('one\\ntwo', file=sys.stderr); sys.exit(3)"
        self.assertEqual(commands.first_line([sys.executable, "-c", program]), "one")

    def test_first_line_of_no_output_is_empty(self) -> None:
        self.assertEqual(commands.first_line([sys.executable, "-c", ""]), "")

    def test_executables_come_from_artifacts_that_are_no_tests(self) -> None:
        def artifact(name: str, executable: str | None, is_test: bool) -> dict[str, object]:
            target, profile = {"name": name}, {"test": is_test}
            return {"reason": "compiler-artifact", "target": target, "profile": profile, "executable": executable}

        messages = [
            artifact("lib", None, is_test=False),
            artifact("gpu-track-run", "/t/gpu-track-run", is_test=False),
            artifact("gpu-track-run", "/t/deps/gpu_track_run-1", is_test=True),
            {"reason": "build-finished", "success": True},
        ]
        found = commands.built(json.dumps(message) for message in messages)
        self.assertEqual(found, {"gpu-track-run": pathlib.Path("/t/gpu-track-run")})


class Markdown(unittest.TestCase):
    def test_header_has_a_rule_below(self) -> None:
        self.assertEqual(markdown.header(["a", "b"]), "| a | b |\n|---|---|")


class Paths(unittest.TestCase):
    def test_root_is_the_directory_above_scripts(self) -> None:
        self.assertTrue((ROOT / "scripts" / "lib" / "gpu_track_scripts").is_dir())


if __name__ == "__main__":
    unittest.main()
