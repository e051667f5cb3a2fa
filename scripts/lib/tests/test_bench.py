"""Tests of scripts/bench."""

from __future__ import annotations

import contextlib
import io
import json
import pathlib
import struct
import tempfile
import unittest

from gpu_track_scripts.bench import cli, gpu, jobs, peers, processes, runs, sampling, tracked, workbench
from gpu_track_scripts.bench.peers import PeerFigures
from gpu_track_scripts.bench.row import HEADER, Row, skipped_line
from gpu_track_scripts.commands import Word
from gpu_track_scripts.paths import ROOT
from gpu_track_scripts.tools import Unavailable

NOT_BUILT = pathlib.Path("/nonexistent")


def bench_of(directory: pathlib.Path, *, quick: bool = False, path: str = "") -> workbench.Workbench:
    return workbench.Workbench(
        quick=quick,
        path=path,
        temporary=directory,
        tracker=NOT_BUILT / "gpu-track-run",
        ring=NOT_BUILT / "ring",
        births=NOT_BUILT / "births",
        work=NOT_BUILT / "work",
        touch=NOT_BUILT / "touch",
        mapped_bytes=0,
        preloads={},
    )


class Rows(unittest.TestCase):
    def test_verdicts(self) -> None:
        for is_met, verdict in [(True, "met"), (False, "**missed**"), (None, "")]:
            line = Row("m", "h", "t", "f", is_met).line("name")
            self.assertEqual(line, f"| `name`: m | h | t | f | {verdict} |")

    def test_every_line_has_as_many_cells_as_the_header(self) -> None:
        bars = HEADER.splitlines()[0].count("|")
        self.assertEqual(skipped_line("hello", Unavailable("no archive")).count("|"), bars)
        self.assertEqual(Row("", "", "", "", True).line("x").count("|"), bars)


class Workbench(unittest.TestCase):
    def test_sizes_come_from_the_header_file(self) -> None:
        header = "#define GPU_TRACK_HEADER_SIZE 4096u\n#define GPU_TRACK_RING_CAPACITY (10u)\n"
        header += "#define GPU_TRACK_RECORD_WORDS 3u /* words */\n"
        self.assertEqual(workbench.mapped_bytes(header), 4096 + 10 * 3 * 8)

    def test_the_real_header_defines_all_sizes(self) -> None:
        header = (ROOT / "include" / "gpu_track_abi.h").read_text(encoding="utf-8")
        self.assertGreater(workbench.mapped_bytes(header), 4096)

    def test_an_undefined_size_is_an_error(self) -> None:
        with self.assertRaisesRegex(ValueError, "GPU_TRACK_X"):
            workbench.defined("", "GPU_TRACK_X")

    def test_quick_picks_the_second_value(self) -> None:
        self.assertEqual(bench_of(NOT_BUILT).pick(25, 8), 25)
        self.assertEqual(bench_of(NOT_BUILT, quick=True).pick(25, 8), 8)


class Processes(unittest.TestCase):
    def test_births_prints_nanoseconds_and_microseconds(self) -> None:
        self.assertEqual(processes.parse_births("30000 10000 20000\n7 9 8\n"), (20.0, 8.0))

    def test_spawn_is_judged_above_the_empty_preload(self) -> None:
        costs = processes.ChildCosts(
            wall_us={"bare": [100.0, 100.0], "empty": [120.0, 120.0], "ours": [160.0, 160.0]},
            cpu_us={"bare": [50.0, 50.0], "empty": [60.0, 60.0], "ours": [75.0, 75.0]},
        )
        row = processes.spawn_row("m", 40, costs)
        self.assertTrue(row.is_met)
        self.assertEqual(row.held_against, "empty preload: 20.0 us [20.0, 20.0] above bare's 100 us")
        self.assertEqual(
            row.found,
            "+40.0 us [40.0, 40.0] wall; +15.0 us [15.0, 15.0] CPU of the child; "
            "above bare: +60.0 us [60.0, 60.0] wall, +25.0 us [25.0, 25.0] CPU, 1.60 [1.60, 1.60] x",
        )
        self.assertFalse(processes.spawn_row("m", 39, costs).is_met)

    def test_fork_is_judged_above_bare(self) -> None:
        def costs(ours_us: float) -> processes.ChildCosts:
            sides = {"bare": [40.0, 40.0], "empty": [41.0, 41.0], "least": [42.0, 42.0], "ours": [ours_us, ours_us]}
            return processes.ChildCosts(sides, sides)

        self.assertTrue(processes.fork_row("m", costs(43)).is_met)
        self.assertFalse(processes.fork_row("m", costs(43.5)).is_met)
        self.assertIn("+3.0 us [3.0, 3.0] wall", processes.fork_row("m", costs(43)).found)


