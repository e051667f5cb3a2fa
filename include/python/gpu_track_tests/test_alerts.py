"""Tests of the alerts of a tracker, with a program in the place of gpu-track-run, and with the built one."""

from __future__ import annotations

import gc
import json
import os
import pathlib
import threading
import types
import unittest
from typing import Any
from unittest import mock

from gpu_track import MemoryWatchdog, Tracker
from gpu_track._alerts import Alerts
from gpu_track._stretch import Stretch
from gpu_track._watchdog import Freed
from gpu_track_tests.places import PATIENCE_S, wait_until
from gpu_track_tests.test_installed import Installed
from gpu_track_tests.test_tracker import GOOD, WithProgram


def event(rule: str, kind: str = "warning", at_s: float = 1.0) -> dict[str, Any]:
    """An event of an alert, with the keys that the module uses."""
    return {"at_s": at_s, "kind": kind, "rule": rule, "quantity": rule.split(">", maxsplit=1)[0], "since_s": None}


def line(of: dict[str, Any]) -> str:
    return json.dumps({"event": of}) + "\n"


class Following(WithProgram):
    def setUp(self) -> None:
        super().setUp()
        # A busy machine takes its time.
        self.enterContext(mock.patch("gpu_track._alerts._END_WITHIN_S", PATIENCE_S))
        self.path = self.directory / "events.jsonl"
        self.path.write_text(json.dumps({"run": {}}) + "\n" + line({"at_s": 0.0, "kind": "start"}), encoding="utf-8")

    def add(self, text: str) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(text)

    # Requirement: PY-31
    def test_each_event_of_an_alert_calls_the_function_once_and_a_torn_line_waits_for_its_end(self) -> None:
        called: list[dict[str, Any]] = []
        threads: set[str] = set()

        def on_alert(of: dict[str, Any]) -> None:
            threads.add(threading.current_thread().name)
            called.append(of)

        alerts = Alerts(["ram>1M"], on_alert)
        alerts.begin(os.fspath(self.path), 0.0)
        first, second = event("ram>1M"), event("ram>1M", "recovered", 2.0)
        self.add(line(first) + line(second)[:20])
        wait_until(lambda: called == [first])
        self.assertEqual(alerts.events(), [first])
        self.add(line(second)[20:] + line({"at_s": 3.0, "kind": "stop"}))
        alerts.end()
        self.assertEqual((called, alerts.events()), ([first, second], [first, second]))
        self.assertEqual(threads, {"gpu_track alerts"})
        # The next stretch began 10 s later.
        self.path.write_text(line({**first, "since_s": 0.5}), encoding="utf-8")
        alerts.begin(os.fspath(self.path), 10.0)
        alerts.end()
        later = {**first, "at_s": 11.0, "since_s": 10.5}
        self.assertEqual((called[2:], alerts.events()), ([later], [first, second, later]))

    # Requirement: PY-31
    def test_no_thread_runs_without_a_function(self) -> None:
        before = threading.active_count()
        alerts = Alerts("ram>1M", None)
        alerts.begin(os.fspath(self.path), 0.0)
        self.assertEqual(threading.active_count(), before)
        self.add(line(event("ram>1M")))
        alerts.end()
        self.assertEqual(alerts.events(), [event("ram>1M")])

    # Requirement: PY-85
    def test_forked_child_has_the_events_and_no_thread(self) -> None:
        alerts = Alerts("ram>1M", lambda _event: None)
        alerts.begin(os.fspath(self.path), 0.0)
        self.add(line(event("ram>1M")))
        child = os.fork()
        if child == 0:
            os._exit(0 if alerts.events() == [event("ram>1M")] and threading.active_count() == 1 else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        alerts.end()

    # Requirement: PY-32
    def test_what_the_function_raises_is_counted_and_said_once(self) -> None:
        def on_alert(of: dict[str, Any]) -> None:
            raise (SystemExit if of["at_s"] > 1.5 else KeyError)("x")

        alerts = Alerts("ram>1M", on_alert)
        with self.warned("on_alert raised KeyError: 'x'"):
            alerts.begin(os.fspath(self.path), 0.0)
            self.add("".join(line(event("ram>1M", at_s=at_s)) for at_s in (1.0, 2.0, 3.0)))
            alerts.end()
        self.assertEqual(alerts.errors, 3)

    # Requirement: PY-31, PY-32
    def test_several_functions_are_called_in_their_order_and_one_that_raises_keeps_none_from_it(self) -> None:
        called: list[str] = []

        def fails(_event: dict[str, Any]) -> None:
            called.append("fails")
            raise KeyError("x")

        alerts = Alerts("ram>1M", [fails, lambda _event: called.append("second")])
        with self.warned("on_alert raised KeyError: 'x'"):
            alerts.begin(os.fspath(self.path), 0.0)
            self.add(line(event("ram>1M", at_s=1.0)) + line(event("ram>1M", at_s=2.0)))
            alerts.end()
        self.assertEqual((called, alerts.errors), (["fails", "second"] * 2, 2))
        self.assertEqual(Alerts(None, []).rules, [], "there is nothing to call")

    # Requirement: PY-98
    def test_fragmentation_is_an_alert_that_goes_on_and_off_for_each_device(self) -> None:
        called: list[dict[str, Any]] = []
        alerts = Alerts("fragmentation>30%", called.append)
        self.assertEqual(alerts.options(os.fspath(self.path)), [], "gpu-track-run does not know it")
        alerts.begin(os.fspath(self.path), 10.0)
        mib = 1 << 20
        for device, split, reserved in ((0, 90, 100), (0, 299, 1000), (0, 301, 1000), (1, 50, 1000), (0, 290, 1000)):
            stats = {"inactive_split_bytes.all.current": split * mib, "reserved_bytes.all.current": reserved * mib}
            alerts.note_torch(device, stats)
        alerts.note_torch(0, {"reserved_bytes.all.current": 1000 * mib})
        wait_until(lambda: called)
        alerts.note_torch(0, {"inactive_split_bytes.all.current": 0, "reserved_bytes.all.current": 1000 * mib})
        alerts.end()
        found = [(of["kind"], of["device"], of["amount"], of["allowed"], of["rule"]) for of in called]
        rule = (30.0, "fragmentation>30%")
        self.assertEqual(found, [("warning", "cuda:0", 30.1, *rule), ("recovered", "cuda:0", 0.0, *rule)])
        self.assertEqual(called[1]["since_s"], called[0]["at_s"])
        self.assertGreater(called[0]["at_s"], 10.0)
        self.assertEqual(alerts.events(), called)
        with self.assertRaisesRegex(ValueError, '"fragmentation>1G" is no alert'):
            Alerts("fragmentation>1G", None)

    # Requirement: PY-32, PY-83
    def test_function_that_hangs_or_ends_tracking_does_not_keep_it_from_its_end(self) -> None:
        is_let_go = threading.Event()
        alerts = Alerts("ram>1M", lambda _event: is_let_go.wait(PATIENCE_S))
        self.addCleanup(is_let_go.set)
        self.add(line(event("ram>1M")))
        with mock.patch("gpu_track._alerts._END_WITHIN_S", 0.01):
            alerts.begin(os.fspath(self.path), 0.0)
            alerts.end()
        self.assertEqual(alerts.events(), [event("ram>1M")])
        ends: Alerts = Alerts("ram>1M", lambda _event: ends.end())
        ends.begin(os.fspath(self.path), 0.0)
        wait_until(lambda: ends._known[1] is None)
        self.assertEqual((ends.errors, ends.events()), (0, [event("ram>1M")]))

    # Requirement: PY-31, PY-83
    def test_events_of_a_slow_function_wait_for_it_also_after_the_end_and_in_the_next_stretch(self) -> None:
        called: list[float] = []
        inside: list[float] = []
        overlaps: list[float] = []
        is_let_go = threading.Event()
        self.addCleanup(is_let_go.set)

        def on_alert(of: dict[str, Any]) -> None:
            overlaps.extend(inside)
            inside.append(of["at_s"])
            is_let_go.wait(PATIENCE_S)
            inside.remove(of["at_s"])
            called.append(of["at_s"])

        alerts = Alerts("ram>1M", on_alert)
        alerts.begin(os.fspath(self.path), 0.0)
        self.add(line(event("ram>1M", at_s=1.0)))
        wait_until(lambda: inside)
        self.add(line(event("ram>1M", at_s=2.0)))
        # What would call it beside the call that goes on has this time for it.
        with mock.patch("gpu_track._alerts._END_WITHIN_S", 0.3):
            alerts.end()
            self.path.write_text(line(event("ram>1M", at_s=3.0)), encoding="utf-8")
            alerts.begin(os.fspath(self.path), 0.0)
            alerts.end()
        self.path.unlink()
        is_let_go.set()
        wait_until(lambda: len(called) == 3)
        self.assertEqual((called, overlaps), ([1.0, 2.0, 3.0], []))
        self.assertEqual([of["at_s"] for of in alerts.events()], [1.0, 2.0, 3.0])

    # Requirement: PY-31
    def test_function_that_pauses_and_resumes_is_not_called_again_before_it_is_over(self) -> None:
        done: list[str] = []

        def on_alert(of: dict[str, Any]) -> None:
            done.append(f"begin {of['at_s']}")
            if of["at_s"] == 1.0:
                alerts.end()
                self.path.write_text(line(event("ram>1M", at_s=2.0)), encoding="utf-8")
                alerts.begin(os.fspath(self.path), 0.0)
                # The other thread has this time to call it.
                with mock.patch("gpu_track._alerts._END_WITHIN_S", 0.3):
                    alerts.end()
            done.append(f"end {of['at_s']}")

        alerts = Alerts("ram>1M", on_alert)
        self.add(line(event("ram>1M", at_s=1.0)))
        alerts.begin(os.fspath(self.path), 0.0)
        wait_until(lambda: len(done) == 4)
        self.assertEqual(done, ["begin 1.0", "end 1.0", "begin 2.0", "end 2.0"])


def alert_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "gpu_track alerts"]


