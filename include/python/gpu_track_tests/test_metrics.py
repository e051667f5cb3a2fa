"""Tests of metric and torch_metrics. Those of trackers are with the built programs."""

from __future__ import annotations

import contextlib
import csv
import functools
import gc
import json
import logging
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
from collections.abc import Iterator
from typing import Any
from unittest import mock

from gpu_track import Tracker, _metrics, metric, torch_metrics
from gpu_track._metrics import COLUMNS, MetricFile
from gpu_track._placeless import VARIABLE
from gpu_track._program import find
from gpu_track_tests.places import PATIENCE_S, InDirectory, wait_until


def told(path: str | pathlib.Path) -> list[tuple[int, str, float, float]]:
    """The rows of a file, which must be whole lines behind one head."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    assert not text or text.endswith("\n"), text[-80:]
    head, *rows = csv.reader(text.splitlines())
    assert head == COLUMNS.split(","), head
    return [(int(pid), name, float(at), float(value)) for pid, name, at, value in rows]


class InRun(InDirectory):
    """A test with a file that values go to, without a tracker."""

    def setUp(self) -> None:
        super().setUp()
        warnings = mock.patch.object(_metrics, "_warnings", _metrics._Warnings())
        warnings.start()
        self.addCleanup(warnings.stop)
        _metrics._torch_devices.clear()
        self.file = MetricFile("metrics.csv")
        self.file.open(False)
        _metrics.add(self.file)
        self.addCleanup(self.file.close)
        self.addCleanup(_metrics.remove, self.file)


class Values(InRun):
    # Requirement: PY-27
    def test_value_is_a_line_with_its_process_and_time(self) -> None:
        before_s = time.time()
        for value in (1, 0.1, True, -1e-300, math.inf):
            metric('loss, "all" of 5%', value)
        metric("loss", math.nan)
        rows = told("metrics.csv")
        self.assertEqual({(pid, name) for pid, name, _, _ in rows[:5]}, {(os.getpid(), 'loss, "all" of 5%')})
        self.assertEqual([row[3] for row in rows[:5]], [1.0, 0.1, 1.0, -1e-300, math.inf])
        self.assertTrue(math.isnan(rows[5][3]))
        times = [row[2] for row in rows]
        # Each is rounded.
        self.assertTrue(before_s - 1e-6 <= times[0] and times == sorted(times) and times[-1] <= time.time() + 1e-6)

    # Requirement: PY-27
    def test_threads_and_forked_children_write_whole_lines(self) -> None:
        def work(name: str) -> None:
            for step in range(500):
                metric(name, step)

        threads = [threading.Thread(target=work, args=(f"thread {number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        children = []
        for _ in range(4):
            pid = os.fork()
            if not pid:
                work("child")
                os._exit(0)
            children.append(pid)
        for pid in children:
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
        rows = told("metrics.csv")
        for number in range(4):
            own = [value for pid, name, _, value in rows if (pid, name) == (os.getpid(), f"thread {number}")]
            self.assertEqual(own, list(range(500)))
        for child in children:
            self.assertEqual([value for pid, name, _, value in rows if pid == child], list(range(500)))
        self.assertEqual(len(rows), 8 * 500)

    # Requirement: PY-27
    def test_process_that_is_killed_leaves_whole_lines(self) -> None:
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            metric("loss", 0.5)
            os.write(writer, b"1")
            while True:
                metric("loss", 0.25)
        os.read(reader, 1)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reader)
        os.close(writer)
        rows = told("metrics.csv")
        self.assertEqual((rows[0][0], rows[0][3]), (pid, 0.5))

    # Requirement: PY-28
    def test_programs_of_one_file_write_one_head_where_it_is_empty(self) -> None:
        self.python("import gpu_track\ngpu_track.metric('loss', 1)", **{VARIABLE: "of_children.csv"})
        self.python("import gpu_track\ngpu_track.metric('loss', 2)", **{VARIABLE: "of_children.csv"})
        self.assertEqual([row[1:2] + row[3:] for row in told("of_children.csv")], [("loss", 1.0), ("loss", 2.0)])


class Trouble(InRun):
    # Requirement: PY-29
    def test_value_that_is_no_number_costs_itself_and_one_warning(self) -> None:
        values: list[Any] = ["much", None, [1.0], 10**400]
        with self.assertLogs("gpu_track", "WARNING") as logs:
            for value in values:
                metric("loss", value)
            metric("loss", 0.5)
        (message,) = (record.getMessage() for record in logs.records)
        self.assertTrue(message.startswith('The metric "loss" is left out where its value is no number: '), message)
        self.assertEqual([row[3] for row in told("metrics.csv")], [0.5])

    # Requirement: PY-29
    def test_full_disk_costs_values_and_one_warning(self) -> None:
        code = f"""