class Tracked(unittest.TestCase):
    def test_smaps_rollup_is_converted_to_bytes(self) -> None:
        text = (
            "00400000-7ffc [rollup]\nRss: 10 kB\nPss: 7 kB\nPss_Dirty: 1 kB\nPrivate_Clean: 2 kB\nPrivate_Dirty: 3 kB\n"
        )
        self.assertEqual(tracked.parse_smaps_rollup(text), tracked.Resident(10240, 7168, 5120, 3072))

    def test_an_empty_smaps_rollup_is_an_error(self) -> None:
        with self.assertRaises(ValueError):
            tracked.parse_smaps_rollup("")

    def test_the_collector_is_known_by_its_command_line(self) -> None:
        line = b"gpu-track-collector\x007\x003\x00/dev/shm/gpu-track.0.1.a\x00/dev/shm/gpu-track.0.1.a.state\x00"
        self.assertEqual(tracked.segment_of(line), "/dev/shm/gpu-track.0.1.a")
        self.assertIsNone(tracked.segment_of(b"sh\0-c\0cat /dev/shm/gpu-track.0.1.a\0"))
        self.assertIsNone(tracked.segment_of(b""))

    def test_samples_are_read_from_header_and_ring(self) -> None:
        live = bytearray(tracked.RING_AT + tracked.SAMPLE_CAPACITY * tracked.SAMPLE_BYTES)
        struct.pack_into("<Q", live, tracked.SAMPLES_AT, 1030)
        # Sample 1029 overwrites slot 5.
        struct.pack_into("<QQ", live, tracked.RING_AT + 5 * tracked.SAMPLE_BYTES, 1, 123_456)
        self.assertEqual(tracked.samples_taken(bytes(live)), 1030)
        self.assertEqual(tracked.sample_time_ns(bytes(live), 1029), 123_456)

    def test_a_process_that_has_ended_has_no_children(self) -> None:
        self.assertEqual(tracked.children(2**22 + 1), [])


