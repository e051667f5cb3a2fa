"""Tests of the module with the installed programs, which GPU_TRACK_RUN names."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pathlib
import pickle
import signal
import sqlite3
import struct
import subprocess
import sys
import time
import unittest
from contextlib import closing
from typing import Any

from gpu_track import ResourceUsage, SubTracker, SubTrackingAnalyzer, Tracker, TrackingComparison, analysis, sub_track
from gpu_track_tests import known_program
from gpu_track_tests.places import MODULE, PATIENCE_S, InDirectory, await_end, wait_until

HEAD = "process_id,code_block_name,position,timestamp\n"


@unittest.skipUnless(os.environ.get("GPU_TRACK_RUN"), "GPU_TRACK_RUN names no gpu-track-run")
class Installed(InDirectory):
    """Tests that are skipped where nothing is installed."""

    def text(self, name: str) -> str:
        """The text of a file."""
        return pathlib.Path(name).read_text(encoding="utf-8")


class KnownWork(Installed):
    def known(self, tracking_file: str = "run.csv") -> dict[str, Any]:
        """What the program of known work says."""
        # The first mark makes the file, which the forked workers then have.
        done = self.run_python(["-m", "gpu_track_tests.known_program", tracking_file, "marks.csv"])
        self.assertEqual(done.returncode, 0, done.stderr)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    # Requirement: PY-1, PY-2, PY-4, PY-51
    def test_figures_of_known_work_are_right(self) -> None:
        found = self.known()
        usage, report = found["usage"], found["report"]
        main = usage["max_ram"]["main"]["total_rss"]
        self.assertGreaterEqual(main, known_program.MEMORY_BYTES)
        self.assertLessEqual(main, known_program.MEMORY_BYTES + 100_000_000)
        self.assertGreaterEqual(usage["compute_time"]["time"], found["wall_s"])
        (own,) = (one for one in report["processes"]["heaviest"] if one["pid"] == found["pid"])
        # Sampled: what it used after the last sample can be missing, and it goes on while the tracker ends.
        self.assertGreaterEqual(own["cpu_s"], known_program.CPU_S * 0.9)
        self.assertLessEqual(own["cpu_s"], found["cpu_s"] + 0.2)
        self.assertEqual(own["cpu_quality"], "sampled")
        # The child carries the shim.
        (child,) = (one for one in report["processes"]["heaviest"] if one["command"] == "sleep")
        self.assertEqual((child["exit"]["code"], child["cpu_quality"], found["child"]), (0, "exact", 0))
        self.assertGreaterEqual(child["wall_s"], known_program.CHILD_S)
        self.assertGreaterEqual(report["coverage"]["exact"], 1)
        self.assertGreaterEqual(report["coverage"]["layers"]["preload"], 1)

    # Requirement: PY-11, PY-13
    def test_blocks_of_known_work_have_their_counts_and_times(self) -> None:
        for form in ("csv", "sqlite"):
            for file in ("marks.csv", "run.csv"):
                pathlib.Path(file).unlink(missing_ok=True)
            found = self.known(f"run.{form}")
            results = SubTrackingAnalyzer(f"run.{form}", "marks.csv").sub_tracking_results().to_json()
            blocks = {block["name"]: block for block in results["code_block_results"]}
            once = dict.fromkeys(("outer", "cpu", "memory", "child"), 1)
            counts = {**once, "recursive": 4, "thread": 3, "coroutine": 5, "worker": 30}
            self.assertEqual({name: block["num_calls"] for name, block in blocks.items()}, counts)
            for name, (inner, outer) in found["took"].items():
                total = blocks[name]["compute_time"]["total"]
                self.assertGreaterEqual(total, inner * 0.99, name)
                self.assertLessEqual(total, outer * 1.01, name)
            ram = blocks["memory"]["resource_usage"]["main_ram"]["max"]
            self.assertGreaterEqual(ram, known_program.MEMORY_BYTES)
            self.assertEqual(results["static_data"]["ram_unit"], "bytes")

    # Requirement: PY-8, PY-54
    def test_events_and_timeline_are_those_of_the_tracking_file(self) -> None:
        with Tracker(0.1, tracking_file="run.jsonl", disable_logs=True) as tracker:
            with self.assertRaisesRegex(ValueError, "nonsense"):
                tracker.events("nonsense")
            subprocess.run(["sh", "-c", "exit 3"], check=False)
            # It is written with the next samples.
            wait_until(lambda: tracker.events("exit"))
            wait_until(lambda: tracker.timeline(0.1))
        (exit_of_child,) = (event for event in tracker.events("exit") if event["command"] == "sh")
        self.assertEqual(exit_of_child["exit"]["code"], 3)
        self.assertEqual(tracker.events(last_n=1), tracker.events()[-1:])
        self.assertEqual(tracker.events(last_n=0), [])
        self.assertEqual(tracker.events(since=exit_of_child["at_s"])[0]["at_s"], exit_of_child["at_s"])
        self.assertEqual({event["type"] for event in tracker.events(["start", "peak"])}, {"start", "peak"})
        points = tracker.timeline(0.2)
        self.assertEqual(points[0]["start_s"], 0.0)
        for before, after in zip(points, points[1:]):
            self.assertEqual(before["end_s"], after["start_s"])
        assert tracker.resource_usage is not None
        # The largest of a point is not in it, only its mean.
        most = max(point["ram_combined_bytes"] for point in points) / 1e9
        self.assertLessEqual(most, tracker.resource_usage.max_ram.combined.total_rss * 1.001)

    # Requirement: PY-8
    def test_without_a_tracking_file_the_timeline_is_that_of_the_report(self) -> None:
        tracker = Tracker(disable_logs=True)
        with self.assertRaisesRegex(RuntimeError, "before tracking starts"):
            tracker.timeline(1)
        with tracker, self.assertRaisesRegex(RuntimeError, r"needs a tracking file in .jsonl or .sqlite or .csv"):
            tracker.timeline(1)
        self.assertTrue(tracker.timeline(1))
        with self.assertRaisesRegex(RuntimeError, "needs a tracking file in .jsonl or .sqlite"):
            tracker.events()

    # Requirement: PY-6, PY-55
    def test_what_is_used_in_a_pause_is_in_no_figure(self) -> None:
        with Tracker(0.1, "bytes", tracking_file="run.jsonl", disable_logs=True) as tracker:
            tracker.pause()
            held = bytearray(known_program.MEMORY_BYTES)
            subprocess.run(["true"], check=True)
            del held
            tracker.resume()
        assert tracker.resource_usage is not None
        self.assertLess(tracker.resource_usage.max_ram.combined.total_rss, known_program.MEMORY_BYTES)
        self.assertTrue(os.path.exists("run.2.jsonl"))
        self.assertNotIn("true", {event["command"] for event in tracker.events()})
        times = [event["at_s"] for event in tracker.events("peak")]
        self.assertEqual((len(times), times), (2, sorted(times)))

    # Requirement: PY-97
    def test_report_so_far_is_there_while_it_tracks(self) -> None:
        with Tracker(0.1, disable_logs=True) as tracker:
            wait_until(tracker.get_statistics)
            found = tracker.get_statistics()
        assert found is not None
        self.assertEqual(found["stage"], "so_far")
        self.assertGreater(found["max_ram_bytes"]["combined"]["total_rss"], 0)
        last = tracker.get_statistics()
        assert last is not None
        self.assertEqual(last["stage"], "final")
        self.assertIsNone(Tracker().get_statistics())

    # Requirement: PY-56
    def test_programs_report_to_the_newest_tracker(self) -> None:
        with Tracker(disable_logs=True) as older:
            with Tracker(disable_logs=True) as newer:
                subprocess.run(["sleep", "0.01"], check=True)
            subprocess.run(["sh", "-c", ":"], check=True)
        for tracker, exact in ((newer, {"sleep"}), (older, {"sh"})):
            coverage = tracker.reports[0]["coverage"]
            self.assertEqual(coverage["layers"]["preload"], 1, coverage)
            heaviest = tracker.reports[0]["processes"]["heaviest"]
            named = {one["command"] for one in heaviest if one["cpu_quality"] == "exact"}
            self.assertLessEqual(exact, named)

    # Requirement: PY-20
    def test_own_programs_are_not_counted_for_another_process(self) -> None:
        other = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
        with Tracker(process_id=other.pid, disable_logs=True) as tracker:
            subprocess.run(["true"], check=True)
        other.communicate(timeout=PATIENCE_S)
        report = tracker.reports[0]
        self.assertEqual({one["command"] for one in report["processes"]["heaviest"]}, {"cat"})
        self.assertEqual(report["coverage"]["layers"]["preload"], 0)

    # Requirement: PY-70
    def test_program_that_adopts_orphans_has_it_as_a_child_that_is_reaped(self) -> None:
        code = """
