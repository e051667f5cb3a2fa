"""Tests of scripts/truth, and of the workloads in tests/truth."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import subprocess
import tempfile
import unittest
from typing import Any
from unittest import mock

import sources
import trees
import workloads
from gpu_track_scripts.commands import words
from gpu_track_scripts.tools import Unavailable, cache
from gpu_track_scripts.truth import cli, compare, runner, table
from workloads import Workload

WORKLOAD = Workload("make | tee", "make")
MB = 1_000_000


def recorded(pid: int, hiwater_rss_bytes: int, *, ppid: int = 1, execs: int = 1) -> dict[str, Any]:
    return {"pid": pid, "ppid": ppid, "execs": execs, "comm": "cc1", "hiwater_rss_bytes": hiwater_rss_bytes}


def record_of(
    *processes: dict[str, Any], cpu_s: float = 10.0, entrance_rss_bytes: int = 0, left: int = 0
) -> dict[str, Any]:
    return {
        "status": 0,
        "wall_s": 5.0,
        "cpu_at_end_s": cpu_s / 2,
        "cpu_s": cpu_s,
        "left_at_end": left,
        "entrance_rss_bytes": entrance_rss_bytes,
        "processes": list(processes),
    }


def reported(pid: int, peak_rss_bytes: int | None, *, ppid: int = 1, quality: str = "exact") -> dict[str, Any]:
    return {"pid": pid, "ppid": ppid, "peak_rss_bytes": peak_rss_bytes, "peak_quality": quality}


def report_of(*heaviest: dict[str, Any], total: int = 1, cpu_s: float = 10.0) -> dict[str, Any]:
    return {
        "processes": {"total": total, "heaviest": list(heaviest)},
        "cpu_time": {"total_s": cpu_s},
        "coverage": {"processes": total, "exact": total, "static_executables": ["go"]},
    }


class Tolerance(unittest.TestCase):
    def test_small_processes_are_off_by_three_counters(self) -> None:
        self.assertEqual(compare.rss_tolerance_bytes(1, 2, 4096), 3 * 32 * 4096 * 2)

    def test_large_processes_are_off_by_one_percent(self) -> None:
        self.assertEqual(compare.rss_tolerance_bytes(1e9, 2, 4096), 1e7)

    def test_batches_grow_with_the_processors(self) -> None:
        self.assertEqual(compare.rss_tolerance_bytes(1, 64, 4096), 3 * 128 * 4096 * 64)


class Peaks(unittest.TestCase):
    def setUp(self) -> None:
        patch = mock.patch.object(compare, "tolerance_here_bytes", return_value=1000.0)
        patch.start()
        self.addCleanup(patch.stop)

    def peaks(self, record: dict[str, Any], *heaviest: dict[str, Any], may_grow: bool = False) -> compare.Peaks:
        return compare.compare_peaks(record, report_of(*heaviest), may_grow)

    def test_errors_are_parts_of_the_tolerance(self) -> None:
        found = self.peaks(record_of(recorded(7, 5000)), reported(7, 5500))
        self.assertEqual((found.parts, found.percents, found.wrong), ([0.5], [], []))

    def test_large_processes_also_have_a_percentage(self) -> None:
        found = self.peaks(record_of(recorded(7, 10 * MB)), reported(7, 10 * MB - 100))
        self.assertEqual((found.parts, found.percents), ([0.1], [0.001]))

    def test_an_error_above_the_tolerance_is_wrong(self) -> None:
        found = self.peaks(record_of(recorded(7, 5000)), reported(7, 6001))
        self.assertEqual(found.wrong, ["pid 7 cc1: 6001 for 5000"])

    def test_inexact_peaks_are_only_counted(self) -> None:
        found = self.peaks(record_of(recorded(7, 5)), reported(7, 9 * MB, quality="sampled"), reported(7, None))
        self.assertEqual((found.inexact, found.parts), (2, []))

    def test_a_larger_peak_is_right_after_several_execs(self) -> None:
        record = record_of(recorded(7, 5000, execs=2))
        self.assertEqual(self.peaks(record, reported(7, 9000)).parts, [])
        self.assertEqual(len(self.peaks(record, reported(7, 1000)).wrong), 1)

    def test_a_larger_peak_may_be_from_before_the_exec(self) -> None:
        record = record_of(recorded(7, 5000))
        self.assertEqual(self.peaks(record, reported(7, 9000), may_grow=True).wrong, [])
        self.assertEqual(len(self.peaks(record, reported(7, 9000)).wrong), 1)

    def test_the_root_includes_the_image_before_its_exec(self) -> None:
        record = record_of(recorded(7, 5000), entrance_rss_bytes=9000)
        self.assertEqual(self.peaks(record, reported(7, 9000)).parts, [0.0])

    def test_a_reused_pid_is_told_apart_by_its_parent(self) -> None:
        record = record_of(recorded(7, 5000, ppid=1), recorded(7, 8000, ppid=2))
        self.assertEqual(self.peaks(record, reported(7, 8000, ppid=2)).parts, [0.0])
        self.assertEqual(self.peaks(record, reported(7, 8000, ppid=3)).parts, [])

    def test_an_unknown_pid_is_not_compared(self) -> None:
        self.assertEqual(self.peaks(record_of(recorded(7, 5000)), reported(8, 1)), compare.Peaks())


class Rows(unittest.TestCase):
    def test_a_right_row(self) -> None:
        row = compare.row_of(WORKLOAD, record_of(recorded(7, MB)), report_of(reported(7, MB), cpu_s=10.05))
        row.wall_ratio = 1.014
        self.assertEqual(row.broken_rules(), [])
        self.assertEqual(
            row.cells(),
            ["make \\| tee", "1 / 1", "100.0", "10.000", "+0.50", "", "0.00, 0.00 (1)", "1.01", "-"],
        )
        self.assertEqual(len(row.cells()), len(compare.HEADS))
        self.assertEqual(row.notes(), [])

    def test_broken_rules_are_named(self) -> None:
        report = report_of(reported(7, 900 * MB), total=2, cpu_s=10.2)
        row = compare.row_of(WORKLOAD, record_of(recorded(7, MB)), report)
        self.assertEqual(row.broken_rules(), ["processes", "CPU", "peak RSS (1)"])
        self.assertEqual(
            row.notes(),
            [
                "make | tee: peak RSS of pid 7 cc1: 900000000 for 1000000",
                "make | tee: static executables: go",
            ],
        )

    def test_cpu_is_compared_at_the_end_of_the_command(self) -> None:
        workload = Workload("daemon", "daemon &", wait_all=False)
        row = compare.row_of(workload, record_of(recorded(7, MB)), report_of(cpu_s=5.0))
        self.assertEqual((row.cpu_s, row.cpu_error_percent), (5.0, 0.0))

    def test_inexact_peaks_are_shown(self) -> None:
        row = compare.row_of(WORKLOAD, record_of(recorded(7, MB)), report_of(reported(7, None)))
        self.assertEqual(row.cells()[6], ", 1 inexact")

    def test_the_worst_row_breaks_most_rules(self) -> None:
        def row(cpu_s: float, total: int = 1) -> compare.Row:
            return compare.row_of(WORKLOAD, record_of(recorded(7, MB)), report_of(cpu_s=cpu_s, total=total))

        right, further_off, broken = row(10.0), row(9.95), row(10.0, total=2)
        self.assertIs(compare.worst_of([right, further_off]), further_off)
        self.assertIs(compare.worst_of([further_off, broken, right]), broken)


class Runner(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.temporary = pathlib.Path(temporary.name)

    def runner(self, recorder: str = "recorder", *, as_user: bool = False) -> runner.Runner:
        return runner.Runner(
            pathlib.Path(recorder), pathlib.Path("tracker"), ["--layers", "scan"], as_user, None, self.temporary
        )

    def test_the_recorder_counts_the_command_alone(self) -> None:
        directory, truth, ours = pathlib.Path("/w"), pathlib.Path("/t"), pathlib.Path("/o")
        line = words(self.runner().command_line(WORKLOAD, directory, truth, ours))
        self.assertEqual(
            " ".join(line),
            "recorder record -o /t --grace 60 -- tracker -f json --ru bytes -o /o --layers scan --wait-all -- "
            "@ sh -c make",
        )
        left = Workload("daemon", "daemon &", wait_all=False)
        line = words(self.runner().command_line(left, directory, truth, None))
        self.assertEqual(" ".join(line), "recorder record -o /t --grace 0 -- @ sh -c daemon &")

    def test_another_user_runs_only_tracker_and_command(self) -> None:
        line = words(
            self.runner(as_user=True).command_line(WORKLOAD, pathlib.Path("/w"), pathlib.Path("/t"), pathlib.Path("/o"))
        )
        self.assertLess(line.index("recorder"), line.index("setpriv"))
        self.assertLess(line.index("setpriv"), line.index("tracker"))
        self.assertIn("HOME=/w", line)

    def test_dropped_messages_are_no_failure(self) -> None:
        truth = self.temporary / "truth.json"
        for message in runner.LOST:
            with self.assertRaises(runner.NoTruth):
                runner.checked_record(WORKLOAD, 1, f"gpu-track-truth: {message}", truth)
        with self.assertRaisesRegex(runner.Failed, "no record: other"):
            runner.checked_record(WORKLOAD, 1, "other", truth)

    def test_a_command_must_succeed_unless_it_may_fail(self) -> None:
        truth = self.temporary / "truth.json"
        record = record_of(recorded(7, MB)) | {"status": 256}
        truth.write_text(json.dumps(record), encoding="utf-8")
        with self.assertRaisesRegex(runner.Failed, "wait status 256"):
            runner.checked_record(WORKLOAD, 0, "", truth)
        self.assertEqual(runner.checked_record(Workload("k", "k", any_end=True), 0, "", truth), record)

    def test_a_run_without_truth_is_repeated(self) -> None:
        record = record_of(recorded(7, MB))
        right = (record, report_of(reported(7, MB)))
        dropped = runner.NoTruth("ENOBUFS")
        ours = self.runner()
        with mock.patch.object(runner.Runner, "run", side_effect=[dropped, (record, None), dropped, dropped, right]):
            self.assertEqual(ours.compare(WORKLOAD, 1).wall_ratio, 1.0)
        with mock.patch.object(runner.Runner, "run", side_effect=[dropped] * runner.TRIES):
            self.assertRaises(runner.NoTruth, ours.compare, WORKLOAD, 1)

    def test_no_wall_ratio_if_processes_outlive_the_command(self) -> None:
        record = record_of(recorded(7, MB), left=1)
        results = [(record, None), (record, report_of())]
        with mock.patch.object(runner.Runner, "run", side_effect=results):
            self.assertIsNone(self.runner().compare(WORKLOAD, 1).wall_ratio)

    def test_preparation_is_shell_code_or_a_function(self) -> None:
        runner.prepare(Workload("w", "", prepare="cp $FILES/Snakefile ."), self.temporary)
        runner.prepare(Workload("w", "", prepare=lambda path: (path / "made").mkdir()), self.temporary)
        runner.prepare(WORKLOAD, self.temporary)
        self.assertEqual({path.name for path in self.temporary.iterdir()}, {"Snakefile", "made"})

    def test_the_reason_why_nothing_can_be_recorded(self) -> None:
        self.assertIsNone(runner.why_no_truth(pathlib.Path("true"), self.temporary))
        recorder = self.temporary / "recorder"
        recorder.write_text("#!/bin/sh\necho needs root >&2; exit 1\n", encoding="utf-8")
        recorder.chmod(0o755)
        self.assertEqual(runner.why_no_truth(recorder, self.temporary), "needs root")

    def test_kept_results_have_short_plain_names(self) -> None:
        self.assertEqual(runner.kept_name("a: b | c" + "x" * 99), ("a_b_c" + "x" * 99)[:60])


class Table(unittest.TestCase):
    def print_table(self, *results: compare.Row | Exception, only_broken: bool = False) -> tuple[str, table.Tally]:
        answers = iter(results)

        def answer(_: Workload) -> compare.Row:
            result = next(answers)
            if isinstance(result, Exception):
                raise result
            return result

        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            tally = table.print_table([WORKLOAD] * len(results), answer, only_broken=only_broken)
        return output.getvalue(), tally

    def row(self, cpu_s: float = 10.0) -> compare.Row:
        return compare.row_of(WORKLOAD, record_of(recorded(7, MB)), report_of(cpu_s=cpu_s))

    def test_every_end_is_counted_and_explained(self) -> None:
        failed = subprocess.CalledProcessError(1, "prepare")
        text, tally = self.print_table(
            self.row(), self.row(11), Unavailable("no go"), runner.NoTruth("busy"), runner.Failed("x"), failed
        )
        self.assertEqual(text.splitlines()[-1], "1 right, 1 short, 1 skipped, 1 without a truth, 2 failed")
        self.assertIn("skipped: make | tee: no go", text)
        self.assertIn("no truth in 3 runs: make | tee: busy", text)
        self.assertIn("failed: make | tee: x", text)
        self.assertEqual(tally.status(), 1)

    def test_skipped_workloads_are_no_failure(self) -> None:
        self.assertEqual(self.print_table(self.row(), Unavailable("no go"))[1].status(), 0)

    def test_dropped_messages_fail_if_nothing_was_compared(self) -> None:
        self.assertEqual(self.print_table(self.row(), runner.NoTruth("busy"))[1].status(), 0)
        self.assertEqual(self.print_table(runner.NoTruth("busy"))[1].status(), 1)

    def test_of_random_trees_only_broken_rows_are_shown(self) -> None:
        text, _ = self.print_table(self.row(), self.row(11), only_broken=True)
        self.assertEqual(text.count("make \\| tee"), 1)
        self.assertIn("+10.00", text)


class CommandLine(unittest.TestCase):
    def names(self, *arguments: str) -> list[str]:
        return [workload.name for workload in cli.selected(cli.parse_arguments(arguments))]

    def test_all_workloads_run_by_default(self) -> None:
        self.assertEqual(self.names(), [workload.name for workload in workloads.WORKLOADS])

    def test_quick_leaves_out_the_long_ones(self) -> None:
        self.assertNotIn("go build", self.names("--quick"))
        self.assertLess(len(self.names("--quick")), len(self.names()))

    def test_words_select_by_part_of_the_name(self) -> None:
        self.assertEqual(self.names("musl", "xargs"), ["musl, static", "musl, dynamic", "xargs -P 4"])

    def test_commands_replace_the_table(self) -> None:
        self.assertEqual(self.names("--command", "true", "--command", "a | b"), ["true", "a | b"])

    def test_trees_start_below_an_init(self) -> None:
        def through(*arguments: str) -> str:
            options = cli.parse_arguments(["--trees", "2", "--seed", "5", *arguments])
            with mock.patch.object(trees, "workloads", return_value=[]) as made:
                cli.random_trees(options, pathlib.Path("/t"))
            self.assertEqual(made.call_args.args[0], range(5, 7))
            return str(made.call_args.args[3])

        self.assertEqual(through(), "")
        self.assertEqual(through("--below", "init"), "unshare -fp {}/init")
        self.assertEqual(through("--below", "static-init", "--as-user"), "unshare -Ufp {}/init-static")
        self.assertEqual(through("--below", "static-subreaper"), "{}/init-static -s")

    def test_the_system_is_named_as_os_release_has_it(self) -> None:
        self.assertEqual(cli.os_name('ID=debian\nPRETTY_NAME="Debian GNU/Linux 12"\n'), "Debian GNU/Linux 12")
        self.assertEqual(cli.os_name("PRETTY_NAME=Alpine\n"), "Alpine")
        self.assertEqual(cli.os_name(""), "?")

    def test_missing_programs_and_rights_are_reasons(self) -> None:
        with self.assertRaisesRegex(Unavailable, "/nonexistent is missing \\(package none\\)"):
            cli.require_installed(Workload("w", "", (("/nonexistent", "none"),)), False)
        with self.assertRaisesRegex(Unavailable, "root's rights"):
            cli.require_installed(Workload("w", "", any_user=False), True)
        cli.require_installed(Workload("w", "", (("sh", "dash"), ("/", "base-files"))), True)

    def test_an_ordinary_user_is_told_with_status_77(self) -> None:
        with mock.patch.object(os, "geteuid", return_value=1000), contextlib.redirect_stderr(io.StringIO()) as errors:
            self.assertEqual(cli.main([]), 77)
        self.assertIn("needs root", errors.getvalue())


class Sources(unittest.TestCase):
    def test_binary_lists_become_source_lists(self) -> None:
        text = "# main\ndeb http://x bookworm main\ndeb-src http://x bookworm main\n"
        self.assertEqual(sources.source_list("sources.list", text), "deb-src http://x bookworm main\n")
        self.assertEqual(sources.source_list("d.sources", "Types: deb\nURIs: x\n"), "Types: deb-src\nURIs: x\n")
        self.assertIsNone(sources.source_list("README", text))

    def test_an_archive_with_another_checksum_is_missing(self) -> None:
        with tempfile.TemporaryDirectory() as name, mock.patch.dict(os.environ, XDG_CACHE_HOME=name):
            (cache() / sources.SOURCES["hello"][0]).write_bytes(b"other")
            for package in sources.SOURCES:
                self.assertRaises(Unavailable, sources.archive, package)

    def test_what_is_there_is_not_fetched_again(self) -> None:
        with mock.patch.object(sources, "archive"), mock.patch.object(sources, "private_apt") as apt:
            sources.fetch_missing(list(sources.SOURCES))
        apt.assert_not_called()

    def test_only_missing_packages_are_installed(self) -> None:
        needs = (("sh", "dash"), ("/nonexistent", "b"), ("/nonexistent", "a"))
        with mock.patch.object(sources, "install") as install:
            workloads.install([Workload("w", "", needs)])
        install.assert_called_once_with(["a", "b"])


class Trees(unittest.TestCase):
    def test_a_seed_gives_the_same_tree(self) -> None:
        scripts = [trees.script(seed, trees.MAKERS) for seed in range(100)]
        self.assertEqual(scripts, [trees.script(seed, trees.MAKERS) for seed in range(100)])
        self.assertGreater(len(set(scripts)), 80)

    def test_braces_match(self) -> None:
        for seed in range(100):
            depth = 0
            for letter in trees.script(seed, trees.ALL_MAKERS):
                depth += {"{": 1, "}": -1}.get(letter, 0)
                self.assertGreaterEqual(depth, 0)
            self.assertEqual(depth, 0)

    def test_hidden_children_only_with_all_kinds(self) -> None:
        plain = "".join(trees.script(seed, trees.MAKERS) for seed in range(200))
        every = "".join(trees.script(seed, trees.ALL_MAKERS) for seed in range(200))
        for maker in "FPE":
            self.assertNotIn(maker + "{", plain)
            self.assertIn(maker + "{", every)


if __name__ == "__main__":
    unittest.main()