class Sampling(unittest.TestCase):
    def test_the_steady_cost_is_judged_by_the_bare_loop(self) -> None:
        self.assertTrue(sampling.steady_row({"ours": [1300.0, 1200.0], "limit": [1000.0, 1000.0]}).is_met)
        row = sampling.steady_row({"ours": [1400.0, 1400.0], "limit": [1000.0, 1000.0]})
        self.assertFalse(row.is_met)
        self.assertEqual(row.found, "1400 ns [1400, 1400]: 1.40 x [1.40, 1.40]")

    def test_growth_is_in_units_of_the_bare_loop(self) -> None:
        few = {"ours": [1000.0, 1000.0], "limit": [1000.0, 1000.0]}
        # Twice as slow, like the bare loop at that time.
        many = {"ours": [2200.0, 2200.0], "limit": [2000.0, 2000.0]}
        row = sampling.growth_row(5000, few, many)
        self.assertTrue(row.is_met)
        self.assertTrue(row.found.endswith("in units of the bare loop 1.10 x"))
        self.assertFalse(sampling.growth_row(5000, few, {"ours": [3000.0] * 2, "limit": [2000.0] * 2}).is_met)

    def test_the_phase_of_the_ticks_is_found(self) -> None:
        phase_ns = 730_000
        times_ns = [phase_ns + tick * sampling.TICK_NS for tick in range(100)]
        self.assertEqual(sampling.off_grid_us(times_ns), [0.0] * 100)
        times_ns[50] += 200_000
        self.assertEqual(sampling.off_grid_us(times_ns)[-1], 200.0)

    def test_a_sample_before_its_tick_is_near_it(self) -> None:
        times_ns = [tick * sampling.TICK_NS for tick in range(1, 100)]
        times_ns[50] -= 30_000
        self.assertEqual(sampling.off_grid_us(times_ns)[-1], 30.0)

    def test_khz_reports_rate_and_jitter(self) -> None:
        row = sampling.khz_row(10, 1.5, 3.1, [tick * sampling.TICK_NS for tick in range(1001)])
        self.assertFalse(row.is_met)
        self.assertEqual(row.found, "3.1%; 1000 samples a second; off the grid: median 0 us, p99 0 us")

    def test_memory_is_judged_by_pss(self) -> None:
        self.assertTrue(sampling.memory_row(tracked.Resident(20_000_000, 8_000_000, 1, 1)).is_met)
        self.assertFalse(sampling.memory_row(tracked.Resident(8_000_001, 8_000_001, 1, 1)).is_met)

    def test_dirty_memory_is_judged_of_each_process(self) -> None:
        self.assertTrue(sampling.dirty_row(1_500_000, 450_000).is_met)
        self.assertFalse(sampling.dirty_row(1_500_001, 0).is_met)
        self.assertFalse(sampling.dirty_row(0, 450_001).is_met)

    def test_what_a_process_costs_once_is_that_of_the_further_ones(self) -> None:
        row = sampling.once_row(200, {"few": [10.0, 12.0], "many": [50.0, 52.0]})
        self.assertEqual((row.found, row.is_met), ("0.200 ms [0.200, 0.200]", True))
        self.assertFalse(sampling.once_row(200, {"few": [10.0], "many": [51.0]}).is_met)

    def test_launcher_counts_with_the_collector(self) -> None:
        row = sampling.both_row("sleeping", {"ours": [100.0] * 2, "launcher": [15.0] * 2, "limit": [100.0] * 2})
        self.assertTrue(row.is_met)
        self.assertIn("1.15 x", row.found)
        self.assertFalse(
            sampling.both_row("sleeping", {"ours": [100.0] * 2, "launcher": [16.0] * 2, "limit": [100.0] * 2}).is_met
        )