import ctypes, os, gpu_track
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0, "PR_SET_CHILD_SUBREAPER"
with gpu_track.Tracker(disable_logs=True):
    print(os.waitpid(-1, os.WNOHANG))
try:
    os.wait()
except ChildProcessError:
    print("no child")
"""
        self.assertEqual(self.python(code).stdout, "(0, 0)\nno child\n")

    # Requirement: PY-71
    def test_program_that_exits_at_once_leaves_the_report_in_the_temporary_directory(self) -> None:
        place = self.directory / "temporary"
        place.mkdir()
        code = "import gpu_track, os; gpu_track.Tracker(disable_logs=True).start(); os._exit(0)"
        self.python(code, TMPDIR=os.fspath(place))
        wait_until(lambda: [*place.glob("gpu-track-py.*/report.json")])

    # Requirement: PY-5
    def test_killed_collection_leaves_the_program_and_its_variables_alone(self) -> None:
        tracker = Tracker(disable_logs=True)
        variables = dict(os.environ)
        tracker.start()
        attached = tracker._stretches[-1]._attached
        assert attached is not None
        os.kill(attached._pid, signal.SIGKILL)
        await_end(attached._pid)
        subprocess.run(["true"], check=True)
        try:
            tracker.stop()
        except RuntimeError as error:
            self.assertIn("ended before it wrote a report", str(error))
        self.assertEqual(dict(os.environ), variables)

    # Requirement: PY-3
    def test_program_without_standard_streams_is_tracked(self) -> None:
        code = """