class Ends(WithProgram):
    # Requirement: PY-32
    def test_no_thread_outlives_a_tracker_whose_end_was_interrupted(self) -> None:
        self.program(GOOD)
        for act in (Tracker.stop, Tracker.pause):
            for problem in (KeyboardInterrupt, OSError):
                tracker = Tracker(disable_logs=True, on_alert=print)
                tracker.start()
                (thread,) = alert_threads()
                end = tracker._stretches[-1].end

                def interrupted(attempts: int, timeout_s: float) -> None:
                    end(attempts, timeout_s)  # noqa: B023
                    raise problem  # noqa: B023

                with mock.patch.object(Stretch, "end", side_effect=interrupted), self.assertRaises(problem):
                    act(tracker)
                thread.join(PATIENCE_S)
                self.assertEqual(alert_threads(), [])
                if act is Tracker.pause:
                    tracker.stop()

    # Requirement: PY-32
    def test_no_thread_outlives_a_tracker_that_the_program_does_not_stop(self) -> None:
        self.program(GOOD)
        code = """
import atexit, threading
# It is called after those that are registered later.
atexit.register(lambda: print([thread.name for thread in threading.enumerate()]))
import gpu_track
gpu_track.Tracker(disable_logs=True, on_alert=print).start()
"""
        with mock.patch.dict(os.environ, TMPDIR=os.fspath(self.temporary)):
            self.assertEqual(self.python(code).stdout, "['MainThread']\n")