class Runs(unittest.TestCase):
    def test_loop_may_take_fifteen_percent_more(self) -> None:
        self.assertTrue(runs.loop_row(9, {"ours": [1.15], "bare": [1.0]}).is_met)
        self.assertFalse(runs.loop_row(9, {"ours": [1.16], "bare": [1.0]}).is_met)

    def test_hello_may_take_three_percent_more(self) -> None:
        row = runs.hello_row({"ours": [10.3], "bare": [10.0]})
        self.assertTrue(row.is_met)
        self.assertEqual((row.held_against, row.found), ("bare: 10.00 s", "1.030 x"))

    def test_work_is_parsed(self) -> None:
        self.assertEqual(runs.parse_work("1500000000 3 4 2000\n"), runs.Work(1.5, 3, 2000))

    def test_compute_is_judged_by_the_spread_of_bare(self) -> None:
        def row(ours_ns: int, spread_ns: int) -> Row:
            bare = [runs.Work(1, 3, 1000 + step * spread_ns) for step in range(-2, 3)]
            return runs.compute_row("m", {"bare": bare, "ours": [runs.Work(1, 4, ours_ns)] * 5})

        self.assertFalse(row(1010, 0).is_met)
        self.assertTrue(row(1004, 0).is_met)
        self.assertTrue(row(1010, 10).is_met)
        self.assertIn("voluntary switches 3 bare, 4 tracked", row(1010, 10).found)

    def test_stalls_are_judged_by_the_medians_of_the_longest(self) -> None:
        bare = [0.2, 0.3, 40.0]
        row = runs.stalls_row("m", {"bare": bare, "ours": [1.0, 10.3, 90.0]})
        self.assertTrue(row.is_met)
        self.assertTrue(row.held_against.startswith("bare: 0.3 ms"))
        self.assertFalse(runs.stalls_row("m", {"bare": bare, "ours": [1.0, 10.4, 90.0]}).is_met)

    def test_true_is_judged_in_units_of_the_programs_own_start(self) -> None:
        self.assertTrue(runs.true_row({"ours": [4.6] * 2, "bare": [1.0] * 2, "version": [2.0] * 2}).is_met)
        self.assertFalse(runs.true_row({"ours": [4.7] * 2, "bare": [1.0] * 2, "version": [2.0] * 2}).is_met)

    def test_gpu_driver_is_judged_by_its_calls_and_by_how_often_memory_is_read(self) -> None:
        calls = ["nvmlDeviceGetComputeRunningProcesses_v3"] * 300 + ["nvmlDeviceGetMemoryInfo_v2"] * 3_000
        report = {"wall_s": 10.0, "gpus": [{"reading": {"mean_interval_s": 0.11}}]}
        row = gpu.gpus8_row(calls, report)
        self.assertEqual((row.found, row.is_met), ("15.0%, every 0.110 s", True))
        self.assertFalse(gpu.gpus8_row([*calls, "nvmlInit"], report).is_met)
        self.assertFalse(gpu.gpus8_row([], {**report, "gpus": [{"reading": {"mean_interval_s": 0.12}}]}).is_met)

    def test_memory_may_grow_only_until_warm(self) -> None:
        coverage = {"processes": 40_001, "dropped_events": 0}
        pss = [(4_000, 1_000_000), (12_000, 5_000_000), (40_000, 5_450_000)]
        row = runs.many_row(40_000, pss, 0.5, coverage)
        self.assertTrue(row.is_met)
        self.assertIn("5.0 MB after 12000, 5.5 MB at most later (+9%)", row.found)
        self.assertFalse(runs.many_row(40_000, [*pss, (41_000, 5_600_000)], 0.5, coverage).is_met)

    def test_many_counts_processes_drops_and_time(self) -> None:
        pss = [(12_000, 5_000_000)]
        self.assertTrue(runs.many_row(10, pss, 0.5, {"processes": 11, "dropped_events": 0}).is_met)
        self.assertFalse(runs.many_row(10, pss, 0.5, {"processes": 10, "dropped_events": 0}).is_met)
        self.assertFalse(runs.many_row(10, pss, 0.5, {"processes": 11, "dropped_events": 1}).is_met)
        self.assertFalse(runs.many_row(10, pss, 0.5, {"processes": 11}).is_met)
        self.assertFalse(runs.many_row(10, pss, 1.0, {"processes": 11, "dropped_events": 0}).is_met)

    def test_ring_has_no_verdict(self) -> None:
        row = runs.ring_row(2, 512, ["2000000 1.5 3000000\n", "2000000 1.5 3000000\n"])
        self.assertIsNone(row.is_met)
        self.assertEqual(row.held_against, "the same records copied: 3.0 M/s [3.0, 3.0]")
        self.assertEqual(row.found, "2000 k/s [2000, 2000] taken; 1.5% [1.5, 1.5] of the attempts found it full")


