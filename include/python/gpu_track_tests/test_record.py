"""Tests of record and capture_oom. A stand-in is in the place of PyTorch, which is not installed here."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import types
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any
from unittest import mock

from gpu_track import Tracker, capture_oom, metric, record
from gpu_track._program import ask
from gpu_track._record import is_out_of_memory
from gpu_track_tests.places import MODULE, PATIENCE_S, InDirectory, wait_until
from gpu_track_tests.test_installed import Installed


def torch(devices: int = 1, summary: str = "a table") -> types.ModuleType:
    """A stand-in for PyTorch that uses GPUs."""
    module: Any = types.ModuleType("torch")
    module.OutOfMemoryError = type("OutOfMemoryError", (RuntimeError,), {"__module__": "torch"})
    module.cuda = types.SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: devices,
        memory_stats=lambda device: {"allocated_bytes.all.current": 100 + device},
        memory_summary=lambda _device: summary,
    )
    found: types.ModuleType = module
    return found


class Recorded(InDirectory):
    """What is recorded is noted, in the place of a bundle."""

    def setUp(self) -> None:
        super().setUp()
        self.asked: list[tuple[str | None, Any]] = []
        segment = self.directory / "segment"
        segment.touch()

        def ask(_arguments: list[str], given: str | None, timeout_s: float) -> str:
            self.assertGreater(timeout_s, 0)
            context = next((word.split("=", 1)[1] for word in _arguments if word.startswith("--context=")), None)
            self.asked.append((context, None if given is None else json.loads(given)))
            return "/bundle\n"

        for patch in (
            mock.patch.dict(os.environ, {"GPU_TRACK_SESSION": f"/gone:{segment}:/over"}),
            mock.patch("gpu_track._record.ask", ask),
        ):
            patch.start()
            self.addCleanup(patch.stop)


class Recording(Recorded):
    # Requirement: PY-34
    def test_context_and_metadata_go_to_the_run_that_is_there(self) -> None:
        self.assertEqual(record("step 7", {"loss": float("nan"), "shape": (1, 2)}), "/bundle")
        self.assertEqual(record(), "/bundle")
        self.assertEqual(self.asked, [("step 7", {"loss": "nan", "shape": [1, 2]}), (None, None)])

    # Requirement: PY-34
    def test_only_a_wrong_type_is_raised_and_any_other_failure_is_one_warning(self) -> None:
        for wrong in (lambda: record(3), lambda: record(None, object()), lambda: capture_oom(b"x")):  # type: ignore[arg-type]
            with self.assertRaises(TypeError):
                wrong()
        for failure in (ValueError("no space"), FileNotFoundError("gpu-track"), MemoryError()):
            with mock.patch("gpu_track._record.ask", side_effect=failure), self.assertLogs("gpu_track") as logs:
                self.assertIsNone(record("x"))
            self.assertEqual(len(logs.records), 1)

    # Requirement: PY-34
    def test_metadata_that_python_can_not_write_is_one_warning(self) -> None:
        own: dict[str, object] = {}
        own["self"] = own
        deep: list[object] = []
        for _ in range(100_000):
            deep = [deep]
        wrong = [own, deep, *([10**5000] if hasattr(sys, "set_int_max_str_digits") else [])]
        for metadata in wrong:
            with self.assertLogs("gpu_track") as logs:
                self.assertIsNone(record("x", metadata))
            self.assertEqual(len(logs.records), 1)
        self.assertEqual(record("x", {float("nan"): 1, 2: -float("inf")}), "/bundle")
        self.assertEqual(self.asked, [("x", {"NaN": 1, "2": "-inf"})])

    # Requirement: PY-34
    def test_outside_a_run_nothing_happens(self) -> None:
        for sessions in ("", "/gone:/over"):
            with mock.patch.dict(os.environ, {"GPU_TRACK_SESSION": sessions}):
                self.assertIsNone(record("x", {"y": 1}))
        self.assertEqual(self.asked, [])


class Asking(InDirectory):
    # Requirement: PY-34
    def test_program_that_does_not_end_in_time_is_killed_and_left_if_it_can_not_be(self) -> None:
        program = self.directory / "gpu-track"
        program.write_text("#!/bin/sh\nexec sleep 1000\n", encoding="utf-8")
        program.chmod(0o755)
        children: list[subprocess.Popen[bytes]] = []

        def time_out(child: subprocess.Popen[bytes], *_: object) -> None:
            children.append(child)
            raise subprocess.TimeoutExpired("gpu-track", 60)

        late = mock.patch.object(subprocess.Popen, "communicate", time_out)
        immortal = mock.patch.object(subprocess.Popen, "kill", lambda _child: None)
        beside = mock.patch.dict(os.environ, GPU_TRACK_RUN=os.fspath(self.directory / "gpu-track-run"))
        for kill, status in ((contextlib.nullcontext(), -signal.SIGKILL), (immortal, None)):
            with beside, late, kill, self.assertRaises(subprocess.TimeoutExpired):
                ask(["record"], timeout_s=60)
            child = children.pop()
            self.assertEqual(child.returncode, status)
            child.kill()
            child.wait()

    # Requirement: PY-34
    def test_failure_is_one_in_a_program_that_ignores_the_end_of_its_children(self) -> None:
        program = self.directory / "gpu-track"
        program.write_text("#!/bin/sh\necho 'gpu-track: no space' >&2\nexit 1\n", encoding="utf-8")
        program.chmod(0o755)
        self.addCleanup(signal.signal, signal.SIGCHLD, signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        beside = mock.patch.dict(os.environ, GPU_TRACK_RUN=os.fspath(self.directory / "gpu-track-run"))
        with beside, self.assertRaisesRegex(ValueError, "^no space$"):
            ask(["record"])


class Capturing(Recorded):
    def out(self, error: BaseException) -> Callable[[], None]:
        def function() -> None:
            raise error

        return function

    # Requirement: PY-35
    def test_errors_of_memory_are_known_by_type_or_text_and_no_others(self) -> None:
        torchs = torch()
        subclass = type("_OutOfMemory", (MemoryError,), {})
        older = type("OutOfMemoryError", (RuntimeError,), {"__module__": "torch.cuda"})
        group = getattr(sys.modules["builtins"], "ExceptionGroup", None)
        kinds: list[BaseException] = [
            MemoryError("x"),
            subclass(),
            older("x"),
            vars(torchs)["OutOfMemoryError"]("x"),
            RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
            RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8 bytes."),
        ]
        kinds += [] if group is None else [group("x", [ValueError(), MemoryError()])]
        for error in kinds:
            self.assertTrue(is_out_of_memory(error), error)
        for other in (RuntimeError("shape"), ValueError("CUDA out of memory"), OSError("out of memory"), KeyError()):
            self.assertFalse(is_out_of_memory(other), other)

    # Requirement: PY-35
    def test_exception_passes_unchanged_and_has_one_bundle_however_deep_it_was_caught(self) -> None:
        error = MemoryError("no room")
        inner = capture_oom("inner", {"step": 3})(self.out(error))
        with self.assertRaises(MemoryError) as raised, capture_oom("outer"):
            inner()
        self.assertIs(raised.exception, error)
        self.assertEqual((error.args, error.__cause__, error.__context__), (("no room",), None, None))
        ((context, metadata),) = self.asked
        self.assertEqual((context, metadata["metadata"], metadata["torch"]), ("inner", {"step": 3}, None))
        exception = {"type": "builtins.MemoryError", "text": "no room", "text_reason": None}
        self.assertEqual((metadata["exception"], metadata["metadata_reason"]), (exception, None))
        # Another one has its own.
        with self.assertRaises(MemoryError):
            capture_oom()(self.out(MemoryError()))()
        self.assertEqual(len(self.asked), 2)

    # Requirement: PY-95
    def test_program_that_catches_the_error_itself_hands_it_to_its_tracker(self) -> None:
        error = MemoryError("no room")
        tracker = Tracker()
        self.assertEqual(tracker.handle_exception(error, "step", {"batch": 64}), "/bundle")
        self.assertIsNone(tracker.handle_exception(error), "it has its bundle")
        self.assertIsNone(tracker.handle_exception(ValueError("x")))
        ((context, metadata),) = self.asked
        self.assertEqual((context, metadata["metadata"]), ("step", {"batch": 64}))

    # Requirement: PY-35
    def test_what_is_no_error_of_memory_makes_no_bundle(self) -> None:
        with capture_oom():
            pass
        for error in (ValueError(), KeyboardInterrupt(), SystemExit(3)):
            with self.assertRaises(type(error)):
                capture_oom()(self.out(error))()
        self.assertEqual(self.asked, [])

    # Requirement: PY-35
    def test_failure_to_make_a_bundle_never_takes_the_place_of_the_exception(self) -> None:
        class Odd(MemoryError):
            """Can't be looked at."""

            def __getattr__(self, name: str) -> object:
                raise KeyError(name)

        failing = mock.patch("gpu_track._record._evidence", side_effect=RecursionError)
        for error, failure in ((Odd(), contextlib.nullcontext()), (MemoryError(), failing)):
            with failure, self.assertLogs("gpu_track") as logs, self.assertRaises(MemoryError) as raised:
                capture_oom()(self.out(error))()
            self.assertIs(raised.exception, error)
            self.assertEqual(len(logs.records), 1)
        self.assertEqual(self.asked, [])

    # Requirement: PY-35
    def test_exception_whose_text_raises_passes_and_its_bundle_has_the_reason(self) -> None:
        def fail(_error: object) -> str:
            raise KeyError("no text")

        for kind, bundles in ((MemoryError, 1), (RuntimeError, 0)):
            self.asked.clear()
            error = type("Odd", (kind,), {"__str__": fail})()
            with self.assertRaises(kind) as raised:
                capture_oom()(self.out(error))()
            self.assertIs(raised.exception, error)
            self.assertEqual(len(self.asked), bundles)
            for _, metadata in self.asked:
                exception = metadata["exception"]
                self.assertEqual(
                    (exception["text"], exception["text_reason"]), (None, "its __str__ raised an exception")
                )

    # Requirement: PY-35
    def test_metadata_that_json_can_not_have_is_an_error_before_memory_runs_out(self) -> None:
        own: dict[str, object] = {}
        own["self"] = own
        for wrong, problem in (({"model": object()}, TypeError), ({(1, 2): 3}, TypeError), (own, ValueError)):
            with self.assertRaises(problem):
                capture_oom("x", wrong)

    # Requirement: PY-35
    def test_metadata_that_becomes_unusable_or_too_large_is_a_reason_and_the_bundle_is_made(self) -> None:
        text = "\N{GRINNING FACE}" * 9000
        for late, reason in (
            (object(), "it can't be written as JSON: Object of type object is not JSON serializable"),
            ("x" * 60_000, "its 60023 bytes of JSON are too many beside the exception"),
            ("x" * 99_000, "its 99023 bytes of JSON are too many beside the exception"),
        ):
            self.asked.clear()
            given: dict[str, object] = {"step": 1}
            guard = capture_oom("x", given)
            given["late"] = late
            with mock.patch.dict(sys.modules, {"torch": torch()}), self.assertRaises(MemoryError):
                guard(self.out(MemoryError(text)))()
            ((_, metadata),) = self.asked
            self.assertLessEqual(len(json.dumps(metadata)), 64 * 1024)
            self.assertEqual((metadata["metadata"], metadata["metadata_reason"]), (None, reason))
            self.assertTrue(text.startswith(metadata["exception"]["text"]) and metadata["exception"]["text"])
            self.assertEqual(metadata["torch"][0]["memory_summary"], "a table")

    # Requirement: PY-35
    def test_generator_is_captured_while_it_runs_and_an_async_one_is_refused(self) -> None:
        @capture_oom("generator")
        def count(most: int) -> Generator[int, str, str]:
            got = yield most
            if got == "fail":
                raise MemoryError
            return got

        generator = count(3)
        self.assertEqual(next(generator), 3)
        with self.assertRaises(StopIteration) as end:
            generator.send("done")
        self.assertEqual((end.exception.value, self.asked), ("done", []))
        generator = count(4)
        next(generator)
        with self.assertRaises(MemoryError):
            generator.send("fail")
        self.assertEqual([context for context, _ in self.asked], ["generator"])

        async def count_async() -> AsyncGenerator[int, None]:
            yield 1

        with self.assertRaisesRegex(TypeError, "async generator"):
            capture_oom()(count_async)

    # Requirement: PY-35
    def test_memory_of_pytorch_is_there_as_far_as_there_is_room(self) -> None:
        for devices, summary, expected in ((2, "a table", "a table"), (12, "x" * 9000, None)):
            self.asked.clear()
            module = torch(devices, summary)
            error = vars(module)["OutOfMemoryError"]("CUDA out of memory. " + "y" * 90_000)
            with mock.patch.dict(sys.modules, {"torch": module}), self.assertRaises(RuntimeError):
                capture_oom()(self.out(error))()
            ((_, metadata),) = self.asked
            self.assertLessEqual(len(json.dumps(metadata)), 64 * 1024)
            self.assertTrue(metadata["exception"]["text"].startswith("CUDA out of memory. yyy"))
            self.assertEqual([one["device"] for one in metadata["torch"]], list(range(devices)))
            self.assertEqual(metadata["torch"][0]["memory_summary"], expected)
            self.assertEqual(metadata["torch"][1]["memory_stats"], {"allocated_bytes.all.current": 101})

    # Requirement: PY-35
    def test_threads_and_coroutines_have_a_bundle_each(self) -> None:
        shared = capture_oom("shared")

        def work() -> None:
            with self.assertRaises(MemoryError), shared:
                raise MemoryError

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        @shared
        async def coroutine(number: int) -> int:
            await asyncio.sleep(0)
            if number % 2:
                raise MemoryError
            return number

        async def both() -> list[object]:
            return list(await asyncio.gather(*map(coroutine, range(4)), return_exceptions=True))

        found = asyncio.run(both())
        self.assertEqual([found[0], found[2]], [0, 2])
        self.assertEqual([type(one) for one in found[1::2]], [MemoryError, MemoryError])
        self.assertEqual([context for context, _ in self.asked], ["shared"] * 6)