class Rules(WithProgram):
    # Requirement: PY-33
    def test_rules_and_thresholds_are_options_of_the_next_start(self) -> None:
        self.program(GOOD)
        tracker = Tracker(disable_logs=True, alerts="default, growth")
        tracker.set_threshold("ram", "50%")
        tracker.set_threshold("disk", "10G")
        tracker.set_threshold("gpu_ram", None)
        tracker.start()
        tracker.pause()
        tracker.set_threshold("ram", "70%")
        tracker.resume()
        tracker.stop()
        given = [word for word in self.arguments() if word.startswith("--alert")]
        self.assertEqual(given, ["--alert=growth,ram>50%,disk<10G", "--alert=growth,disk<10G,ram>70%"])
        files = [word for word in self.arguments() if "events" in word and word != "--events"]
        self.assertEqual([pathlib.Path(file).name for file in files], ["events.1.jsonl", "events.2.jsonl"])

    # Requirement: PY-84
    def test_threshold_that_is_set_while_it_tracks_begins_a_stretch_unless_it_is_refused(self) -> None:
        is_wrong = """grep '^--alert' "$arguments" | tail -n 1 | grep -q wrong"""
        self.program(f"if {is_wrong}; then echo 'gpu-track-run: --alert: wrong' >&2; exit 2; fi\n{GOOD}")
        with Tracker(disable_logs=True, alerts="ram>50%") as tracker:
            tracker.set_threshold("ram", "50%")
            tracker.set_threshold("fragmentation", "30%")
            tracker.set_threshold("ram", "60%")
            with self.assertRaisesRegex(ValueError, "--alert"):
                tracker.set_threshold("ram", "wrong")
            with self.assertRaisesRegex(ValueError, "fragmentation>7"):
                tracker.set_threshold("fragmentation", "7")
            self.assertEqual(tracker._alerts.rules, ["fragmentation>30%", "ram>60%"])
            self.assertFalse(tracker.is_paused)
        self.assertEqual(len(tracker.reports), 3)

    # Requirement: PY-33
    def test_what_is_no_rule_is_refused(self) -> None:
        for wrong in (3, ["ram>1M", 4], [None]):
            with self.assertRaises(TypeError):
                Tracker(alerts=wrong)  # type: ignore[arg-type]
        with self.assertRaises(TypeError):
            Tracker(on_alert="f")  # type: ignore[arg-type]
        with self.assertRaisesRegex(TypeError, "no function: 3"):
            Tracker(on_alert=[print, 3])  # type: ignore[list-item]
        with self.assertRaisesRegex(ValueError, '"cores" has no threshold. Supported values are ram'):
            Tracker().set_threshold("cores", "3")
        with self.assertRaises(TypeError):
            Tracker().set_threshold("ram", 3)  # type: ignore[arg-type]
        self.program("echo 'gpu-track-run: --alert: \"x\" is not allowed' >&2; exit 2")
        with self.assertRaisesRegex(ValueError, '^--alert: "x" is not allowed$'):
            Tracker(alerts="x").start()
        self.program("echo 'gpu-track-run: no room' >&2; exit 2")
        with self.assertRaisesRegex(RuntimeError, "no room"):
            Tracker(alerts="x").start()

    # Requirement: PY-31
    def test_function_without_rules_has_the_default_ones_and_a_tracker_without_both_has_none(self) -> None:
        self.program(GOOD)
        with Tracker(disable_logs=True, on_alert=print):
            pass
        self.assertIn("--alert=ram>80%,ram>95%,gpu_ram>80%,gpu_ram>95%", self.arguments())
        (self.directory / "arguments").unlink()
        with Tracker(disable_logs=True) as tracker:
            pass
        self.assertNotIn("--events", self.arguments())
        self.assertEqual((tracker.get_alerts(), tracker.alert_errors), ([], 0))