import resource
import gpu_track
resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
for _ in range(10):
    gpu_track.metric("loss", 0.5)
print("went on", {COLUMNS!r} in open("full.csv").read())
"""
        done = self.python(code, **{VARIABLE: "full.csv"})
        self.assertEqual(done.stdout, "went on True\n")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertRegex(done.stderr, r'^"full.csv" cannot be written: .*\. No more metrics are written to it\.\n$')

    # Requirement: PY-29
    def test_file_that_can_not_be_made_costs_values_and_one_warning(self) -> None:
        code = "import gpu_track\nfor _ in range(10): gpu_track.metric('loss', 0.5)\nprint('went on')"
        done = self.python(code, **{VARIABLE: "none/metrics.csv"})
        warned = '"none/metrics.csv" cannot be written: No such file or directory. No more metrics are written to it.\n'
        self.assertEqual((done.stdout, done.stderr), ("went on\n", warned))

    def has_failed(self) -> bool:
        metric("loss", 0.5)
        return self.file._failed

    # Requirement: PY-29, PY-77
    def test_file_that_was_removed_gets_no_more_values(self) -> None:
        metric("loss", 0.5)
        os.remove("metrics.csv")
        with mock.patch.object(_metrics.LOG, "warning") as warning:
            # A file is looked at now and then only.
            wait_until(self.has_failed)
        warning.assert_not_called()
        self.assertFalse(os.path.exists("metrics.csv"))

    # Requirement: PY-29
    def test_no_value_lands_in_another_file_when_the_program_closes_all_descriptors(self) -> None:
        code = """
import os
import gpu_track
gpu_track.metric("loss", 1)
os.closerange(3, 5000)
os.chdir("/")
gpu_track.metric("loss", 2)
own = os.open("/", os.O_RDONLY)
gpu_track.metric("loss", 3)
assert own < 64 and os.path.isdir(f"/proc/self/fd/{own}"), own
"""
        self.python(code, **{VARIABLE: "closed.csv"})
        self.assertEqual([row[3] for row in told("closed.csv")], [1.0, 2.0, 3.0])

    # Requirement: PY-29
    def test_value_is_written_where_no_descriptor_is_free(self) -> None:
        code = """
import os, resource
import gpu_track
gpu_track.metric("loss", 1)
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, 4096))
gpu_track.metric("loss", 2)
"""
        self.python(code, **{VARIABLE: "few.csv"})
        self.assertEqual([row[3] for row in told("few.csv")], [1.0, 2.0])

    # Requirement: PY-29
    def test_handler_of_a_signal_tells_a_value_while_the_file_is_opened(self) -> None:
        code = """
import os, signal
import gpu_track
signal.signal(signal.SIGUSR1, lambda *_: gpu_track.metric("loss", 2))
real = os.open
def interrupted(*arguments, **more):
    os.open = real
    os.kill(os.getpid(), signal.SIGUSR1)
    return real(*arguments, **more)
os.open = interrupted
gpu_track.metric("loss", 1)
"""
        self.python(code, **{VARIABLE: "signal.csv"})
        self.assertEqual([row[3] for row in told("signal.csv")], [2.0, 1.0])

    # Requirement: PY-29
    def test_outside_a_run_a_value_is_not_even_looked_at(self) -> None:
        _metrics.remove(self.file)
        metric("loss", "no number")  # type: ignore[arg-type]
        torch_metrics()
        self.assertEqual(told("metrics.csv"), [])


# One that tells metrics, some of them in a thread and in a forked child, and goes on.
PLACELESS = """
import os, threading
import gpu_track
gpu_track.metric("loss", 1)
gpu_track.metric("step", 2)
thread = threading.Thread(target=gpu_track.metric, args=("loss", 3))
thread.start()
thread.join()
child = os.fork()
gpu_track.metric("loss", 4)
if not child:
    os._exit(0)
