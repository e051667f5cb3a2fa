"""Tests of Tracker, with a program in the place of gpu-track-run that fails in all ways."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import math
import os
import pathlib
import pkgutil
import re
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import gpu_track
from gpu_track import Tracker, _attached
from gpu_track.resource_usage import ProcessingUnitPercentages, ResourceUsage, RSSValues, joined
from gpu_track_tests.places import PATIENCE_S, InDirectory, await_end, wait_until

PERCENTAGES = dict.fromkeys(ProcessingUnitPercentages.__dataclass_fields__, 50.5)
RSS = dict.fromkeys(RSSValues.__dataclass_fields__, 0.25)
# The first keys of a report.
REPORT: dict[str, Any] = {
    "max_ram": {
        "unit": "gigabytes",
        "system_capacity": 8.0,
        "system": 2.0,
        "main": {**RSS, "private_rss": None, "shared_rss": None},
        "descendants": RSS,
        "combined": RSS,
    },
    "max_gpu_ram": {
        "unit": "gigabytes",
        "system_capacity": 0.0,
        **dict.fromkeys(("system", "main", "descendants", "combined"), 0.0),
    },
    "cpu_utilization": {
        "system_core_count": 2,
        "n_expected_cores": 2,
        **dict.fromkeys(("system", "main", "descendants", "combined"), PERCENTAGES),
        **dict.fromkeys(("main_n_threads", "descendants_n_threads", "combined_n_threads"), 3),
    },
    "gpu_utilization": {"system_gpu_count": 0, "n_expected_gpus": 0, "gpu_percentages": PERCENTAGES},
    "compute_time": {"unit": "hours", "time": 0.5},
    "stage": "final",
    "wall_s": 1800.0,
    "warnings": [{"topic": "figures", "text": "The disk was full."}],
}
READY = {"version": 1, "environment": {"LD_PRELOAD": "/nowhere/none.so", "GPU_TRACK_SESSION": "/nowhere"}}
# Tells that it is ready, and writes a report when it is asked to end.
GOOD = """
trap 'cp "$report" "$output"; exit 0' TERM
echo "$ready" >&"$fd"
while :; do sleep 0.01 & wait; done
"""


class WithProgram(InDirectory):
    def setUp(self) -> None:
        super().setUp()
        # The program itself must not try to load what it names.
        self.enterContext(mock.patch.dict(os.environ))
        self.temporary = self.directory / "temporary"
        self.temporary.mkdir()
        self.enterContext(mock.patch.object(tempfile, "tempdir", os.fspath(self.temporary)))

    if not hasattr(unittest.TestCase, "enterContext"):

        def enterContext(self, context: contextlib.AbstractContextManager[Any]) -> Any:  # noqa: ANN401, N802
            """As that of Python 3.11."""
            entered = context.__enter__()
            self.addCleanup(context.__exit__, None, None, None)
            return entered

    def program(self, script: str, report: object = REPORT) -> None:
        """Puts a shell script in the place of gpu-track-run."""
        path = self.directory / "gpu-track-run"
        values = {
            "ready": json.dumps(READY),
            "report": os.fspath(self.directory / "given.json"),
            "arguments": os.fspath(self.directory / "arguments"),
        }
        (self.directory / "given.json").write_text(json.dumps(report), encoding="utf-8")
        setting = "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())
        parse = """
        printf '%s\\n' "$@" >>"$arguments"
        unset output
        while [ $# -gt 0 ]; do
            case $1 in --ready-fd) fd=$2 ;; -o) output=${output-$2} ;; esac
            shift
        done
        """
        path.write_text(f"#!/bin/bash\n{setting}{textwrap.dedent(parse)}{script}", encoding="utf-8")
        path.chmod(0o755)
        os.environ["GPU_TRACK_RUN"] = os.fspath(path)

    def none_runs(self) -> bool:
        """Whether no program of this test runs."""
        place = os.fsencode(self.directory)
        for command in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if place in command.read_bytes():
                    return False
        return True

    def arguments(self) -> list[str]:
        """Those of all runs of the program."""
        return (self.directory / "arguments").read_text(encoding="utf-8").splitlines()

    @contextlib.contextmanager
    def warned(self, *expected: str) -> Iterator[None]:
        """Expects warnings that begin so, and no others."""
        with self.assertLogs("gpu_track", "WARNING") as logs:
            yield
        found = [record.getMessage() for record in logs.records]
        self.assertEqual(len(found), len(expected), found)
        for line, begin in zip(found, expected):
            self.assertTrue(line.startswith(begin), found)


@contextlib.contextmanager
def interrupted(function: str, calls_before: int) -> Iterator[None]:
    """Ctrl-C comes in place of one call of a function, after so many others."""
    place, _, name = function.rpartition(".")
    owner = pkgutil.resolve_name(place)
    real = getattr(owner, name)
    calls = itertools.count()

    def call(*arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401
        if next(calls) == calls_before:
            raise KeyboardInterrupt
        return real(*arguments, **keywords)

    with mock.patch.object(owner, name, call):
        yield


class Use(WithProgram):
    # Requirement: PY-1
    def test_states_and_their_errors_are_those_of_gpu_tracker(self) -> None:
        self.program(GOOD)
        tracker = Tracker(disable_logs=True)
        self.assertEqual((repr(tracker), tracker.resource_usage), ("State: NEW", None))
        for act in (tracker.to_json, tracker.__str__):
            with self.assertRaisesRegex(RuntimeError, "Cannot display the tracker .* before tracking completes."):
                act()
        with self.assertRaisesRegex(RuntimeError, "Cannot stop tracking when tracking has not started yet."):
            tracker.stop()
        tracker.start()
        self.assertEqual((repr(tracker), tracker.state), ("State: STARTED", Tracker.State.STARTED))
        with self.assertRaisesRegex(RuntimeError, "Cannot start tracking when tracking has already started."):
            tracker.start()
        tracker.stop()
        self.assertEqual(repr(tracker), "State: STOPPED")
        with self.assertRaisesRegex(RuntimeError, "Cannot start tracking when tracking has already stopped."):
            tracker.start()
        with self.assertRaisesRegex(RuntimeError, "Cannot stop tracking when tracking has already stopped."):
            tracker.stop()
        self.assertEqual(list(self.temporary.iterdir()), [])

    # Requirement: PY-1
    def test_wrong_arguments_are_refused_as_by_gpu_tracker(self) -> None:
        self.program(GOOD)
        units = "bytes, gigabytes, kilobytes, megabytes, terabytes"
        for arguments, text in (
            ({"sleep_time": 0.0}, "Sleep time of 0.0 is invalid. Must be at least 0.1 seconds."),
            ({"sleep_time": math.nan}, "Sleep time of nan is invalid."),
            ({"ram_unit": "milibytes"}, f'"milibytes" is not a valid RAM unit. Valid values are {units}'),
            ({"gpu_ram_unit": ""}, '"" is not a valid GPU RAM unit. Valid values are bytes, '),
            (
                {"time_unit": "weeks"},
                '"weeks" is not a valid time unit. Valid values are days, hours, minutes, seconds',
            ),
            ({"gpu_brand": "x"}, '"x" is not a valid GPU brand. Supported values are "nvidia", "amd"'),
            ({"n_expected_cores": 0}, "n_expected_cores of 0 is invalid. Must be at least 1."),
            ({"n_expected_cores": 2.5}, "n_expected_cores of 2.5 is invalid. Must be a whole number."),
            ({"tracking_file": "a.txt"}, 'Invalid file name: "a.txt". Valid file extensions are ".csv", ".sqlite"'),
        ):
            with self.assertRaises(ValueError, msg=arguments) as refused:
                Tracker(**arguments)
            self.assertTrue(str(refused.exception).startswith(text), refused.exception)
        pathlib.Path("old.csv").touch()
        with self.assertRaisesRegex(FileExistsError, "File old.csv already exists. Set overwrite to True to"):
            Tracker(tracking_file="old.csv")
        Tracker(tracking_file="old.csv", overwrite=True)

    # Requirement: PY-1
    def test_arguments_are_options_of_gpu_track_run(self) -> None:
        self.program(GOOD)
        with Tracker(0.5, "bytes", "kilobytes", "days", 3, None, True, 1, None, 5, 10.0, "amd", "run %p.csv", True):
            pass
        given = self.arguments()
        for option, value in (
            ("--attach", "1"),
            ("--st", "0.5"),
            ("--ru", "bytes"),
            ("--gru", "kilobytes"),
            ("--tu", "days"),
            ("--nec", "3"),
            ("--gb", "amd"),
            ("--tf", os.path.join(os.getcwd(), "run %%p.csv")),
            ("-f", "json"),
        ):
            self.assertEqual(given[given.index(option) + 1], value)
        self.assertIn("--overwrite", given)
        with Tracker(sleep_time=True, n_expected_cores=2.0, disable_logs=True):
            pass
        given = self.arguments()[len(given) :]
        self.assertEqual([given[given.index(option) + 1] for option in ("--st", "--nec")], ["1.0", "2"])

    # Requirement: PY-2
    def test_figures_are_those_of_the_report_and_unknown_ones_are_none(self) -> None:
        self.program(GOOD)
        unknown = "Not known: max_ram.main.private_rss, max_ram.main.shared_rss."
        with self.warned("The disk was full.", unknown), Tracker() as tracker:
            pass
        usage = tracker.resource_usage
        assert usage is not None
        self.assertEqual((usage.max_ram.combined.total_rss, usage.compute_time.time), (0.25, 0.5))
        self.assertTrue(math.isnan(usage.max_ram.main.private_rss))
        self.assertEqual(tracker.to_json(), {name: REPORT[name] for name in list(REPORT)[:5]})
        self.assertEqual(tracker.reports, [REPORT])
        text = str(tracker)
        self.assertTrue(text.startswith("Max RAM:\n   Unit: gigabytes\n   System capacity: 8.0\n"), text)
        self.assertIn("\n   Main:\n      Total RSS: 0.25\n      Private RSS: n/a\n", text)
        self.assertTrue(text.endswith("\nCompute time:\n   Unit: hours\n   Time: 0.5"), text)
        json.dumps(tracker.to_json(), allow_nan=False)

    # Requirement: PY-4
    def test_variables_are_set_while_it_tracks(self) -> None:
        self.program(GOOD)
        os.environ["LD_PRELOAD"] = "/nowhere/own.so"
        with Tracker(disable_logs=True) as tracker:
            self.assertEqual(os.environ["LD_PRELOAD"], "/nowhere/none.so:/nowhere/own.so")
            self.assertEqual(os.environ["GPU_TRACK_SESSION"], "/nowhere")
            tracker.pause()
            self.assertEqual(os.environ["LD_PRELOAD"], "/nowhere/own.so")
        self.assertNotIn("GPU_TRACK_SESSION", os.environ)

    # Requirement: PY-20
    def test_variables_are_set_for_a_process_that_this_one_belongs_to_alone(self) -> None:
        self.program(GOOD)
        child = os.fork()
        if not child:
            signal.pause()
            os._exit(0)
        try:
            for pid, is_set in ((child, False), (os.getpid(), True), (os.getppid(), True)):
                with Tracker(process_id=pid, disable_logs=True):
                    self.assertEqual("GPU_TRACK_SESSION" in os.environ, is_set, pid)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    # Requirement: PY-1
    def test_threads_that_start_a_tracker_at_once_start_one_run(self) -> None:
        self.program(GOOD)
        tracker = Tracker(disable_logs=True)
        refused: list[str] = []

        def start() -> None:
            try:
                tracker.start()
            except RuntimeError as error:
                refused.append(str(error))

        threads = [threading.Thread(target=start) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        tracker.stop()
        self.assertEqual(refused, ["Cannot start tracking when tracking has already started."] * 7)
        self.assertEqual(self.arguments().count("--attach"), 1)

    # Requirement: PY-6
    def test_stretches_between_pauses_are_joined(self) -> None:
        self.program(GOOD)
        tracker = Tracker(disable_logs=True)
        with self.assertRaisesRegex(RuntimeError, "Cannot pause"):
            tracker.pause()
        with tracker:
            with self.assertRaisesRegex(RuntimeError, "Cannot resume"):
                tracker.resume()
            tracker.pause()
            self.assertTrue(tracker.is_paused)
            with self.assertRaisesRegex(RuntimeError, "Cannot pause"):
                tracker.pause()
            tracker.resume()
            tracker.pause()
        assert tracker.resource_usage is not None
        self.assertEqual(tracker.resource_usage.compute_time.time, 1.0)
        self.assertEqual(tracker.reports, [REPORT, REPORT])

    # Requirement: PY-6
    def test_maxima_and_means_of_stretches_are_of_all_their_time(self) -> None:
        a, b = (ResourceUsage.of_report(REPORT) for _ in range(2))
        b.compute_time.time = 1.5
        b.cpu_utilization.main.mean_sum_percent = 10.5
        b.max_ram.combined.total_rss = 0.75
        whole = joined([a, b])
        self.assertEqual(whole.compute_time.time, 2.0)
        self.assertEqual(whole.cpu_utilization.main.mean_sum_percent, 50.5 * 0.25 + 10.5 * 0.75)
        self.assertEqual(whole.max_ram.combined.total_rss, 0.75)
        self.assertEqual(whole.max_ram.unit, "gigabytes")
        self.assertTrue(math.isnan(whole.max_ram.main.private_rss))

    # Requirement: PY-11
    def test_it_starts_and_stops_in_an_event_loop(self) -> None:
        self.program(GOOD)

        async def main() -> gpu_track.ResourceUsage | None:
            async with Tracker(disable_logs=True) as tracker:
                pass
            return tracker.resource_usage

        self.assertIsNotNone(asyncio.run(main()))

    def track_and_cancel_at(self, file: str, block: Callable[[], None]) -> Tracker:
        """Tracks a block in a task. The task is cancelled once the program made this file; the program goes on then."""
        tracker = Tracker(disable_logs=True)

        async def track() -> None:
            async with tracker:
                block()

        async def main() -> None:
            task = asyncio.get_running_loop().create_task(track())
            while not os.path.exists(file):
                await asyncio.sleep(0.01)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        pathlib.Path("go").touch()
        wait_until(lambda: tracker.resource_usage)
        return tracker

    # Requirement: PY-11
    def test_task_that_is_cancelled_while_it_starts_leaves_no_tracker(self) -> None:
        self.program("echo $$ >pid; while [ ! -e go ]; do sleep 0.01; done;" + GOOD)
        tracker = self.track_and_cancel_at("pid", lambda: self.fail("the block is entered"))
        self.assertEqual(tracker.state, Tracker.State.STOPPED)
        await_end(int(pathlib.Path("pid").read_text(encoding="utf-8")))

    # Requirement: PY-11
    def test_task_that_is_cancelled_while_it_stops_leaves_no_tracker(self) -> None:
        self.program(GOOD.replace("cp ", "touch asked; while [ ! -e go ]; do sleep 0.01; done; cp "))
        entered: list[bool] = []
        self.track_and_cancel_at("asked", lambda: entered.append(True))
        self.assertEqual(entered, [True])
        wait_until(lambda: not list(self.temporary.iterdir()))


class Trouble(WithProgram):
    # Requirement: PY-5
    def test_missing_program_is_one_clear_error(self) -> None:
        os.environ["GPU_TRACK_RUN"] = os.fspath(self.directory / "none" / "gpu-track-run")
        tracker = Tracker()
        with self.assertRaisesRegex(FileNotFoundError, "gpu-track-run is not installed: `pip install gpu_track-"):
            tracker.start()
        self.assertEqual((repr(tracker), list(self.temporary.iterdir())), ("State: NEW", []))

    # Requirement: PY-5
    def test_program_that_refuses_is_quoted(self) -> None:
        self.program('echo "gpu-track: no space in /dev/shm" >&2; exit 2')
        with self.assertRaisesRegex(RuntimeError, r"\Ano space in /dev/shm\Z"):
            Tracker().start()
        self.assertEqual(list(self.temporary.iterdir()), [])

    # Requirement: PY-5
    def test_other_program_of_the_name_is_an_error_with_what_it_says(self) -> None:
        for line in ("nonsense", "{}", "[1]", "3"):
            self.program(f"echo $$ >pid; echo '{line}' >&\"$fd\"; while :; do sleep 0.01; done")
            with self.assertRaisesRegex(
                RuntimeError, f'gpu-track-run" is no gpu-track-run: it says .*{re.escape(line)}'
            ):
                Tracker().start()
            await_end(int(pathlib.Path("pid").read_text(encoding="utf-8")))
        self.assertEqual(list(self.temporary.iterdir()), [])

    # Requirement: PY-5, PY-21
    def test_program_without_a_free_descriptor_has_its_own_error_and_the_figures(self) -> None:
        self.program("echo $$ >pid;" + GOOD)
        code = """
