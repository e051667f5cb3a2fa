"""Tests of what a notebook shows of a cell. They need no IPython."""

from __future__ import annotations

import json
import os
import pathlib
import unittest
import xml.etree.ElementTree as ET
from typing import Any

import gpu_track
from gpu_track._cell import CellFigures, Span, sparkline
from gpu_track._cell_metrics import CellMetric, CellMetrics
from gpu_track._memory import Memory
from gpu_track._shown import number_text, short_name
from gpu_track._tracked import Tracked
from gpu_track._watch import Samples, current_line
from gpu_track_tests.places import MODULE, InDirectory
from gpu_track_tests.test_installed import Installed
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
            "1.5 s, CPU 5 min 17 s | RAM 10 MB before, 15 MB after (+5 MB), peak 15 MB of 16 GB,"
            " increment 5 MB | with 2020 other processes"
            " 21 GB | 2 GPUs memory peak 12 GB of 85.9 GB, utilization 150% mean, 188% most",
        )

    # Requirement: PY-16
    def test_what_is_not_known_is_not_shown_as_0(self) -> None:
        unknown = CellFigures(span(Memory(None, None), Memory(None, None)), report("unknown"))
        self.assertEqual(
            unknown.line(),
            "1.5 s, CPU n/a | RAM n/a before, n/a after (n/a), peak n/a of n/a, increment n/a"
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


def metric_of(name: str, **figures: float | None) -> CellMetric:
    """A metric with two values and a third that is not finite."""
    known = {"name": name, "process_id": 7, "count": 3, "not_finite": 1, "last": 0.25, "min": 0.25, "max": 1.0}
    points = [(0.0, 1.0, None), (1.0, 2.0, 1.0), (2.0, 4.0, 0.25)]
    return CellMetric(name, {**known, "mean": 0.625, **figures}, points)


class Metrics(unittest.TestCase):
    # Requirement: PY-92
    def test_metrics_are_beside_ram_in_the_line_and_the_tables(self) -> None:
        found = [metric_of("loss"), metric_of("kept_bytes", last=2e9), metric_of("nan", last=None), metric_of("step")]
        cell = CellFigures(SMALL, report("full"), metrics=CellMetrics(found, left_out=2))
        end = " | loss 0.25 | kept_bytes 2 GB | nan n/a | and 3 more metrics"
        self.assertTrue(cell.line().endswith(end), cell.line())
        rows = dict(cell.rows())
        self.assertEqual(rows["Metric loss"], "last 0.25, min 0.25, max 1, mean 0.625 of 3 values, 1 NaN or infinite")
        self.assertEqual((rows["Metric step"], rows["More metrics, not shown"]), (rows["Metric loss"], "2"))
        root = ET.fromstring(f"<cell>{cell.to_html()}</cell>")
        titles = [title.text for title in root.iter("title")]
        self.assertEqual(titles[1], "loss over 4 s, from 0.25 to 1")
        self.assertEqual(len(titles), 4, "RAM, and the metrics that the line has")
        self.assertEqual([path.get("d") for path in root.iter("path")][1], "M60.0 1.0H120.0V23.0H240.0")
        json.dumps(cell.figures, allow_nan=False)
        self.assertEqual((len(cell.figures["metrics"]), cell.figures["metrics_left_out"]), (4, 2))

    # Requirement: PY-92
    def test_metrics_that_are_not_known_have_their_reason_and_are_not_none_told(self) -> None:
        unreadable = CellFigures(SMALL, report("full"), metrics=CellMetrics(reason="they can't be read: gone"))
        self.assertTrue(unreadable.line().endswith(" | Metrics n/a: they can't be read: gone"), unreadable.line())
        untracked = CellFigures(SMALL, None, "not tracked")
        self.assertTrue(untracked.line().endswith(" | not tracked"), untracked.line())
        for cell in (unreadable, untracked):
            self.assertIsNone(cell.figures["metrics"])
            self.assertIsNotNone(cell.figures["metrics_reason"])
        none_told = CellFigures(SMALL, report("full"), metrics=CellMetrics()).figures
        self.assertEqual((none_told["metrics"], none_told["metrics_reason"]), ([], None))

    # Requirement: PY-92
    def test_values_of_any_size_make_a_chart(self) -> None:
        for points, expected in (
            ([(0.0, 1.0, -1.7e308), (1.0, 2.0, 1.7e308)], "M0.0 23.0H120.0V1.0H240.0"),
            ([(0.0, 2.0, 7.0)], "M0.0 12.0H240.0"),
            ([(0.0, 2.0, None)], None),
            ([], None),
        ):
            metric = CellMetric("x", metric_of("x").figures, points)
            cell = CellFigures(SMALL, None, metrics=CellMetrics([metric]))
            path = ET.fromstring(f"<cell>{cell.to_html()}</cell>").find(".//path")
            self.assertEqual(None if path is None else path.get("d"), expected)

    # Requirement: PY-92
    def test_increment_is_the_peak_less_the_memory_before(self) -> None:
        shrunk = span(Memory(30_000_000, 30_000_000), Memory(10_000_000, 40_000_000))
        ram = CellFigures(shrunk, None, "not tracked").figures["ram"]
        self.assertEqual((ram["increment_bytes"], ram["kept_bytes"], ram["reason"]), (10_000_000, -20_000_000, None))
        self.assertIn(
            "30 MB before, 10 MB after (-20 MB), peak 40 MB of n/a, increment 10 MB", repr(CellFigures(shrunk, None))
        )
        ram = CellFigures(SMALL, None, "not tracked").figures["ram"]
        self.assertEqual((ram["increment_bytes"], ram["kept_bytes"]), (None, 5_000_000))
        self.assertIn("the kernel's mark (VmHWM) has not grown", ram["reason"])
        ram = CellFigures(span(Memory(None, None), Memory(1, 1)), None).figures["ram"]
        self.assertEqual((ram["kept_bytes"], ram["reason"]), (None, "/proc/self/status does not tell it"))


class Rich(unittest.TestCase):
    # Requirement: PY-93
    def test_html_has_what_the_line_has_without_script_colour_or_address(self) -> None:
        cell = CellFigures(SMALL, report("units"), metrics=CellMetrics([metric_of("loss")]))
        shown = cell._repr_html_()
        self.assertEqual(shown, cell._repr_mimebundle_()[0]["text/html"])
        root = ET.fromstring(f"<cell>{shown}</cell>")
        self.assertEqual([element.tag for element in root], ["table", "details"])
        table = root[0]
        names = [name.text for name in table.iter("th")]
        self.assertEqual(names, ["Time", "RAM", "with 2020 other processes", "2 GPUs", "loss"])
        texts = [text.text or "" for text in table.iter("td")]
        for text in texts:
            self.assertIn(text, cell.line())
        self.assertEqual(len(list(table.iter("svg"))), 2)
        tags = {element.tag for element in root.iter()} - {"cell"}
        allowed = {"table", "tr", "th", "td", "br", "svg", "title", "path", "details", "summary"}
        self.assertLessEqual(tags, allowed)
        attributes = {(name, value) for element in root.iter() for name, value in element.attrib.items()}
        paints = {value for name, value in attributes if name in {"fill", "stroke", "style", "color"}}
        self.assertEqual(paints, {"none", "currentColor", "text-align:left"}, "readable on light and dark pages")
        self.assertNotRegex(shown, "https?:|url\\(|src=|href=")

    # Requirement: PY-93
    def test_hostile_name_of_a_metric_is_text(self) -> None:
        name = '</td><svg onload="alert(1)">&\x1b]0;x\x07\r\n\u202e\ud800' + "x" * 100_000
        metric = CellMetric(short_name(name), metric_of(name).figures, metric_of(name).points)
        cell = CellFigures(SMALL, report("full"), metrics=CellMetrics([metric]))
        root = ET.fromstring(f"<cell>{cell.to_html()}</cell>")
        self.assertNotIn("onload", {name for element in root.iter() for name in element.attrib})
        self.assertIn('</td><svg onload="alert(1)">', "".join(root.itertext()))
        self.assertTrue(cell.line().isprintable(), cell.line())
        self.assertLess(len(cell.to_html()), 10_000)

    # Requirement: PY-93
    def test_without_samples_there_is_a_table_and_no_chart(self) -> None:
        root = ET.fromstring(f"<cell>{CellFigures(SMALL, None, 'not tracked: <why>')._repr_html_()}</cell>")
        self.assertEqual(list(root.iter("svg")), [])
        self.assertEqual([cell.text for cell in root[0].iter("td")][-1], "not tracked: <why>")


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

    # Requirement: PY-92
    def test_metrics_of_a_killed_program_are_known_and_those_of_none_are_not(self) -> None:
        self.program('echo "$ready" >&"$fd"; kill -9 $$')
        tracked = Tracked(0.1)
        gpu_track.metric("loss", 1)
        # The stand-in has no gpu-track beside it.
        self.assertIn("they can't be read: gpu-track is not installed", tracked.end().figures["metrics_reason"])

    # Requirement: PY-18
    def test_report_so_far_is_said_to_be_that(self) -> None:
        self.program(GOOD, {**report("full"), "stage": "so_far", "wall_s": 2.0})
        self.assertIn("tracked for the first 2.0 s only", Tracked(0.1).end().line())

    # Requirement: PY-18
    def test_wrong_argument_is_an_error(self) -> None:
        with self.assertRaisesRegex(ValueError, "Sleep time of 0.0 is invalid"):
            Tracked(0.0)


class WithTheProgram(Installed):
    # Requirement: PY-92
    def test_cell_has_the_metrics_of_its_time_and_of_its_processes(self) -> None:
        gpu_track.metric("loss", 8)
        tracked = Tracked(0.1)
        name = 'a "name", <b>\n' + "x" * 100
        for value in (1.0, 0.25):
            gpu_track.metric("loss", value)
            gpu_track.metric(name, value)
        child = os.fork()
        if not child:
            gpu_track.metric("loss", 3)
            os._exit(0)
        os.waitpid(child, 0)
        cell = tracked.end()
        gpu_track.metric("loss", 9)
        found = cell.figures["metrics"]
        self.assertEqual(
            {(row["name"], row["process_id"], row["count"], row["last"]) for row in found},
            {("loss", os.getpid(), 2, 0.25), ("loss", child, 1, 3.0), (name, os.getpid(), 2, 0.25)},
        )
        self.assertIn(f"| loss (process {child}) 3", cell.line())
        self.assertIn(f"| loss (process {os.getpid()}) 0.25", cell.line())
        root = ET.fromstring(f"<cell>{cell.to_html()}</cell>")
        self.assertEqual(len(list(root.iter("svg"))), 4, "RAM and three metrics")
        assert tracked.tracker._directory is not None
        self.assertFalse(os.path.exists(tracked.tracker._directory))

    # Requirement: PY-92
    def test_output_has_no_more_metrics_than_can_be_read(self) -> None:
        tracked = Tracked(0.1)
        for number in range(60):
            gpu_track.metric(f"m{number:02}", number)
        cell = tracked.end()
        self.assertEqual((len(cell.figures["metrics"]), cell.figures["metrics_left_out"]), (50, 10))
        self.assertIn("| m00 0 | m01 1 | m02 2 | and 57 more metrics", cell.line())

    # Requirement: PY-92
    def test_metrics_of_a_killed_tracker_are_known_without_a_chart(self) -> None:
        tracked = Tracked(0.1)
        gpu_track.metric("loss", 0.5)
        (stretch,) = tracked.tracker._stretches
        assert stretch._attached is not None
        stretch._attached.kill()
        cell = tracked.end()
        self.assertIn("not tracked: gpu-track-run was ended before it wrote a report", cell.line())
        self.assertEqual([row["last"] for row in cell.figures["metrics"]], [0.5])
        self.assertNotIn("<svg", cell.to_html())


class Numbers(unittest.TestCase):
    # Requirement: PY-92
    def test_number_has_four_digits_or_is_whole(self) -> None:
        shown = [number_text(value) for value in (None, 0.0, 12345.0, 1e9, -0.000123456, 3.14159, 1.7e308)]
        self.assertEqual(shown, ["n/a", "0", "12345", "1e+09", "-0.0001235", "3.142", "1.7e+308"])


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