os.waitpid(child, 0)
print("went on")
"""
# A stand-in for IPython, where it runs this program.
SHELL = """
import sys, types
sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: object())
"""


class WithoutAPlace(InDirectory):
    def warned(self, code: str, *, variables: dict[str, str]) -> str:
        """What a program writes to stderr, which must go on."""
        done = self.python(code, **{"GPU_TRACK_SESSION": "", **variables})
        self.assertEqual(done.stdout, "went on\n")
        return done.stderr

    # Requirement: PY-91
    def test_program_that_runs_by_itself_is_told_nothing(self) -> None:
        self.assertEqual(self.warned(PLACELESS, variables={}), "")
        # The run is over.
        self.assertEqual(self.warned(PLACELESS, variables={"GPU_TRACK_SESSION": "/dev/shm/none"}), "")
        # A shell that has ended, or a module that is there and runs no shell.
        no_shell = SHELL.replace("object()", "None")
        self.assertEqual(self.warned(no_shell + PLACELESS, variables={}), "")

    # Requirement: PY-91
    def test_cell_that_nothing_tracks_is_told_once_what_to_do(self) -> None:
        told_once = (
            "The metric 'loss' is not kept: nothing tracks this cell. Run \"%load_ext gpu_track\" once, and begin the"
            ' cell with "%%gpu_track", or track it with gpu_track.Tracker. This is said once.\n'
        )
        self.assertEqual(self.warned(SHELL + PLACELESS, variables={}), told_once)
        self.assertEqual(self.warned(SHELL + PLACELESS, variables={VARIABLE: ""}), "")
        self.assertEqual(self.warned(SHELL + PLACELESS, variables={VARIABLE: "kept.csv"}), "")
        self.assertEqual([row[3] for row in told("kept.csv") if row[1] == "loss"], [1.0, 3.0, 4.0, 4.0])

    # Requirement: PY-91
    def test_variable_that_is_set_too_late_is_said_to_be_that(self) -> None:
        code = f"import os, gpu_track\nos.environ[{VARIABLE!r}] = 'm.csv'\n{PLACELESS}"
        self.assertIn("was set after gpu_track was imported", self.warned(code, variables={}))

    # Requirement: PY-91
    def test_broken_shell_costs_the_message_alone(self) -> None:
        broken = SHELL.replace("object()", "1 / 0")
        self.assertEqual(self.warned(broken + PLACELESS, variables={}), "")

    # Requirement: PY-91
    def test_memory_of_pytorch_has_no_place_either(self) -> None:
        code = """
cuda = types.SimpleNamespace(is_initialized=lambda: True)
sys.modules["torch"] = types.SimpleNamespace(cuda=cuda)
import gpu_track
gpu_track.torch_metrics()
gpu_track.torch_metrics()
print("went on")
"""
        stderr = self.warned(SHELL + code, variables={})
        self.assertEqual(stderr.count("The metric 'torch_metrics()' is not kept: nothing tracks this cell."), 1, stderr)


# A program whose processes of multiprocessing tell a metric, in each way to start them.
JOB = """
import multiprocessing, os
from gpu_track import Tracker, metric

def work(number):
    metric("loss", number)

if __name__ == "__main__":
    with Tracker(sleep_time=0.1, disable_logs=True, metrics_file="m.csv") as tracker:
        metric("loss", 0)
        for number, method in enumerate(("fork", "spawn", "forkserver"), 1):
            process = multiprocessing.get_context(method).Process(target=work, args=(number,))
            process.start()
            process.join()
            assert process.exitcode == 0, method
    assert len({row["process_id"] for row in tracker.metrics()}) == 4, tracker.metrics()
    assert f"metric_pid{os.getpid()}_loss" in tracker.timeline(0.1)[-1]
    assert "GPU_TRACK_METRICS" not in os.environ
    print("went on")
