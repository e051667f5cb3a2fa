"""Tests of what a notebook shows of a cell. They need no IPython."""

from __future__ import annotations

import json
import os
import pathlib
import unittest
import xml.etree.ElementTree as ET
from typing import Any

from gpu_track._cell import CellFigures, Memory, Span, sparkline
from gpu_track._tracked import Tracked
from gpu_track._watch import Samples, current_line
from gpu_track_tests.places import MODULE, InDirectory
from gpu_track_tests.test_tracker import GOOD, WithProgram

GOLDEN = MODULE.parent.parent / "tests" / "golden"
COLUMNS = (
    "combined_ram,max_combined_ram,cpu_combined_sum_utilization_percent,n_processes,combined_gpu_ram,"
    "gpu_sum_utilization_percent,at_ns"
)


def report(name: str) -> dict[str, Any]:
    """A report that the writers of gpu-track-run make."""
    found: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    return found


def span(before: Memory, after: Memory) -> Span:
    """A span of 1.5 s."""
    known = Span()
    known.wall_s, known.before, known.after = 1.5, before, after
    return known


SMALL = span(Memory(10_000_000, 20_000_000), Memory(15_000_000, 20_000_000))


class Shown(unittest.TestCase):
    # Requirement: PY-16
    def test_line_has_time_memory_and_gpus_of_the_report(self) -> None:
        self.assertEqual(
            CellFigures(SMALL, report("units")).line(),
            "1.5 s, CPU 5 min 17 s | RAM 10 MB before, 15 MB after, peak 15 MB of 16 GB | with 2020 other processes"
            " 21 GB | 2 GPUs memory peak 12 GB of 85.9 GB, utilization 150% mean, 188% most",
        )

    # Requirement: PY-16
    def test_what_is_not_known_is_not_shown_as_0(self) -> None:
        unknown = CellFigures(span(Memory(None, None), Memory(None, None)), report("unknown"))
        self.assertEqual(
            unknown.line(),
            "1.5 s, CPU n/a | RAM n/a before, n/a after, peak n/a of n/a"
            " | 2 GPUs memory peak n/a of n/a, utilization n/a mean, n/a most",
        )
        self.assertNotIn("0 B", unknown.to_html())

    # Requirement: PY-16
    def test_no_gpu_is_shown_where_there_is_none(self) -> None:
        found = CellFigures(SMALL, report("full"))
        self.assertIsNone(found.figures["gpu"])
        self.assertNotIn("GPU", found.line() + found.to_html())

    # Requirement: PY-17
    def test_no_text_of_a_report_becomes_markup_or_a_control_character(self) -> None:
        evil = report("units")
        text = '</td><script>alert("1")</script>&\x1b]0;x\x07\r\n\u202e'
        evil["warnings"] = [{"topic": "figures", "text": text}]
        evil["gpus"][0]["name"] = text
        cell = CellFigures(SMALL, evil, text)
        root = ET.fromstring(f"<cell>{cell.to_html()}</cell>")
        self.assertEqual({element.tag for element in root.iter("script")}, set())
        self.assertTrue(cell.line().isprintable(), cell.line())
        self.assertIn('<script>alert("1")</script>', "".join(root.itertext()))

    # Requirement: PY-16
    def test_figures_are_in_the_metadata_as_json(self) -> None:
        data, metadata = CellFigures(SMALL, report("units"))._repr_mimebundle_()
        self.assertEqual(set(data), {"text/plain", "text/html"})
        self.assertEqual(set(metadata), {"gpu_track"})
        json.dumps(metadata, allow_nan=False)

    # Requirement: PY-16
    def test_chart_leaves_out_what_is_not_known(self) -> None:
        series = {
            "start_s": [0.0, 1.0, 2.0],
            "end_s": [1.0, 2.0, 4.0],
            "ram_bytes": {"combined": {"max": [50.0, None, 100.0]}},
        }
        root = ET.fromstring(sparkline(series))
        self.assertEqual(root.findtext("title"), "RAM of all processes over 4 s, from 0 to 100 B")
        path = root.find("path")
        assert path is not None
        self.assertEqual(path.get("d"), "M0.0 12.0H60.0M120.0 1.0H240.0")
        series["ram_bytes"] = {"combined": {"max": [None] * 3}}
        self.assertEqual(sparkline(series), "")