import contextlib, os, resource
from gpu_track import Tracker
held = []
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
try:
    with Tracker(disable_logs=True) as tracker:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        raise KeyError("x")
except KeyError:
    print("its own", tracker.resource_usage.compute_time.time)
"""
        done = self.python(code, TMPDIR=os.fspath(self.temporary))
        self.assertEqual((done.stdout, done.stderr), ("its own 0.5\n", ""))
        self.assertEqual(list(self.temporary.iterdir()), [])
        await_end(int(pathlib.Path("pid").read_text(encoding="utf-8")))

    # Requirement: PY-5, PY-21
    def test_program_that_may_send_no_signal_any_more_ends_it(self) -> None:
        self.program(GOOD)
        with mock.patch("os.kill", side_effect=PermissionError), Tracker(disable_logs=True) as tracker:
            pass
        self.assertIsNotNone(tracker.resource_usage)

    # Requirement: PY-5
    def test_report_that_can_not_be_read_is_an_error_with_the_reason(self) -> None:
        self.program(GOOD.replace('cp "$report"', "echo '{' >\"$output\"; exit 0;"))
        with self.assertRaisesRegex(RuntimeError, "The report of gpu-track-run cannot be read: "), Tracker():
            pass

    # Requirement: PY-3, PY-21
    def test_descriptors_that_the_program_closes_and_uses_stay_its_own(self) -> None:
        self.program(GOOD)
        code = """