"""
# One whose fork server is there before the tracker.
FORK_SERVER_JOB = """
import multiprocessing
from gpu_track import Tracker, metric

def work():
    metric("loss", 1)

def run(context):
    process = context.Process(target=work)
    process.start()
    process.join()
    assert process.exitcode == 0

if __name__ == "__main__":
    context = multiprocessing.get_context("forkserver")
    run(context)
    with Tracker(disable_logs=True) as tracker:
        run(context)
    assert tracker.metrics() == [], tracker.metrics()
    print("went on")
"""


def has_point(tracker: Tracker) -> bool:
    """Whether its tracking file has a row."""
    with contextlib.suppress(ValueError):
        return len(tracker.timeline(0.1)) > 0
    return False


@unittest.skipUnless(os.environ.get("GPU_TRACK_RUN"), "GPU_TRACK_RUN names no gpu-track-run")
class Trackers(InDirectory):
    def setUp(self) -> None:
        """Makes a directory for temporary files, to see what is left in it."""
        super().setUp()
        self.temporary = self.directory / "temporary"
        self.temporary.mkdir()
        patch = mock.patch.object(tempfile, "tempdir", os.fspath(self.temporary))
        patch.start()
        self.addCleanup(patch.stop)

    # Requirement: PY-25, PY-26
    def test_metrics_and_timeline_have_what_a_run_told(self) -> None:
        for form in ("jsonl", "sqlite", "csv", None):
            with self.subTest(form=form):
                file = None if form is None else f"run.{form}"
                tracker = Tracker(sleep_time=0.1, tracking_file=file, disable_logs=True)
                metric("loss", 8)
                self.assertEqual(tracker.metrics(), [])
                with tracker:
                    if form in ("sqlite", "csv"):
                        # PY-75: values that are long before the first row are of no point.
                        wait_until(functools.partial(has_point, tracker))
                    metric("loss", 4)
                    metric("loss", 1)
                    self.assertEqual([row["count"] for row in tracker.metrics()], [2])
                metric("loss", 9)
                (row,) = tracker.metrics()
                figures = ("name", "process_id", "count", "not_finite", "last", "min", "max", "mean")
                self.assertEqual([row[key] for key in figures], ["loss", os.getpid(), 2, 0, 1.0, 1.0, 4.0, 2.5])
                points = tracker.timeline(0.1)
                self.assertEqual(points[-1]["metric_loss"], 1.0)
                self.assertLessEqual({point["metric_loss"] for point in points}, {None, 4.0, 1.0})
                self.assertIn("ram_main_bytes", points[-1])
        del tracker
        gc.collect()
        self.assertEqual(os.listdir(self.temporary), [])

    # Requirement: PY-28
    def test_what_forked_and_spawned_processes_tell_is_of_the_run(self) -> None:
        # A program of its own: multiprocessing leaves a helper behind in one that spawns.
        pathlib.Path("job.py").write_text(JOB, encoding="utf-8")
        done = self.run_python(["job.py"])
        self.assertEqual((done.returncode, done.stdout), (0, "went on\n"), done.stderr)
        self.assertEqual([row[3] for row in told("m.csv")], [0.0, 1.0, 2.0, 3.0])

    # Requirement: PY-87
    def test_worker_of_a_fork_server_from_before_the_tracker_tells_nothing(self) -> None:
        pathlib.Path("job.py").write_text(FORK_SERVER_JOB, encoding="utf-8")
        done = self.run_python(["job.py"])
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "went on\n", ""))

    # Requirement: PY-77
    def test_program_with_another_environment_tells_nothing(self) -> None:
        code = "import gpu_track\ngpu_track.metric('loss', 1)"
        variables = {"PYTHONPATH": os.pathsep.join(sys.path)}
        with Tracker(disable_logs=True) as tracker:
            subprocess.run([sys.executable, "-B", "-c", code], env=variables, check=True, timeout=PATIENCE_S)
        self.assertEqual(tracker.metrics(), [])

    # Requirement: PY-26, PY-28
    def test_timeline_of_stretches_has_the_metrics_of_each_and_warns_of_none(self) -> None:
        with Tracker(sleep_time=0.1, tracking_file="run.jsonl") as tracker:
            metric("loss", 1)
            tracker.pause()
            metric("loss", 2)
            tracker.resume()
            metric("loss", 3)
        with self.no_warnings():
            points = tracker.timeline(60)
        self.assertEqual([point["metric_loss"] for point in points], [1.0, 3.0])

    @contextlib.contextmanager
    def no_warnings(self) -> Iterator[None]:
        """Fails if the module warns of something. `assertNoLogs` is Python 3.10's."""
        with mock.patch.object(logging.getLogger("gpu_track"), "warning") as warning:
            yield
        warning.assert_not_called()

    # Requirement: PY-28
    def test_each_tracker_has_what_is_told_while_it_runs(self) -> None:
        with Tracker(disable_logs=True) as outer:
            metric("loss", 1)
            with Tracker(disable_logs=True) as inner:
                metric("loss", 2)
                inner.pause()
                metric("loss", 3)
                inner.resume()
                metric("loss", 4)
            metric("loss", 5)
        counts = [(row["count"], row["mean"]) for tracker in (outer, inner) for row in tracker.metrics()]
        self.assertEqual(counts, [(5, 3.0), (2, 3.0)])

    # Requirement: PY-28
    def test_tracker_of_another_process_has_no_metric_of_this_one(self) -> None:
        other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        with Tracker(process_id=other.pid, disable_logs=True) as tracker:
            metric("loss", 1)
            other.communicate(b"\n", timeout=PATIENCE_S)
        self.assertEqual(tracker.metrics(), [])

    # Requirement: PY-91
    def test_run_without_a_file_for_metrics_is_said_once_and_what_to_do(self) -> None:
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
        for given, count in ((None, 1), ("", 0), ("m.csv", 0)):
            with self.subTest(given=given):
                command = [find("gpu-track-run"), "-q", "--overwrite", "--tf", "run.csv", "--", sys.executable]
                done = subprocess.run(
                    [*command, "-c", PLACELESS],
                    env={**variables, **({} if given is None else {VARIABLE: given})},
                    capture_output=True,
                    text=True,
                    timeout=PATIENCE_S,
                )
                self.assertEqual((done.returncode, done.stdout), (0, "went on\n"), done.stderr)
                said = f'gpu-track-run was started without a file for it. Start "{VARIABLE}=metrics.csv gpu-track-run'
                self.assertEqual((done.stderr.count(said), done.stderr.count("\n")), (count, count), done.stderr)

    # Requirement: PY-91
    def test_metric_in_a_pause_is_left_out_without_a_word(self) -> None:
        code = f"""{SHELL}
import gpu_track
with gpu_track.Tracker(disable_logs=True) as tracker:
    tracker.pause()
    gpu_track.metric("loss", 1)
print("went on")
gpu_track.metric("loss", 2)
"""
        done = self.python(code)
        self.assertEqual(done.stderr.count("is not kept: nothing tracks this cell"), 1, done.stderr)
        silent = self.python(code.replace('gpu_track.metric("loss", 2)', ""))
        self.assertEqual((silent.stdout, silent.stderr), ("went on\n", ""))

    # Requirement: PY-28
    def test_file_that_exists_is_refused_unless_overwrite(self) -> None:
        pathlib.Path("m.csv").write_text("kept", encoding="utf-8")
        with self.assertRaisesRegex(FileExistsError, "File m.csv already exists. Set overwrite to True"):
            Tracker(metrics_file="m.csv")
        with self.assertRaisesRegex(ValueError, 'Invalid file name: "m.txt". Metrics are written to ".csv".'):
            Tracker(metrics_file="m.txt")
        with Tracker(metrics_file="m.csv", overwrite=True, disable_logs=True):
            metric("loss", 1)
        self.assertEqual([row[3] for row in told("m.csv")], [1.0])

    # Requirement: PY-5, PY-28
    def test_tracker_that_can_not_begin_leaves_no_file(self) -> None:
        pathlib.Path("run.jsonl").mkdir()
        for _ in range(2):
            with self.assertRaisesRegex(RuntimeError, "is a directory"):
                Tracker(metrics_file="m.csv", tracking_file="run.jsonl").start()
            self.assertFalse(os.path.exists("m.csv"))

    # Requirement: PY-28
    def test_program_under_gpu_track_run_names_a_file(self) -> None:
        code = "import gpu_track\ngpu_track.metric('loss', 0.5)\ngpu_track.metric('loss', float('nan'))"
        variables = {**os.environ, VARIABLE: "m.csv", "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [find("gpu-track-run"), "-q", "-o", "run.json", "--", sys.executable, "-B", "-c", code]
        subprocess.run(command, env=variables, check=True, timeout=PATIENCE_S)
        shown = subprocess.run(
            [find("gpu-track"), "report", "run.json", "--every", "60", "--metrics", "m.csv", "-f", "json"],
            stdout=subprocess.PIPE,
            check=True,
            timeout=PATIENCE_S,
        )
        points = json.loads(shown.stdout)["points"]
        self.assertIn("metric_loss", points[-1])
        self.assertIsNone(points[-1]["metric_loss"], "NaN is not known, and no 0.5")


def torch(stats: list[dict[str, Any]], *, is_initialized: bool = True) -> dict[str, types.ModuleType]:
    """A stand-in for PyTorch, with the functions that are used."""
    module: Any = types.ModuleType("torch")
    module.cuda = types.SimpleNamespace(
        is_initialized=lambda: is_initialized,
        device_count=lambda: len(stats),
        memory_stats=lambda device: stats[device],
    )
    return {"torch": module}


def stats_of(allocated: int, reserved: int, inactive: int) -> dict[str, Any]:
    """The figures of an allocator, among which are others."""
    return {
        "allocated_bytes.all.current": allocated,
        "allocated_bytes.all.peak": 99,
        "reserved_bytes.all.current": reserved,
        "inactive_split_bytes.all.current": inactive,
    }


class Torch(InRun):
    # Requirement: PY-30
    def test_live_memory_stands_apart_from_what_the_allocator_keeps(self) -> None:
        devices = [stats_of(3, 10, 2), stats_of(0, 0, 0)]
        with mock.patch.dict(sys.modules, torch(devices)):
            torch_metrics()
            # All is given back: 0 is a figure now.
            devices[0] = stats_of(0, 0, 0)
            torch_metrics()
        found = [(name, value) for _, name, _, value in told("metrics.csv")]
        names = [f"torch_cuda0_{name}_bytes" for name in ("allocated", "reserved", "inactive_split")]
        self.assertEqual(found, [*zip(names, (3.0, 10.0, 2.0)), *zip(names, (0.0, 0.0, 0.0))])

    # Requirement: PY-30
    def test_figure_that_an_allocator_lacks_is_left_out(self) -> None:
        stats = stats_of(3, 10, 2)
        del stats["inactive_split_bytes.all.current"]
        with mock.patch.dict(sys.modules, torch([stats])):
            torch_metrics()
        names = [name for _, name, _, _ in told("metrics.csv")]
        self.assertEqual(names, ["torch_cuda0_allocated_bytes", "torch_cuda0_reserved_bytes"])

    # Requirement: PY-30
    def test_program_that_does_not_use_pytorch_or_a_gpu_goes_on_as_it_is(self) -> None:
        self.assertNotIn("torch", sys.modules)
        torch_metrics()
        self.assertNotIn("torch", sys.modules)
        with mock.patch.dict(sys.modules, torch([stats_of(1, 1, 1)], is_initialized=False)):
            torch_metrics()
        with mock.patch.dict(sys.modules, {"torch": types.ModuleType("torch")}):
            torch_metrics()
        self.assertEqual(told("metrics.csv"), [])
        broken = torch([{}])
        broken["torch"].cuda.memory_stats = mock.Mock(side_effect=RuntimeError("CUDA error"))
        with mock.patch.dict(sys.modules, broken), self.assertLogs("gpu_track", "WARNING") as logs:
            torch_metrics()
            torch_metrics()
        (message,) = (record.getMessage() for record in logs.records)
        self.assertEqual(message, "The memory of PyTorch is not known: CUDA error")


if __name__ == "__main__":
    unittest.main()