class Peak(unittest.TestCase):
    # Requirement: PY-16
    def test_mark_of_the_kernel_counts_only_if_it_grew(self) -> None:
        grown = span(Memory(10, 20), Memory(15, 30))
        self.assertEqual((grown.peak_bytes(25), grown.peak_bytes(None), SMALL.peak_bytes(12)), (30, 30, 15_000_000))

    # Requirement: PY-16
    def test_peak_is_not_known_without_samples_and_growth(self) -> None:
        self.assertIsNone(SMALL.peak_bytes(None))

    # Requirement: PY-16
    def test_memory_is_that_of_the_kernel(self) -> None:
        pages = int(pathlib.Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
        now = Memory.now()
        assert now.rss_bytes is not None and now.most_bytes is not None
        self.assertAlmostEqual(now.rss_bytes, pages * os.sysconf("SC_PAGE_SIZE"), delta=8_000_000)
        self.assertGreaterEqual(now.most_bytes, now.rss_bytes)


class Spans(WithProgram):
    # Requirement: PY-18
    def test_missing_program_costs_figures_and_is_the_reason(self) -> None:
        os.environ["GPU_TRACK_RUN"] = os.fspath(self.directory / "none" / "gpu-track-run")
        found = Tracked(0.1).end()
        self.assertIn("| not tracked: gpu-track-run is not installed", found.line())
        self.assertEqual((found.figures["cpu_s"], found.figures["gpu"]), (None, None))
        self.assertIsNotNone(found.figures["ram"]["before_bytes"])

    # Requirement: PY-18
    def test_killed_program_costs_figures_and_is_the_reason(self) -> None:
        self.program('echo "$ready" >&"$fd"; kill -9 $$')
        self.assertIn("| not tracked: gpu-track-run was ended before it wrote a report.", Tracked(0.1).end().line())

    # Requirement: PY-18
    def test_report_so_far_is_said_to_be_that(self) -> None:
        self.program(GOOD, {**report("full"), "stage": "so_far", "wall_s": 2.0})
        self.assertIn("tracked for the first 2.0 s only", Tracked(0.1).end().line())

    # Requirement: PY-18
    def test_wrong_argument_is_an_error(self) -> None:
        with self.assertRaisesRegex(ValueError, "Sleep time of 0.0 is invalid"):
            Tracked(0.0)


class Watching(InDirectory):
    def write(self, text: str) -> None:
        """Appends to the tracking file."""
        with open("watch.csv", "a", encoding="utf-8") as file:
            file.write(text)

    # Requirement: PY-19
    def test_newest_whole_row_is_shown_once(self) -> None:
        samples = Samples("watch.csv", has_gpus=False)
        with self.assertRaises(OSError):
            samples.last()
        self.write(f"units\nbytes,\n{COLUMNS}\n")
        self.assertIsNone(samples.last())
        self.write("1000,3000,50.0,2,0.0,0.0,1\n2000,3000,150.0,2,0.0,0.0,5000000000\n9")
        found = samples.last()
        assert found is not None
        self.assertEqual((found.pop("monotonic_s"), found["gpu"]), (5.0, None))
        self.assertEqual(current_line({**found, "at_s": 61.0}), "at 1 min 1 s | RAM 2 kB, peak 3 kB | CPU 150%")
        self.assertIsNone(samples.last())
        self.write("000,9000,0,2,0.0,0.0,6000000000\n")
        found = samples.last()
        assert found is not None
        self.assertEqual(found["ram"], {"bytes": 9000.0, "peak_bytes": 9000.0})

    # Requirement: PY-19
    def test_gpu_that_gives_nothing_is_not_shown_as_0(self) -> None:
        self.write(f"units\nbytes,\n{COLUMNS}\n1,1,,1,,37.5,1000000000\n")
        found = Samples("watch.csv", has_gpus=True).last()
        assert found is not None
        line = current_line({**found, "at_s": 1.0})
        self.assertEqual(line, "at 1 s | RAM 1 B, peak 1 B | CPU n/a | GPU memory n/a, utilization 38%")


if __name__ == "__main__":
    unittest.main()