import os
from gpu_track import Tracker
tracker = Tracker(disable_logs=True)
tracker.start()
ours = [int(name) for name in os.listdir("/proc/self/fd") if int(name) > 64]
assert len(ours) == 3, ours
os.closerange(3, 5000)
own = os.open("own", os.O_RDWR | os.O_CREAT)
for descriptor in ours:
    os.dup2(own, descriptor)
tracker.stop()
assert all(os.fstat(descriptor).st_size == 0 for descriptor in ours)
"""
        self.python(code)

    # Requirement: PY-5
    def test_killed_program_is_an_error_at_the_end_and_hides_no_error_of_the_program(self) -> None:
        self.program('echo "$ready" >&"$fd"; kill -9 $$')
        tracker = Tracker()
        tracker.start()
        with self.assertRaisesRegex(RuntimeError, "ended before it wrote a report. Tracking results cannot be"):
            tracker.stop()
        self.assertEqual((repr(tracker), tracker.resource_usage), ("State: STOPPED", None))
        with self.warned("gpu-track-run was ended before it wrote a report."), self.assertRaises(KeyError), Tracker():
            raise KeyError("x")
        self.assertEqual(list(self.temporary.iterdir()), [])

    # Requirement: PY-5
    def test_report_so_far_of_a_killed_program_is_said_to_be_that(self) -> None:
        self.program(
            'cp "$report" "$output"; echo "$ready" >&"$fd"; kill -9 $$', {**REPORT, "stage": "so_far", "warnings": []}
        )
        with self.warned("gpu-track-run was ended before its last report: ", "Not known: "), Tracker() as tracker:
            pass
        self.assertIsNotNone(tracker.resource_usage)

    # Requirement: PY-5
    def test_program_that_does_not_end_is_killed_in_the_end(self) -> None:
        self.program('trap "" TERM; echo $$ >>pids; echo "$ready" >&"$fd"; while :; do sleep 0.01; done')
        vain = "The tracking process is still alive after join timout. Attempting to join again..."
        forced = "The tracking process is still alive after 2 attempts to join. Terminating the process by force..."
        with (
            self.warned(vain, vain, forced),
            self.assertRaises(RuntimeError),
            Tracker(n_join_attempts=2, join_timeout=0.01),
        ):
            pass
        pid = int(pathlib.Path("pids").read_text(encoding="utf-8"))
        await_end(pid)

    # Requirement: PY-5
    def test_process_that_is_not_there_is_a_warning_and_unknown_figures(self) -> None:
        self.program("exit 1")
        pid = os.fork()
        if not pid:
            os._exit(0)
        os.waitpid(pid, 0)
        gone = f"The target process of ID {pid} ended before tracking could begin."
        with self.warned(gone, "Not known: max_ram.system_capacity, "), Tracker(process_id=pid) as tracker:
            pass
        found = tracker.to_json()
        self.assertEqual((found["max_ram"]["unit"], found["max_ram"]["main"]["total_rss"]), ("gigabytes", None))
        self.assertEqual(found["compute_time"], {"unit": "hours", "time": None})
        self.assertEqual((tracker.events(), tracker.timeline(1.0)), ([], []))

    # Requirement: PY-3
    def test_it_is_no_child_and_in_a_session_of_its_own(self) -> None:
        self.program("echo $$ >pid; cut -d ' ' -f 6 /proc/$$/stat >session;" + GOOD)
        with Tracker(disable_logs=True):
            with self.assertRaises(ChildProcessError):
                os.waitpid(-1, os.WNOHANG)
            self.assertNotEqual(int(pathlib.Path("session").read_text(encoding="utf-8")), os.getsid(0))

    # Requirement: PY-3
    def test_forked_child_does_not_stop_it(self) -> None:
        self.program(GOOD)
        with Tracker(disable_logs=True) as tracker:
            child = os.fork()
            if not child:
                status = 1
                try:
                    tracker.pause()
                    tracker.resume()
                    tracker.stop()
                    status = int(tracker.state is not Tracker.State.STOPPED or tracker.resource_usage is not None)
                finally:
                    os._exit(status)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertIn("GPU_TRACK_SESSION", os.environ)
        self.assertIsNotNone(tracker.resource_usage)

    # Requirement: PY-3
    def test_program_that_does_not_stop_it_ends_and_leaves_nothing(self) -> None:
        self.program("echo $$ >pid;" + GOOD)
        code = "import os, sys, gpu_track; gpu_track.Tracker(disable_logs=True).start(); os.fork(); sys.exit(7)"
        done = self.run_python(["-c", code], TMPDIR=os.fspath(self.temporary))
        self.assertEqual((done.returncode, done.stderr), (7, ""))
        self.assertEqual(list(self.temporary.iterdir()), [])
        pid = int(pathlib.Path("pid").read_text(encoding="utf-8"))
        await_end(pid)

    # Requirement: PY-37
    def test_start_stop_and_resume_that_are_interrupted_leave_nothing(self) -> None:
        self.program(GOOD)
        before = dict(os.environ), set(os.listdir("/proc/self/fd"))
        for act, function, calls_before in (
            (Tracker.start, "_attached._line", 0),
            (Tracker.start, "_stretch.is_own_or_ancestor", 0),
            (Tracker.start, "_environment._put", 1),
            (Tracker.start, "_metrics.add", 0),
            (Tracker.start, "_alerts.Alerts.begin", 0),
            (Tracker.stop, "_environment._put", 1),
            (Tracker.stop, "_attached.Attached.wait", 0),
            (Tracker.stop, "_stretch.messages", 0),
            (Tracker.resume, "_metrics.add", 0),
        ):
            with self.subTest(act=act.__name__, function=function):
                tracker = Tracker(disable_logs=True)
                if act is not Tracker.start:
                    tracker.start()
                if act is Tracker.resume:
                    tracker.pause()
                with interrupted(f"gpu_track.{function}", calls_before), self.assertRaises(KeyboardInterrupt):
                    act(tracker)
                wait_until(self.none_runs)
                self.assertEqual((dict(os.environ), set(os.listdir("/proc/self/fd"))), before)
                if act is Tracker.start:
                    self.assertIs(tracker.state, Tracker.State.NEW)
                    tracker.start()
                if act is not Tracker.stop:
                    tracker.stop()
                    self.assertIsNotNone(tracker.resource_usage)
                self.assertEqual(list(self.temporary.iterdir()), [])

    # Requirement: PY-37
    def test_program_that_starts_while_the_start_is_interrupted_is_ended(self) -> None:
        self.program("touch begun;" + GOOD)

        class Shell(subprocess.Popen):  # type: ignore[type-arg]
            """One whose output is first read when gpu-track-run has begun, and then Ctrl-C comes."""

            def __init__(self, *arguments: Any, **keywords: Any) -> None:  # noqa: ANN401
                super().__init__(*arguments, **keywords)
                wait_until(lambda: os.path.exists("begun"))
                self.stdout = mock.Mock(wraps=self.stdout)
                self.stdout.read.side_effect = [KeyboardInterrupt, mock.DEFAULT]

        with mock.patch("subprocess.Popen", Shell), self.assertRaises(KeyboardInterrupt):
            Tracker(disable_logs=True).start()
        wait_until(self.none_runs)

    # Requirement: PY-37
    def test_program_whose_pid_nobody_reads_is_ended(self) -> None:
        reader, lives = os.pipe()
        gone, stdout = os.pipe()
        os.close(gone)
        command = ["/bin/sh", "-c", _attached._SCRIPT, "sh", "errors", "", "sleep", "1000"]
        subprocess.run(command, stdout=stdout, stderr=subprocess.DEVNULL, pass_fds=(lives,), timeout=PATIENCE_S)
        os.close(stdout)
        os.close(lives)
        poll = select.poll()
        poll.register(reader)
        self.assertTrue(poll.poll(PATIENCE_S * 1000), "the program has the other end while it lives")
        os.close(reader)

    def test_kept_file_is_there_until_the_end(self) -> None:
        self.program(GOOD)
        with Tracker(resource_usage_file="kept.pkl", disable_logs=True):
            pathlib.Path("kept.pkl").touch()
        self.assertFalse(os.path.exists("kept.pkl"))
        self.assertEqual(self.arguments().count("-o"), 2)


class Module(InDirectory):
    # Requirement: PY-7
    def test_drop_in_answers_for_gpu_tracker(self) -> None:
        pathlib.Path("helper.py").write_text("import gpu_tracker\n", encoding="utf-8")
        pathlib.Path("script.py").write_text(
            textwrap.dedent(
                """
                import multiprocessing, sys
                import gpu_tracker as gput, helper
                from gpu_tracker.tracker import Tracker
                from gpu_tracker.sub_tracker import SubTracker
                import gpu_tracker.tracker

                def work():
                    with gput.SubTracker("work", sub_tracking_file="marks.csv"):
                        pass

                if __name__ == "__main__":
                    assert gput.Tracker is Tracker is gpu_tracker.tracker.Tracker is helper.gpu_tracker.Tracker
                    assert gput.SubTracker is SubTracker
                    child = multiprocessing.get_context("spawn").Process(target=work)
                    child.start()
                    child.join()
                    print(gput.Tracker.__module__, sys.argv, child.exitcode)
                    sys.exit(3)
                """
            ),
            encoding="utf-8",
        )
        done = self.run_python(["-m", "gpu_track.drop_in", "script.py", "-x", "a b"])
        expected = "gpu_track.tracker ['script.py', '-x', 'a b'] 0\n"
        self.assertEqual((done.returncode, done.stdout), (3, expected), done.stderr)
        self.assertTrue(os.path.exists("marks.csv"))
        done = self.run_python(["-m", "gpu_track.drop_in", "-m", "script"])
        self.assertEqual((done.returncode, done.stdout[:17]), (3, "gpu_track.tracker"), done.stderr)
        done = self.run_python(["-m", "gpu_track.drop_in", "-m", "none"])
        self.assertEqual((done.returncode, done.stderr), (1, f"{sys.executable}: No module named none\n"))
        done = self.run_python(["-m", "gpu_track.drop_in"])
        self.assertIn("usage: python -m gpu_track.drop_in", done.stderr)

    # Requirement: PY-7
    def test_script_below_drop_in_has_the_namespace_of_python_to_its_end(self) -> None:
        pathlib.Path("script.py").write_text(
            textwrap.dedent(
                """
                import __main__, os, pickle, sys, threading

                class Job: pass

                def work():
                    main.join()
                    job = pickle.loads(pickle.dumps(Job()))
                    print(__name__, type(job) is Job, sys.modules["__main__"] is __main__, later, flush=True)

                main = threading.main_thread()
                threading.Thread(target=work).start()
                names = set(dir()) - {"__annotations__", "__cached__"}
                print(__file__, os.path.exists(__file__), sorted(names), __spec__ and __spec__.name)
                later = "later"
                """
            ),
            encoding="utf-8",
        )
        for arguments in (["script.py"], ["-m", "script"]):
            expected, found = (self.run_python([*words, *arguments]) for words in ([], ["-m", "gpu_track.drop_in"]))
            self.assertEqual((found.stdout, found.stderr), (expected.stdout, expected.stderr))
            self.assertIn("__main__ True True later", found.stdout)

    def test_version_is_a_text_and_other_names_are_errors(self) -> None:
        self.assertIsInstance(gpu_track.__version__, str)
        with self.assertRaises(AttributeError):
            gpu_track.nothing  # type: ignore[attr-defined]  # noqa: B018

    def test_import_takes_no_package_that_is_not_of_python(self) -> None:
        code = "import gpu_track, sys; print(*{'pandas', 'sqlite3', 'asyncio'}.intersection(sys.modules))"
        self.assertEqual(self.python(code).stdout, "\n")


if __name__ == "__main__":
    unittest.main()