class Watchdog(unittest.TestCase):
    # Requirement: PY-36
    def test_it_cleans_up_at_most_once_in_its_interval(self) -> None:
        now = [100.0]
        watchdog = MemoryWatchdog(clock=lambda: now[0])
        with mock.patch("gc.collect") as collect:
            for of in (event("cpu>1%"), event("ram>1M", "recovered"), event("disk<1G"), {}):
                watchdog(of)
            self.assertEqual((watchdog.cleanups, watchdog.last_cleanup, collect.call_count), (0, None, 0))
            for at_s, count in ((100.0, 1), (129.9, 1), (130.0, 2), (131.0, 2)):
                now[0] = at_s
                watchdog(event("gpu_ram>80%", "critical"))
                self.assertEqual((watchdog.cleanups, collect.call_count), (count, count))
        self.assertEqual(watchdog.last_cleanup, 130.0)

    # Requirement: PY-36, PY-90
    def test_trackers_that_share_one_and_a_finalizer_clean_up_once(self) -> None:
        count = 4
        together = threading.Barrier(count)
        inner: list[Freed | None] = []

        def clock() -> float:
            # As a finalizer that runs in the same thread.
            if not inner:
                inner.append(watchdog.clean_up())
            return 100.0

        def work() -> None:
            together.wait(PATIENCE_S)
            watchdog(event("ram>1M"))

        watchdog = MemoryWatchdog(clock=clock)
        threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        self.assertEqual((watchdog.cleanups, inner), (1, [None]))

    # Requirement: PY-90
    def test_call_by_hand_frees_garbage_within_the_interval_and_tells_how_much(self) -> None:
        watchdog = MemoryWatchdog(clock=lambda: 100.0)
        self.addCleanup(gc.enable)
        gc.disable()
        watchdog(event("ram>1M"))
        for count in (2, 3):
            cycle: list[object] = [bytearray(b"1") * 100_000_000]
            cycle.append(cycle)
            del cycle
            freed = watchdog.clean_up()
            assert freed is not None and freed.ram_bytes is not None
            self.assertGreater(freed.ram_bytes, 90_000_000)
            self.assertGreaterEqual(freed.objects, 1)
            self.assertEqual((watchdog.cleanups, watchdog.last_freed), (count, freed))
        # The alert that comes with it has nothing left to clean up.
        watchdog(event("ram>1M"))
        self.assertEqual(watchdog.cleanups, 3)
        assert freed is not None
        self.assertEqual((freed.gpu_ram_bytes, freed.gpu_ram_reason), (None, "the program uses no GPU by PyTorch"))
        self.assertRegex(str(freed), r"^freed RAM [\d.]+ MB, GPU RAM n/a \(the program uses no GPU by PyTorch\), \d+ ")

    # Requirement: PY-90
    def test_call_by_hand_meets_one_that_goes_on_in_its_thread_in_another_and_in_a_fork(self) -> None:
        begun, go_on = threading.Event(), threading.Event()
        found: list[Freed | None] = []

        class Cycle:
            def __init__(self) -> None:
                self.own = self

            def __del__(self) -> None:
                found.append(watchdog.clean_up())
                begun.set()
                go_on.wait(PATIENCE_S)

        watchdog = MemoryWatchdog()
        self.addCleanup(gc.enable)
        gc.disable()
        Cycle()
        thread = threading.Thread(target=lambda: found.append(watchdog.clean_up()), daemon=True)
        thread.start()
        self.assertTrue(begun.wait(PATIENCE_S))
        found.append(watchdog.clean_up())
        child = os.fork()
        if not child:
            # The thread that holds the lock is not in this process.
            os._exit(watchdog.clean_up() is None)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        go_on.set()
        thread.join(PATIENCE_S)
        self.assertEqual(found[:2], [None, None])
        self.assertEqual((found[2], watchdog.cleanups), (watchdog.last_freed, 1))
        self.assertIsNotNone(found[2])

    # Requirement: PY-90
    def test_call_by_hand_tells_what_the_allocator_of_pytorch_gave_back(self) -> None:
        reserved = [3_000_000, 500_000]
        torch: Any = types.ModuleType("torch")
        torch.cuda = types.SimpleNamespace(
            is_initialized=lambda: True,
            device_count=lambda: len(reserved),
            memory_reserved=lambda device: reserved[device],
            empty_cache=lambda: reserved.__setitem__(0, 1_000_000),
        )
        with mock.patch.dict("sys.modules", {"torch": torch}):
            freed = MemoryWatchdog().clean_up()
            assert freed is not None
            self.assertEqual((freed.gpu_ram_bytes, freed.gpu_ram_reason), (2_000_000, None))
            torch.cuda.memory_reserved = mock.Mock(side_effect=RuntimeError("another allocator"))
            freed = MemoryWatchdog().clean_up()
        assert freed is not None
        self.assertEqual(freed.gpu_ram_reason, "PyTorch does not tell how much it keeps")
        self.assertIsNone(freed.gpu_ram_bytes)

    # Requirement: PY-36
    def test_it_empties_the_cache_of_pytorch_after_the_garbage_if_the_program_uses_a_gpu_by_it(self) -> None:
        done: list[str] = []
        for is_initialized, expected in ((False, ["collect"]), (True, ["collect", "empty"])):
            torch: Any = types.ModuleType("torch")
            torch.cuda = types.SimpleNamespace(
                is_initialized=lambda is_it=is_initialized: is_it, empty_cache=lambda: done.append("empty")
            )
            done.clear()
            collect = mock.patch("gc.collect", lambda: done.append("collect"))
            with mock.patch.dict("sys.modules", {"torch": torch}), collect:
                self.assertTrue(MemoryWatchdog().clean_up())
            self.assertEqual(done, expected)