class WithTheProgram(Installed):
    def setUp(self) -> None:
        super().setUp()
        patch = mock.patch.dict(os.environ, {"XDG_STATE_HOME": os.fspath(self.directory / "state")})
        patch.start()
        self.addCleanup(patch.stop)

    def manifest(self, bundle: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((pathlib.Path(bundle) / "manifest.json").read_text(encoding="utf-8"))
        return found

    # Requirement: PY-34, RECORD-5
    def test_bundle_of_a_tracker_is_of_this_program_and_the_report_follows(self) -> None:
        self.assertIsNone(record("before"))
        with Tracker(0.1, disable_logs=True) as tracker:
            held = bytearray(100_000_000)
            bundle = record("step 7", {"epoch": 3})
            assert bundle is not None
            del held
        self.assertIsNone(record("after"))
        self.assertEqual(pathlib.Path(bundle).parent, self.directory / "state/gpu-track/bundles")
        manifest = self.manifest(bundle)
        self.assertEqual([manifest[key] for key in ("trigger", "context")], ["asked", "step 7"])
        self.assertEqual(manifest["metadata"], {"epoch": 3})
        report = json.loads((pathlib.Path(bundle) / "report.json").read_text(encoding="utf-8"))
        self.assertEqual((report["stage"], report["attached"]["pid"]), ("so_far", os.getpid()))
        largest = [one["max_ram_bytes"]["combined"]["total_rss"] for one in (report, tracker.reports[0])]
        self.assertGreater(largest[0], 100_000_000)

    # Requirement: PY-34
    def test_bundle_is_of_a_tracker_of_another_process_where_there_is_no_other_run(self) -> None:
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as other:
            with Tracker(0.1, disable_logs=True, process_id=other.pid):
                bundle = record("the other one")
            other.communicate()
        assert bundle is not None
        report = json.loads((pathlib.Path(bundle) / "report.json").read_text(encoding="utf-8"))
        self.assertEqual(report["attached"]["pid"], other.pid)

    # Requirement: SEE-37
    def test_programs_of_this_module_are_in_no_figure(self) -> None:
        with Tracker(0.1, tracking_file="run.jsonl", disable_logs=True) as older:
            metric("loss", 0.5)
            with Tracker(0.1, disable_logs=True) as newer:
                self.assertIsNotNone(record("both"))
                wait_until(lambda: older.timeline(0.1))
                self.assertEqual(len(newer.metrics()), 0)
            self.assertEqual(len(older.metrics()), 1)
        for tracker in (older, newer):
            report = tracker.reports[0]
            self.assertEqual([one["pid"] for one in report["processes"]["heaviest"]], [os.getpid()])
            self.assertEqual(report["processes"]["total"], 1)
            self.assertGreaterEqual(report["coverage"]["helpers"], 2)

    # Requirement: PY-34, PY-35, SEE-37
    def test_program_under_gpu_track_run_leaves_a_bundle_of_its_out_of_memory_error(self) -> None:
        code = "import gpu_track\nwith gpu_track.capture_oom('in run', {'batch': 64}):\n    bytearray(1 << 60)\n"
        run = os.environ["GPU_TRACK_RUN"]
        options = ["-q", "-f", "json", "-o", "r.json", "--record", "records", "--", sys.executable, "-c", code]
        environment = {**os.environ, "PYTHONPATH": os.fspath(MODULE), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run([run, *options], env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertTrue(done.stderr.rstrip().endswith("MemoryError"), done.stderr)
        (bundle,) = (self.directory / "records").iterdir()
        report = json.loads(pathlib.Path("r.json").read_text(encoding="utf-8"))
        self.assertEqual((report["processes"]["total"], report["coverage"]["helpers"]), (1, 1))
        manifest = self.manifest(os.fspath(bundle))
        self.assertEqual((manifest["context"], manifest["metadata"]["metadata"]), ("in run", {"batch": 64}))
        self.assertEqual(manifest["metadata"]["exception"]["type"], "builtins.MemoryError")