import os, subprocess, gpu_track
with gpu_track.Tracker(disable_logs=True) as tracker, gpu_track.SubTracker("b", sub_tracking_file="marks.csv"):
    subprocess.run(["true"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
open("found", "w").write(str(tracker.reports[0]["coverage"]["layers"]["preload"]))
"""
        variables = {**os.environ, "PYTHONPATH": os.fspath(MODULE)}
        script = 'exec "$0" -c "$1" <&- >&- 2>&-'
        subprocess.run(["sh", "-c", script, sys.executable, code], env=variables, check=True, timeout=PATIENCE_S)
        self.assertEqual(self.text("found"), "1")

    # Requirement: PY-5
    def test_what_can_not_be_written_is_refused_at_the_start(self) -> None:
        with self.assertRaisesRegex(RuntimeError, 'needs the directory ".*none", which does not exist'):
            Tracker(tracking_file="none/run.csv").start()

    # Requirement: PY-1
    def test_another_process_is_tracked_to_its_end(self) -> None:
        other = subprocess.Popen([sys.executable, "-c", "b = bytearray(100_000_000); input()"], stdin=subprocess.PIPE)
        with Tracker(0.1, "bytes", process_id=other.pid, tracking_file="run.jsonl", disable_logs=True) as tracker:
            wait_until(lambda: any(point["ram_main_bytes"] > 1e8 for point in tracker.timeline(0.1)))
            other.communicate(b"\n", PATIENCE_S)
        assert tracker.resource_usage is not None
        self.assertGreater(tracker.resource_usage.max_ram.main.total_rss, 100_000_000)


class Analysis(Installed):
    def setUp(self) -> None:
        super().setUp()
        marks = "7,load,0,1.0\n7,load,1,3.5\n7,short,0,4.0\n7,short,1,4.25\n8,load,0,2.0\n"
        pathlib.Path("marks.csv").write_text(HEAD + marks, encoding="utf-8")
        samples = "ram_unit,n_expected_cores\nbytes,2\ntimestamp,main_ram\n0.5,1\n2.0,3\n3.0,5\n"
        pathlib.Path("run.csv").write_text(samples, encoding="utf-8")
        self.analyzer = SubTrackingAnalyzer("run.csv", "marks.csv")

    # Requirement: PY-13
    def test_results_are_those_of_the_program(self) -> None:
        results = self.analyzer.sub_tracking_results()
        found = results.to_json()
        self.assertEqual(found["static_data"], {"ram_unit": "bytes", "n_expected_cores": 2})
        overall = found["overall"]["main_ram"]
        self.assertAlmostEqual(overall.pop("std"), (8 / 3) ** 0.5, 12)
        self.assertEqual(overall, {"min": 1.0, "max": 5.0, "mean": 3.0})
        load, short = found["code_block_results"]
        self.assertEqual((load["name"], load["num_calls"], load["num_timepoints"]), ("load", 1, 2))
        self.assertEqual(load["resource_usage"]["main_ram"], {"min": 3.0, "max": 5.0, "mean": 4.0, "std": 1.0})
        self.assertEqual(short["resource_usage"]["main_ram"], dict.fromkeys(("min", "max", "mean", "std")))
        program = pathlib.Path(os.environ["GPU_TRACK_RUN"]).with_name("gpu-track")
        command = [os.fspath(program), "sub-track", "analyze", "--tf", "run.csv", "--stf", "marks.csv"]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        os.remove("run.csv")
        # The program has a table of all blocks before gpu_tracker's text.
        self.assertEqual(f"{results}\n", shown.partition("\n\n")[2])

    # Requirement: SQL-1
    def test_journal_beside_a_database_is_not_obeyed(self) -> None:
        with closing(sqlite3.connect("run.sqlite")) as base, base:
            base.execute("CREATE TABLE static_data (ram_unit TEXT)")
            base.execute("INSERT INTO static_data VALUES ('bytes')")
            base.execute("CREATE TABLE data (timestamp FLOAT, main_ram INTEGER, other TEXT)")
            base.execute("INSERT INTO data VALUES (0.5, 7, NULL), (2.0, 8, 'a, \"b\"')")
        samples = 'timestamp,main_ram,other\n0.5,7,\n2.0,8,"a, ""b"""\n'
        self.assertEqual(analysis.samples_of_database("run.sqlite"), samples)
        # It has no pages, and the name of a file that SQLite would delete (sqlite.org/fileformat2.html).
        magic, victim = bytes.fromhex("d9d505f920a163d7"), pathlib.Path("victim")
        victim.write_text("precious", encoding="utf-8")
        name = os.fsencode(victim.resolve())
        head = (magic + struct.pack(">IIIII", 0, 1, os.path.getsize("run.sqlite") // 4096, 512, 4096)).ljust(512, b"\0")
        end = struct.pack(">I", 1) + name + struct.pack(">II", len(name), sum(name)) + magic
        journal = pathlib.Path("run.sqlite-journal")
        journal.write_bytes(head + end)
        analyzer = SubTrackingAnalyzer("run.sqlite", "marks.csv")
        for read in (analyzer.sub_tracking_results, lambda: analysis.samples_of_database("run.sqlite")):
            with self.assertRaisesRegex(ValueError, "which names another file"):
                read()
        self.assertEqual(journal.read_bytes(), head + end)
        self.assertTrue(victim.exists())

    # Requirement: PY-13
    def test_calls_are_listed(self) -> None:
        self.assertEqual(self.analyzer.load_code_block_names(), ["load", "short"])
        self.assertEqual(self.analyzer.load_timestamp_pairs("load"), [(1.0, 3.5)])
        self.assertEqual(self.analyzer.load_timestamp_pairs("none"), [])
        pathlib.Path("bad.csv").write_text(f"{HEAD}7,load,1,1.0\n", encoding="utf-8")
        with self.assertRaisesRegex(ValueError, "without having entered it"):
            SubTrackingAnalyzer(None, "bad.csv").load_timestamp_pairs("load")
        with self.assertRaises(FileNotFoundError):
            SubTrackingAnalyzer(None, "none.csv").load_code_block_names()
        with self.assertRaisesRegex(ValueError, "there is no tracking file"):
            SubTrackingAnalyzer(None, "marks.csv").sub_tracking_results()
        with self.assertRaisesRegex(ValueError, 'Invalid file name: "a.txt"'):
            SubTrackingAnalyzer("a.txt", "marks.csv")

    # Requirement: PY-13
    def test_files_are_combined(self) -> None:
        for name, pid in (("-a.csv", 1), ("b.csv", 2)):
            pathlib.Path(name).write_text(f"{HEAD}{pid},x,0,1.0\n{pid},x,1,2.0\n", encoding="utf-8")
        SubTrackingAnalyzer(None, "all.csv").combine_sub_tracking_files(["-a.csv", "b.csv"])
        rows = "1,x,0,1.0\n1,x,1,2.0\n2,x,0,1.0\n2,x,1,2.0\n"
        self.assertEqual(self.text("all.csv"), HEAD + rows)
        exists = "Cannot create sub-tracking file all.csv. File already exists."
        with self.assertRaisesRegex(ValueError, exists):
            SubTrackingAnalyzer(None, "all.csv").combine_sub_tracking_files(["b.csv"])
        other = 'File b.csv does not end with the same extension as all.sqlite. Must end in ".sqlite".'
        with self.assertRaisesRegex(ValueError, other):
            SubTrackingAnalyzer(None, "all.sqlite").combine_sub_tracking_files(["b.csv"])

    # Requirement: PY-14
    def test_pickles_and_json_of_results_are_compared(self) -> None:
        results = self.analyzer.sub_tracking_results()
        pathlib.Path("a.pkl").write_bytes(pickle.dumps(results))
        pathlib.Path("b.json").write_text(json.dumps(results.to_json()), encoding="utf-8")
        comparison = TrackingComparison({"B": "b.json", "A": "a.pkl"})
        self.assertEqual(list(comparison.results_map), ["B", "A"])
        self.assertEqual(comparison.results_map["A"].to_json(), results.to_json())
        compared = comparison.compare("max")
        self.assertEqual(compared.to_json()["overall_resource_usage"]["main_ram"], {"B": 5.0, "A": 5.0})
        self.assertTrue(str(compared).startswith("Overall Resource Usage:\n\tMain Ram:\n"), compared)
        with self.assertRaisesRegex(ValueError, "Invalid summary statistic 'x'. Valid values are min max mean std."):
            comparison.compare("x")

    # Requirement: PY-14
    def test_blocks_that_do_not_match_are_refused(self) -> None:
        one = self.analyzer.sub_tracking_results().to_json()
        other = {**one, "code_block_results": one["code_block_results"][:1]}
        moved = json.loads(json.dumps(one).replace('"load"', '"a.py:1"'))
        lines = json.loads(json.dumps(one).replace('"load"', '"a.py:2"'))
        for name, value in (("one", one), ("other", other), ("moved", moved), ("lines", lines)):
            pathlib.Path(f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
        with self.assertRaisesRegex(ValueError, "All sub-tracking results must have the same number of code blocks."):
            TrackingComparison({"A": "one.json", "B": "other.json"})
        with self.assertRaisesRegex(ValueError, "does not match code block name"):
            TrackingComparison({"A": "one.json", "B": "moved.json"})
        with self.assertLogs("gpu_track", logging.WARNING) as logs:
            comparison = TrackingComparison({"A": "moved.json", "B": "lines.json"})
        self.assertIn("but they differ by line number", logs.output[0])
        self.assertIn("a.py:1 -> a.py:2", comparison.compare().to_json()["code_block_compute_time"])

    # Requirement: PY-15, TIME-67
    def test_pickle_of_a_run_has_its_usage_and_its_exit_status(self) -> None:
        def run(*arguments: str) -> tuple[int, str, str]:
            done = self.run_python(["-m", "gpu_track", *arguments])
            return done.returncode, done.stdout, done.stderr

        line = ["-e", "sh -c true", "--ru=bytes", "--tu", "seconds", "--disable-logs"]
        json_line = run(*line, "-f", "json", "-o", "run.json")
        self.assertEqual(run(*line, "--form=pickle", "-orun.pkl"), json_line)
        usage = pickle.loads(pathlib.Path("run.pkl").read_bytes())
        self.assertIsInstance(usage, ResourceUsage)
        self.assertGreater(usage.max_ram.combined.total_rss, 0)
        self.assertEqual((usage.max_ram.unit, usage.compute_time.unit), ("bytes", "seconds"))
        self.assertEqual(usage.to_json().keys(), json.loads(self.text("run.json")).keys())
        # What is wrong is one line, and no command runs.
        for wrong, message in (
            (["-f", "pickle"], "a pickle is no text: name a file with --output"),
            (["-f", "pickle", "-o", "none/run.pkl"], "No such file or directory: 'none/run.pkl'"),
            (["-f", "pickle", "-o", "x.pkl", "--st=x"], "--st"),
        ):
            status, text, error = run("-e", "touch ran", *wrong)
            self.assertEqual((status, text, error.count("\n")), (1, "", 1))
            self.assertTrue(error.startswith("ERROR:root:") and message in error, error)
        self.assertEqual([name for name in ("ran", "x.pkl") if os.path.exists(name)], [])

    # Requirement: PY-15
    def test_module_is_a_program_like_gpu_tracker(self) -> None:
        def run(*arguments: str) -> tuple[int, str, str]:
            done = self.run_python(["-m", "gpu_track", *arguments])
            return done.returncode, done.stdout, done.stderr

        self.assertEqual(run("--version"), (0, "5.0.1\n", ""))
        analyze = ["sub-track", "analyze", "--tf=run.csv", "--stf=marks.csv"]
        status, text, _ = run(*analyze)
        self.assertEqual((status, text), (0, f"{self.analyzer.sub_tracking_results()}\n"))
        self.assertEqual(run(*analyze, "--form=pickle", "-o", "a.pkl"), (0, "", ""))
        self.assertEqual(run(*analyze, "-f", "json", "-o", "b.json")[0], 0)
        compare = ["sub-track", "compare", "-m", "A=a.pkl", "-m", "B=b.json", "--stat=max"]
        compared = TrackingComparison({"A": "a.pkl", "B": "b.json"}).compare("max")
        self.assertEqual(run(*compare), (0, f"{compared}\n", ""))
        self.assertEqual(run(*compare, "-f", "json"), (0, json.dumps(compared.to_json(), indent=1) + "\n", ""))
        self.assertEqual(run(*compare, "-f", "pickle", "-o", "c.pkl"), (0, "", ""))
        again = pickle.loads(pathlib.Path("c.pkl").read_bytes())
        self.assertEqual((str(again), again.to_json()), (str(compared), compared.to_json()))
        for command in ("analyze", "compare"):
            status, text, error = run("sub-track", command, "--help")
            self.assertEqual((status, error), (0, ""))
            self.assertIn(f"sub-track {command}", text)
        # A class of a module that is not installed.
        pathlib.Path("pandas.pkl").write_bytes(b"cpandas.none\nDataFrame\n.")
        for wrong, message in (
            (["compare", "-m", "A=none.pkl"], "No such file or directory: 'none.pkl'"),
            (["compare", "-m", "a"], 'ERROR:root:-m "a" has no "=": give NAME=FILE'),
            (
                ["compare", "-m", "A=pandas.pkl"],
                'ERROR:root:"pandas.pkl" has tables of pandas, which is needed to read',
            ),
            (["compare"], "ERROR:root:A mapping of tracking session name to file path must be provided"),
            ([*analyze[1:], "-f", "pickle"], "ERROR:root:a pickle is no text: name a file with --output"),
        ):
            status, _, error = run("sub-track", *wrong)
            self.assertEqual((status, error.count("\n")), (1, 1), error)
            self.assertIn(message, error)

    # Requirement: PY-14
    def test_pickle_of_other_things_is_refused(self) -> None:
        for name, value in (("list.pkl", [1]), ("command.pkl", Command())):
            pathlib.Path(name).write_bytes(pickle.dumps(value))
            with self.assertRaisesRegex(ValueError, f'"{name}" has no results of sub-tracking: '):
                TrackingComparison({"A": name})
        self.assertFalse(os.path.exists("was-run"))


class Command:
    """What a pickle could run."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("was-run",)


class Marks(Installed):
    # Requirement: PY-11
    def test_calls_of_coroutines_that_overlap_have_their_own_times(self) -> None:
        for form in ("csv", "sqlite"):
            name = f"marks.{form}"
            times: dict[str, tuple[float, float]] = {}

            @sub_track("wait", sub_tracking_file=name)
            async def wait(task: str, own: asyncio.Event, other: asyncio.Event) -> None:
                begin_s = time.time()
                own.set()
                await other.wait()
                times[task] = begin_s, time.time()  # noqa: B023

            async def main() -> None:
                first, second, last = (asyncio.Event() for _ in range(3))
                early = asyncio.get_running_loop().create_task(wait("early", first, second))
                await first.wait()
                late = asyncio.get_running_loop().create_task(wait("late", second, last))
                await early
                last.set()
                await late

            asyncio.run(main())
            found = SubTrackingAnalyzer(None, name).load_timestamp_pairs("wait")
            for (start, stop), (begin_s, end_s) in zip(found, (times["early"], times["late"])):
                self.assertLessEqual((start, end_s), (begin_s, stop))
            self.assertLess(found[0][1], found[1][1])

    # Requirement: PY-10
    def test_marks_of_both_forms_are_read_by_the_program(self) -> None:
        for form in ("csv", "sqlite"):
            name = f"marks.{form}"
            with SubTracker('a, "b"\nc', sub_tracking_file=name), SubTracker("d", sub_tracking_file=name):
                pass
            self.assertEqual(SubTrackingAnalyzer(None, name).load_code_block_names(), ['a, "b"\nc', "d"])


if __name__ == "__main__":
    unittest.main()