class WithTheProgram(Installed):
    # Requirement: PY-31, PY-32, PY-33
    def test_program_that_grows_is_told_and_its_watchdog_frees_memory(self) -> None:
        held: list[bytearray] = []
        dropped = MemoryWatchdog()

        def on_alert(of: dict[str, Any]) -> None:
            dropped(of)
            held.clear()

        tracker = Tracker(0.1, alerts="ram>200M", on_alert=on_alert, disable_logs=True)
        with tracker:
            held.append(bytearray(300_000_000))
            wait_until(lambda: len(tracker.get_alerts()) == 2)
        kinds = [of["kind"] for of in tracker.get_alerts()]
        self.assertEqual((kinds, dropped.cleanups, tracker.alert_errors), (["warning", "recovered"], 1, 0))
        (last,) = tracker.get_alerts(last_n=1)
        self.assertEqual((last["rule"], last["quantity"]), ("ram>200M", "ram"))
        reported = [of for of in tracker.reports[0]["events"]["list"] if of["rule"] is not None]
        self.assertEqual(reported, tracker.get_alerts())

    # Requirement: PY-33
    def test_what_the_program_refuses_is_a_value_error_in_one_line(self) -> None:
        for rule in ("ram>", "ram<1M", "--help", "x\ny"):
            with self.assertRaises(ValueError) as refused:
                Tracker(alerts=rule).start()
            self.assertTrue(str(refused.exception).startswith("--alert: "), refused.exception)
