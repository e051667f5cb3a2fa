"""Tests of scripts/time-spent: of what it compares with what, on made reports."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import unittest
from typing import Any

from gpu_track_scripts.paths import ROOT
from gpu_track_scripts.time_spent import cases, cli, runner, server, surroundings, table
from gpu_track_scripts.time_spent.cases import Case
from gpu_track_scripts.time_spent.compare import (
    Comparison,
    compare,
    compare_cores,
    compare_form,
    compare_shares,
    compare_unknown,
    compare_verdict,
    tolerance,
)
from gpu_track_scripts.time_spent.truth import NOTHING, STATES, Share, Truth, of_phases, of_pipeline
from gpu_track_scripts.tools import Unavailable

WALL_S = 10.0


def verdict_of(kind: str, share: float = 0.7, command: str | None = "phases") -> dict[str, Any]:
    return {"kind": kind, "share": share, "command": command, "text": f"{kind} most of the time", "next_step": None}


def report_of(
    shares: dict[str, float], verdict: dict[str, Any] | None = None, *, samples: int = 100, cores: float | None = 1.0
) -> dict[str, Any]:
    states: list[dict[str, Any]] = [
        {
            "state": state,
            "share": share,
            "s": round(share * WALL_S, 1),
            "by_command": [{"command": "phases", "share": share}],
        }
        for state, share in shares.items()
    ]
    return {
        "basis": "sampled",
        "n_samples": samples,
        "states": states,
        "cores_while_computing": cores,
        "verdict": verdict,
    }


def truth_of(**shares: float) -> Truth:
    return Truth({state: Share(shares.get(state, 0.0), shares.get(state, 0.0)) for state in STATES})


def phase(kind: str, state: str, begin_s: float, end_s: float, **figures: float) -> dict[str, Any]:
    return {
        "kind": kind,
        "state": state,
        "begin_s": begin_s,
        "end_s": end_s,
        "computing_s": figures.get("computing_s", 0.0),
        "waiting_s": figures.get("waiting_s", 0.0),
        "state_s": figures.get("state_s", 0.0),
        "cpu_s": figures.get("cpu_s", figures.get("computing_s", 0.0)),
        "queued_s": figures.get("queued_s"),
    }


def broken(comparisons: list[Comparison]) -> list[str]:
    return [comparison.what for comparison in comparisons if not comparison.holds]


class Shares(unittest.TestCase):
    def test_a_share_within_bounds_is_right(self) -> None:
        bounds = Share(0.25, 0.75)
        self.assertEqual([bounds.off(share) for share in (0.0, 0.25, 0.5, 0.75, 1.0)], [0.25, 0.0, 0.0, 0.0, 0.25])
        self.assertEqual(bounds.text(), "25.0 to 75.0")
        self.assertEqual(Share(0.5, 0.5).text(), "50.0")

    def test_bounds_are_as_uncertain_as_their_share_nearest_to_half(self) -> None:
        bounds = [Share(0.2, 0.4), Share(0.2, 0.8), Share(0.6, 0.8)]
        self.assertEqual([share.most_uncertain() for share in bounds], [0.4, 0.5, 0.6])

    def test_few_samples_allow_more_in_short_runs(self) -> None:
        half = Share(0.5, 0.5)
        self.assertAlmostEqual(tolerance(half, 100, WALL_S), 0.1)
        self.assertEqual(tolerance(half, 10_000, WALL_S), 0.05)
        self.assertEqual(tolerance(Share(0.0, 0.0), 100, WALL_S), 0.05)
        self.assertEqual(tolerance(half, 100, 20.0), 0.05)
        self.assertEqual(tolerance(half, 0, WALL_S), 1.0)

    def test_each_known_state_is_compared(self) -> None:
        known = truth_of(computing=0.5, sleeping=0.5)
        self.assertEqual(len(compare_shares(report_of({"computing": 0.5}), WALL_S, known)), len(STATES))
        right = report_of({"computing": 0.55, "sleeping": 0.45})
        self.assertEqual(broken(compare_shares(right, WALL_S, known)), [])
        wrong = report_of({"computing": 0.61, "sleeping": 0.33, "lock": 0.06})
        comparisons = compare_shares(wrong, WALL_S, known)
        self.assertEqual(broken(comparisons), ["computing", "lock", "sleeping"])
        self.assertEqual(comparisons[0].text(), "computing: 61.0 %, wanted 50.0 +- 10.0 %")

    def test_a_state_that_the_report_leaves_out_is_compared(self) -> None:
        self.assertEqual(
            broken(compare_shares(report_of({"sleeping": 1.0}), WALL_S, truth_of(gpu=1))), ["gpu", "sleeping"]
        )

    def test_unknown_is_rare(self) -> None:
        self.assertTrue(compare_unknown(report_of({"sleeping": 1.0})).holds)
        self.assertTrue(compare_unknown(report_of({"unknown": 0.029})).holds)
        self.assertFalse(compare_unknown(report_of({"unknown": 0.03})).holds)


class Form(unittest.TestCase):
    def test_a_right_report(self) -> None:
        report = report_of({"computing": 0.25, "sleeping": 0.75 - 5e-7})
        self.assertEqual(broken(compare_form(report, WALL_S)), [])

    def test_the_shares_add_up(self) -> None:
        self.assertEqual(broken(compare_form(report_of({"computing": 0.9}), WALL_S)), ["sum of the shares"])

    def test_states_are_known_and_come_once(self) -> None:
        report = report_of({"computing": 0.5, "dreaming": 0.5})
        self.assertIn("states twice or without a meaning", broken(compare_form(report, WALL_S)))
        report = report_of({"computing": 0.5})
        report["states"] *= 2
        self.assertEqual(broken(compare_form(report, WALL_S)), ["states twice or without a meaning"])

    def test_a_share_is_a_share(self) -> None:
        report = report_of({"computing": 1.1, "sleeping": -0.1})
        self.assertIn("shares that are none", broken(compare_form(report, WALL_S)))

    def test_seconds_belong_to_the_share(self) -> None:
        report = report_of({"sleeping": 1.0})
        self.assertEqual(broken(compare_form(report, 12.0)), ["seconds that are not the share of the wall time"])

    def test_no_command_has_more_than_all(self) -> None:
        report = report_of({"sleeping": 1.0})
        report["states"][0]["by_command"][0]["share"] = 1.5
        self.assertEqual(broken(compare_form(report, WALL_S)), ["states of which a command has more than all"])


class Verdicts(unittest.TestCase):
    def holds(
        self, verdict: dict[str, Any] | None, known: Truth, *, samples: int = 100, wall_s: float = WALL_S
    ) -> bool:
        (comparison,) = compare_verdict(report_of({}, verdict, samples=samples), wall_s, known)
        return comparison.holds

    def test_a_state_that_leads_clearly_is_the_verdict(self) -> None:
        known = truth_of(storage=0.6, computing=0.4)
        self.assertTrue(self.holds(verdict_of("storage"), known))
        for verdict in (None, verdict_of("computing"), verdict_of("shared")):
            self.assertFalse(self.holds(verdict, known))

    def test_without_a_clear_leader_only_a_wrong_state_is_wrong(self) -> None:
        known = truth_of(storage=0.55, computing=0.35, sleeping=0.1)
        for verdict in (None, verdict_of("storage"), verdict_of("shared")):
            self.assertTrue(self.holds(verdict, known))
        for verdict in (verdict_of("computing"), verdict_of("lock")):
            self.assertFalse(self.holds(verdict, known))

    def test_of_states_that_are_nearly_equal_each_may_be_the_verdict(self) -> None:
        known = truth_of(storage=0.5, computing=0.45, sleeping=0.05)
        self.assertTrue(self.holds(verdict_of("computing"), known))
        self.assertFalse(self.holds(verdict_of("sleeping"), known))

    def test_a_state_that_never_was_is_wrong_however_few_samples_there_are(self) -> None:
        known = truth_of(**dict.fromkeys(("storage", "computing", "sleeping", "lock", "pipe"), 0.2))
        self.assertFalse(self.holds(verdict_of("gpu"), known, samples=20))

    def test_there_is_no_verdict_of_little(self) -> None:
        known = truth_of(storage=1.0)
        for samples, wall_s in ((19, WALL_S), (20, 0.9)):
            self.assertTrue(self.holds(None, known, samples=samples, wall_s=wall_s))
            self.assertFalse(self.holds(verdict_of("storage"), known, samples=samples, wall_s=wall_s))
        self.assertTrue(self.holds(verdict_of("storage"), known, samples=20, wall_s=1.0))

    def test_the_command_counts_where_it_is_known(self) -> None:
        known = Truth({"computing": Share(0.3, 1.0)}, verdict=("computing", "gzip"))
        for command in ("gzip", "gzip -c", "/usr/bin/gzip -c"):
            self.assertTrue(self.holds(verdict_of("computing", command=command), known))
        for verdict in (None, verdict_of("pipe", command="gzip"), verdict_of("computing", command="cat")):
            self.assertFalse(self.holds(verdict, known))
        self.assertFalse(self.holds(verdict_of("computing", command=None), known))

    def test_without_a_truth_nothing_is_compared(self) -> None:
        self.assertEqual(compare_verdict(report_of({}, verdict_of("gpu")), WALL_S, NOTHING), [])


class Cores(unittest.TestCase):
    def found(self, reported: float | None, known: float | None, computing: float = 1.0) -> list[bool]:
        truth = Truth(truth_of(computing=computing).shares, cores=known)
        return [comparison.holds for comparison in compare_cores(report_of({}, cores=reported), truth)]

    def test_cores_are_compared(self) -> None:
        self.assertEqual(self.found(1.8, 2.0), [True])
        self.assertEqual(self.found(1.6, 2.0), [False])
        self.assertEqual(self.found(None, 2.0), [False])

    def test_cores_are_not_compared_where_little_computed(self) -> None:
        self.assertEqual(self.found(9.0, 1.0, computing=0.1), [])
        self.assertEqual(self.found(9.0, None), [])


class Truths(unittest.TestCase):
    def test_the_programs_own_seconds_count(self) -> None:
        record: dict[str, Any] = {
            "pid": 7,
            "phases": [
                phase("compute2", "computing", 100, 104, computing_s=3, waiting_s=1, state_s=3, cpu_s=6),
                phase("fsync", "storage", 104, 110, computing_s=1, waiting_s=0.5, state_s=4.5),
            ],
        }
        known = of_phases(record)
        shares = {state: share.low for state, share in known.shares.items() if share.low}
        self.assertEqual(shares, {"computing": 0.4, "waiting_for_core": 0.15, "storage": 0.45})
        self.assertEqual(known.cores, 7 / 4)
        self.assertEqual(known.leader(), ("storage", 0.45))

    def test_waiting_may_be_the_kernels_figure(self) -> None:
        record: dict[str, Any] = {
            "pid": 7,
            "phases": [phase("compute", "computing", 0, 10, computing_s=6, waiting_s=4, queued_s=3.9, state_s=6)],
        }
        self.assertEqual(of_phases(record).shares["waiting_for_core"].low, 0.4)
        by_kernel = of_phases(record, waiting_by_schedstat=True)
        self.assertEqual(by_kernel.shares["waiting_for_core"].low, 0.39)
        record["phases"][0]["queued_s"] = None
        self.assertEqual(of_phases(record, waiting_by_schedstat=True).shares["waiting_for_core"].low, 0.4)

    def test_without_computing_there_are_no_cores(self) -> None:
        record: dict[str, Any] = {"pid": 7, "phases": [phase("sleep", "sleeping", 0, 1, state_s=1)]}
        self.assertIsNone(of_phases(record).cores)

    def test_a_pipeline_computes_at_once_or_one_by_one(self) -> None:
        known = of_pipeline(6.0, 10.0, 3, ("computing", "gzip"))
        self.assertAlmostEqual(known.shares["computing"].low, 0.2)
        self.assertAlmostEqual(known.shares["computing"].high, 0.6)
        self.assertEqual(of_pipeline(20.0, 10.0, 3, ("computing", "gzip")).shares["computing"].high, 1.0)
        self.assertIsNone(known.leader())

    def test_a_shells_times(self) -> None:
        self.assertAlmostEqual(runner.cpu_of_times("0m0.00s 0m0.01s\n1m2.500000s 0m0.250000s\n"), 62.75)


class Whole(unittest.TestCase):
    def test_a_right_run(self) -> None:
        known = Truth(truth_of(computing=0.7, sleeping=0.3).shares, cores=1.0)
        report = report_of({"computing": 0.72, "sleeping": 0.27, "unknown": 0.01}, verdict_of("computing"))
        comparisons = compare(report, WALL_S, known)
        self.assertEqual(broken(comparisons), [])
        self.assertEqual(len(comparisons), 5 + len(STATES) + 3)

    def test_of_a_run_that_nothing_is_known_of_the_form_is_compared(self) -> None:
        comparisons = compare(report_of({"unknown": 0.5, "events": 0.5}), WALL_S, NOTHING, may_be_unknown=True)
        self.assertEqual((len(comparisons), broken(comparisons)), (5, []))


class Cases(unittest.TestCase):
    def test_a_seed_makes_the_same_mix(self) -> None:
        self.assertEqual(cases.mix(5), cases.mix(5))
        self.assertNotEqual(cases.mix(5).phases, cases.mix(6).phases)

    def test_mixes_have_their_length(self) -> None:
        for seed in range(200):
            made = cases.mix(seed)
            seconds = [float(word.split(":")[1]) for word in made.phases]
            self.assertGreaterEqual(min(seconds), cases.PHASE_S)
            self.assertTrue(cases.SHORTEST_S - 0.1 <= sum(seconds) <= cases.LONGEST_S + 7 * cases.PHASE_S)
            quick = [float(word.split(":")[1]) for word in cases.mix(seed, quick=True).phases]
            self.assertLess(sum(quick), cases.SHORTEST_S + 7 * cases.PHASE_S)

    def test_mixes_have_all_kinds_and_some_have_a_pool(self) -> None:
        mixes = [cases.mix(seed) for seed in range(200)]
        kinds = {word.split(":")[0] for made in mixes for word in made.phases}
        self.assertEqual(kinds, {kind for kinds in cases.KINDS_BY_STATE.values() for kind in kinds})
        self.assertTrue(0 < sum(made.pool > 0 for made in mixes) < len(mixes))

    def test_the_program_has_all_states_and_kinds(self) -> None:
        source = (ROOT / "tests" / "programs" / "phases.c").read_text(encoding="utf-8")
        for state, kinds in cases.KINDS_BY_STATE.items():
            self.assertIn(state, STATES)
            for kind in kinds:
                self.assertIn(f'{{"{kind}", "{state}", "', source)

    def test_words_select(self) -> None:
        def names(*arguments: str) -> list[str]:
            return [case.name for case in cli.selected(cli.parse_arguments(arguments))]

        self.assertEqual(names("mix", "--seed", "8", "--runs", "2"), ["mix of seed 8", "mix of seed 9"])
        self.assertEqual(names("strangers", "gzip"), ["busy strangers", "gzip in a pipeline"])
        self.assertEqual(len(names("--quick")), 2 + len(cases.special()))


class Quota(unittest.TestCase):
    MOUNTS = (
        "24 1 0:22 / /proc rw,relatime - proc proc rw\n"
        "30 24 0:26 / /sys/fs/cgroup/cpu rw,nosuid - cgroup cgroup rw,cpu,cpuacct\n"
        "31 24 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
        "32 24 0:28 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
    )

    def test_quotas_are_possible_below_the_own_group_or_the_first(self) -> None:
        found = surroundings.places_for_quota(self.MOUNTS, "3:cpu,cpuacct:/job\n2:cpuset:/\n0::/me\n")
        self.assertEqual(
            [(str(place), next(iter(files))) for place, files in found],
            [
                ("/sys/fs/cgroup/cpu/job", "cpu.cfs_period_us"),
                ("/sys/fs/cgroup/cpu", "cpu.cfs_period_us"),
                ("/sys/fs/cgroup/unified/me", "cpu.max"),
                ("/sys/fs/cgroup/unified", "cpu.max"),
            ],
        )

    def test_there_may_be_none(self) -> None:
        self.assertEqual(surroundings.places_for_quota("24 1 0:22 / /proc rw - proc proc rw\n", "0::/\n"), [])


class Server(unittest.TestCase):
    def setUp(self) -> None:
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        directory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.server = stack.enter_context(server.serving(directory))

    def ask(self, line: str) -> bytes:
        """The answer to a line."""
        with socket.create_connection(("127.0.0.1", self.server.port())) as connection:
            connection.sendall(line.encode())
            return connection.recv(1)

    def test_it_answers(self) -> None:
        self.assertEqual(self.ask("late 0.001 7\n"), b"1")
        self.assertEqual(self.ask("late\n"), b"")

    def test_it_holds_locks_before_it_answers(self) -> None:
        # A lock of fcntl(2) is the process's, so that one can't be seen from here.
        with open(self.server.lock, "r+b") as file:
            self.assertEqual(self.ask("flock 0.001 7\n"), b"1")
            fcntl.flock(file, fcntl.LOCK_EX)
            fcntl.flock(file, fcntl.LOCK_UN)
            # So long that it still has the lock; nothing waits for its end.
            self.assertEqual(self.ask("flock 600 7\n"), b"1")
            self.assertRaises(BlockingIOError, fcntl.flock, file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def test_it_writes_to_the_fifo(self) -> None:
        with open(os.open(self.server.fifo, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as fifo:
            os.set_blocking(fifo.fileno(), True)
            self.assertEqual(self.ask("pipe 0.001 7\n"), b"1")
            self.assertEqual(fifo.read(1), b"1")

    def test_it_continues_what_stops_itself(self) -> None:
        program = "import os, signal; input(); os.kill(os.getpid(), signal.SIGSTOP); print('continued')"
        command = [sys.executable, "-c", program]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            self.assertEqual(self.ask(f"stop 0.001 {child.pid}\n"), b"1")
            self.assertEqual(child.communicate("\n", timeout=20)[0], "continued\n")

    def test_a_name_may_look_like_a_state(self) -> None:
        self.assertEqual(server.letter_of("7 (a) T (b) S 1 7 7"), "S")


class Table(unittest.TestCase):
    CASE = Case("mix of seed 1", ("sleep:8",), pool=2)

    def print_table(self, *results: runner.Outcome | Exception) -> tuple[str, table.Tally]:
        answers = iter(results)

        def answer(_: Case) -> runner.Outcome:
            result = next(answers)
            if isinstance(result, Exception):
                raise result
            return result

        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            tally = table.print_table([self.CASE] * len(results), answer)
        return output.getvalue(), tally

    def outcome(self, **shares: float) -> runner.Outcome:
        return runner.Outcome(WALL_S, truth_of(sleeping=1.0), report_of(shares, verdict_of("sleeping", 1.0)))

    def test_a_right_run(self) -> None:
        text, tally = self.print_table(self.outcome(sleeping=1.0))
        self.assertIn(
            "| mix of seed 1 | 10.0 | 100 | sleeping: 100.0 / 100.0 | sleeping 100.0 % (phases) | 21 of 21 | - |", text
        )
        self.assertEqual(text.splitlines()[-1], "21 of 21 comparisons held, 0 runs skipped, 0 failed")
        self.assertEqual(tally.status(), 0)

    def test_what_does_not_hold_is_explained(self) -> None:
        text, tally = self.print_table(self.outcome(sleeping=0.9, pipe=0.1))
        self.assertIn("not held: mix of seed 1: pipe: 10.0 %, wanted 0.0 +- 5.0 %", text)
        self.assertIn("  its command: phases --pool 2 sleep:8", text)
        self.assertIn("19 of 21 comparisons held", text)
        self.assertEqual(tally.status(), 1)

    def test_a_skipped_run_is_no_failure_and_a_failed_one_is(self) -> None:
        text, tally = self.print_table(self.outcome(sleeping=1.0), Unavailable("one core"))
        self.assertIn("skipped: mix of seed 1: one core", text)
        self.assertEqual(tally.status(), 0)
        text, tally = self.print_table(self.outcome(sleeping=1.0), runner.Failed("status 3"))
        self.assertIn("failed: mix of seed 1: status 3", text)
        self.assertEqual(tally.status(), 1)

    def test_a_run_alone_shows_the_truth(self) -> None:
        text, tally = self.print_table(runner.Outcome(WALL_S, truth_of(sleeping=0.9, lock=0.1)))
        self.assertIn("| mix of seed 1 | 10.0 |  | lock: 10.0, sleeping: 90.0 |  |  |  |", text)
        self.assertEqual((tally.compared, tally.status()), (0, 0))


if __name__ == "__main__":
    unittest.main()