class Peers(unittest.TestCase):
    def test_our_report(self) -> None:
        report = {
            "coverage": {"processes": 21},
            "cpu_time": {"total_s": 0.5},
            "max_ram": {"combined": {"total_rss": 101_000_000}},
        }
        self.assertEqual(peers.parse_ours(json.dumps(report)), PeerFigures(21, 0.5, 101.0))
        self.assertEqual(peers.parse_gpu_tracker(json.dumps(report)), PeerFigures(ram_mb=101.0))

    def test_psrecord_counts_binary_megabytes(self) -> None:
        text = "# Elapsed time   CPU (%)     Real (MB)\n  0.000 0.000 1.000 2.000\n\n  0.100 99.0 100.0 200.0\n"
        self.assertEqual(peers.parse_psrecord(text), PeerFigures(ram_mb=100 * peers.MIB_IN_MB))
        self.assertEqual(peers.parse_psrecord("# nothing\n"), PeerFigures(ram_mb=0.0))

    def test_gnu_time_may_print_a_line_before(self) -> None:
        text = "Command exited with non-zero status 1\n0.25 0.50 1000\n"
        self.assertEqual(peers.parse_gnu_time(text), PeerFigures(cpu_s=0.75, ram_mb=1.024))

    def test_resource_monitor_gives_numbers_with_or_without_units(self) -> None:
        text = json.dumps({"total_processes": 21, "cpu_time": [1.5, "s"], "memory": [100, "MB"]})
        self.assertEqual(peers.parse_resource_monitor(text), PeerFigures(21.0, 1.5, 100 * peers.MIB_IN_MB))
        self.assertEqual(peers.parse_resource_monitor("{}"), PeerFigures())

    def test_only_installed_peers_take_part(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            directory = pathlib.Path(name)
            program = directory / "psrecord"
            program.write_text("#!/bin/sh\n", encoding="utf-8")
            program.chmod(0o755)
            found = peers.installed_peers(bench_of(directory, path=name), directory / "peer")
        self.assertEqual(list(found), ["bare", "gpu-track-run", "psrecord"])
        self.assertEqual(found["psrecord"].wrap(["sh", "x"])[1], "sh x")
        self.assertTrue(found["psrecord"].splits_words)

    def test_shell_code_goes_to_a_file_for_peers_that_split_words(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            command = jobs.unsplittable(["sh", "-c", "echo a b"], pathlib.Path(name))
            self.assertEqual(pathlib.Path(str(command[1])).read_text(encoding="utf-8"), "echo a b")
            other: list[Word] = ["touch", "forks", 20]
            self.assertEqual(jobs.unsplittable(other, pathlib.Path(name)), other)

    def test_a_peer_is_held_against_our_ratio(self) -> None:
        wall_s = {"bare": [1.0, 1.0], "gpu-track-run": [1.2, 1.2], "slow": [2.0, 2.0], "fast": [1.1, 1.1]}
        known, unknown = [PeerFigures(3, 0.5, 100.0)] * 2, [PeerFigures()] * 2
        figures = {"bare": unknown, "gpu-track-run": known, "slow": known, "fast": unknown}
        rows = list(jobs.peer_rows("job", wall_s, figures))
        self.assertEqual([row.is_met for row in rows], [None, True, False])
        self.assertEqual([row.target for row in rows], ["", "ours ahead (1.20 x)", "ours ahead (1.20 x)"])
        self.assertTrue(rows[0].found.endswith("processes 3 [3, 3]; CPU 0.50 s [0.50, 0.50]; RAM 100 MB [100, 100]"))
        self.assertTrue(rows[2].found.endswith("processes: no figure; CPU: no figure; RAM: no figure"))


class CommandLine(unittest.TestCase):
    def test_all_benchmarks_run_by_default_in_the_order_of_the_table(self) -> None:
        self.assertEqual(cli.selected([]), cli.ALL)
        names = [benchmark.__name__ for benchmark in cli.selected(["ring", "spawn"])]
        self.assertEqual(names, ["spawn", "ring"])

    def test_options(self) -> None:
        options = cli.parse_arguments(["--quick", "--bin", "/a", "--bin", "/b", "true", "compute"])
        self.assertTrue(options.quick)
        self.assertEqual((options.bin, options.names), (["/a", "/b"], ["true", "compute"]))

    def test_an_unknown_name_ends_with_status_2(self) -> None:
        with self.assertRaises(SystemExit) as end, contextlib.redirect_stderr(io.StringIO()) as errors:
            cli.parse_arguments(["forks"])
        self.assertEqual(end.exception.code, 2)
        self.assertIn("'forks'", errors.getvalue())


if __name__ == "__main__":
    unittest.main()
