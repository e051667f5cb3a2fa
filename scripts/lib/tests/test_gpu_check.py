"""Tests of scripts/gpu-check: all that needs no driver."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import io
import os
import re
import signal
import time
import unittest
from collections.abc import Callable
from unittest import mock

from gpu_track_scripts.gpu_check import checks, cli, costs, holders, nvml, parts, spin
from gpu_track_scripts.gpu_check.holders import Held, Planned
from gpu_track_scripts.gpu_check.parts import BUSY_S, MIB
from gpu_track_scripts.gpu_check.report import Gpu, GpuProcess, Power, Report, device, reason_missing
from gpu_track_scripts.gpu_check.results import Results

CONTEXT = 300 * MIB


def process_of(pid: int, peak_bytes: int | None, *, sm: float | None = 90.0, accounted: bool = False) -> GpuProcess:
    return {
        "pid": pid,
        "driver_pid": pid,
        "peak_bytes": peak_bytes,
        "max_sm_percent": sm,
        "accounted": accounted,
    }


def gpu_of(*processes: GpuProcess, active_s: float = BUSY_S, percent: float = 100.0, missing: str = "") -> Gpu:
    return {
        "id": "GPU-1",
        "utilization": {"active_s": active_s, "mean_percent": percent, "max_percent": percent},
        "processes": list(processes),
        "power": {"mean_w": 100.0, "max_w": 120.0, "energy_j": 2000.0, "integrated_energy_j": 2000.0},
        "clocks": {"max_sm_mhz": 1410.0},
        "throttle": [],
        "pstate": None,
        "pcie": None,
        "max_temperature_c": 40.0,
        "missing": [{"figure": missing, "reason": "not supported"}] if missing else [],
    }


def report_of(gpu: Gpu, combined: float | None = None) -> Report:
    return {"gpus": [gpu], "max_gpu_ram": {"combined": combined}, "warnings": []}


def judged(judge: Callable[[Results], None]) -> tuple[list[str], str]:
    """The failures and the output of a judgment."""
    results, output = Results(), io.StringIO()
    with contextlib.redirect_stdout(output):
        judge(results)
    return results.failures, output.getvalue()


class Utilization(unittest.TestCase):
    def failures(self, gpu: Gpu, took_s: float = BUSY_S + 0.5) -> list[str]:
        return judged(lambda results: checks.judge_busy(results, gpu, took_s))[0]

    def test_a_busy_device_is_right(self) -> None:
        self.assertEqual(self.failures(gpu_of(process_of(7, CONTEXT))), [])

    def test_active_time_is_within_the_run(self) -> None:
        gpu = gpu_of(process_of(7, CONTEXT), active_s=BUSY_S - 2)
        self.assertEqual(self.failures(gpu), ["the busy GPU's active time"])
        gpu = gpu_of(process_of(7, CONTEXT), active_s=BUSY_S + 1)
        self.assertEqual(self.failures(gpu), ["the busy GPU's active time"])

    def test_the_device_must_be_fully_used(self) -> None:
        self.assertEqual(self.failures(gpu_of(process_of(7, CONTEXT), percent=80)), ["its largest utilization"])

    def test_the_process_must_have_been_seen_computing(self) -> None:
        gpu = gpu_of(process_of(7, CONTEXT, sm=None))
        self.assertEqual(self.failures(gpu), ["the process's largest utilization"])
        self.assertEqual(self.failures(gpu_of()), ["the process's largest utilization", "the busy process is known"])

    def test_a_missing_figure_is_skipped_with_its_reason(self) -> None:
        for figure in ["utilization", "utilization by process", "memory by process"]:
            gpu = gpu_of(process_of(7, CONTEXT), missing=figure)
            failures, output = judged(functools.partial(checks.judge_busy, gpu=gpu, took_s=6.5))
            self.assertEqual(failures, [])
            self.assertRegex(output, r"(?m)^skip .*: not supported$")
            self.assertIn(f"     missing: {figure} (not supported)", output)


class Memory(unittest.TestCase):
    PLAN = (Planned(0, "context"), Planned(300 * MIB, "plain"), Planned(400 * MIB, "torch"))

    def setUp(self) -> None:
        self.held = [
            Held(1, 0, CONTEXT, True),
            Held(2, 300 * MIB, CONTEXT + 300 * MIB, True),
            Held(3, 402 * MIB, None, True),
        ]
        self.peaks = {1: CONTEXT, 2: CONTEXT + 300 * MIB, 3: 2 * CONTEXT + 402 * MIB}

    def failures(self, *, combined: float | None = -1, missing: str = "") -> list[str]:
        gpu = gpu_of(*(process_of(pid, peak) for pid, peak in self.peaks.items()), missing=missing)
        report = report_of(gpu, sum(self.peaks.values()) if combined == -1 else combined)
        return judged(lambda results: checks.judge_memory(results, list(self.PLAN), self.held, report))[0]

    def test_peaks_that_agree_are_right(self) -> None:
        self.assertEqual(self.failures(), [])

    def test_a_peak_below_the_allocation_is_wrong(self) -> None:
        self.peaks[3] = 399 * MIB
        self.assertEqual(self.failures(), ["memory of a torch process"])

    def test_a_peak_may_differ_from_nvidia_smi_by_a_page(self) -> None:
        self.held[0] = Held(1, 0, CONTEXT - 2 * MIB, True)
        self.assertEqual(self.failures(), [])
        self.held[0] = Held(1, 0, CONTEXT - 2 * MIB - 1, True)
        self.assertEqual(self.failures(), ["the same by nvidia-smi (context)"])

    def test_a_peak_beyond_the_context_is_the_allocation(self) -> None:
        self.held[1] = Held(2, 305 * MIB, None, True)
        self.assertEqual(self.failures(), ["the same by cudaMemGetInfo (plain)"])

    def test_a_failed_holder_is_a_failure(self) -> None:
        self.held[2] = Held(3, None, None, False)
        self.assertEqual(self.failures(), ["a torch process"])

    def test_a_holder_without_a_peak_is_a_failure(self) -> None:
        del self.peaks[2]
        self.assertEqual(self.failures(), ["memory of a plain process"])

    def test_combined_is_the_sum(self) -> None:
        self.assertEqual(self.failures(combined=CONTEXT), ["combined is their sum"])
        self.assertEqual(self.failures(combined=None), ["combined is their sum"])

    def test_without_our_pids_memory_must_be_unknown(self) -> None:
        self.held = [Held(one.pid, one.fallen_bytes, None, False) for one in self.held]
        what = "memory by process is unknown, and so is its sum"
        self.assertEqual(self.failures(combined=None, missing="memory by process"), [])
        self.assertEqual(self.failures(combined=0, missing="memory by process"), [what])
        self.assertEqual(self.failures(combined=None), [what])

    def test_only_the_first_planned_process_allocates_nothing(self) -> None:
        with (
            mock.patch.object(holders, "compile_cuda_c", return_value=("/holder", "")),
            mock.patch.object(importlib.util, "find_spec", return_value=None),
        ):
            plans: list[list[Planned]] = []
            judged(lambda results: plans.append(checks.memory_plan(results, mock.Mock())))
        self.assertEqual([one.size_bytes // MIB for one in plans[0]], [0, 300, 400, 500, 600])
        self.assertEqual(plans[0][-1], Planned(600 * MIB, "CUDA C", "/holder"))


class Energy(unittest.TestCase):
    def failures(self, power: Power | None, joules: float = 2000.0, seconds: float = 20.0) -> list[str]:
        return judged(lambda results: checks.judge_energy(results, power, joules, seconds))[0]

    def test_rates_within_two_percent_are_right(self) -> None:
        power = gpu_of()["power"]
        self.assertEqual(self.failures(power), [])
        self.assertEqual(self.failures(power, joules=1970.0), [])
        self.assertEqual(self.failures(power, joules=1950.0), ["energy a second within 2% of the counter's"])

    def test_the_times_of_the_two_may_differ(self) -> None:
        power = gpu_of()["power"]
        power["energy_j"], power["integrated_energy_j"] = 3000.0, 3000.0
        self.assertEqual(self.failures(power), [])

    def test_no_energy_is_a_failure(self) -> None:
        power = gpu_of()["power"]
        self.assertEqual(self.failures(None), ["energy"])
        self.assertEqual(self.failures(power, joules=0.0), ["energy"])
        power["energy_j"] = None
        self.assertEqual(self.failures(power), ["energy"])


class Accounting(unittest.TestCase):
    def failures(self, *processes: GpuProcess) -> list[str]:
        return judged(lambda results: checks.judge_accounting(results, report_of(gpu_of(*processes))))[0]

    def test_the_peak_must_come_from_accounting(self) -> None:
        self.assertEqual(self.failures(process_of(7, 600 * MIB, accounted=True)), [])
        for process in [process_of(7, 600 * MIB), process_of(7, 299 * MIB, accounted=True)]:
            self.assertEqual(self.failures(process), ["a process that no sample saw"])
        self.assertEqual(self.failures(process_of(7, None, accounted=True)), ["a process that no sample saw"])


class ReportFields(unittest.TestCase):
    def test_a_device_is_found_by_its_uuid(self) -> None:
        report = report_of(gpu_of())
        self.assertIs(device(report, "GPU-1"), report["gpus"][0])
        self.assertIsNone(device(report, "GPU-2"))

    def test_a_reason_belongs_to_its_figure(self) -> None:
        gpu = gpu_of(missing="power")
        self.assertEqual(reason_missing(gpu, "power"), "not supported")
        self.assertIsNone(reason_missing(gpu, "utilization"))


class Holders(unittest.TestCase):
    def test_plan_and_answers_survive_json(self) -> None:
        plan = [Planned(1, "plain"), Planned(2, "CUDA C", "/holder")]
        held = [Held(7, 5, None, True), Held(8, None, 3, False)]
        self.assertEqual(holders.plan_from_json(holders.to_json(plan)), plan)
        self.assertEqual(holders.held_from_json(holders.to_json(held)), held)

    def test_nvidia_smi_prints_whole_mebibytes(self) -> None:
        text = "1234, 500\n1235, [N/A]\nNo running processes found\n\n"
        self.assertEqual(holders.parse_compute_apps(text), {1234: 500 * MIB})

    def test_a_failed_holder_prints_no_size(self) -> None:
        self.assertEqual(holders.fallen_from_line("held 314572800\n"), 314_572_800)
        self.assertIsNone(holders.fallen_from_line(""))
        self.assertIsNone(holders.fallen_from_line("cuInit returned 100\n"))


class Costs(unittest.TestCase):
    def test_a_call_is_repeated_and_timed(self) -> None:
        call = mock.Mock(return_value=6)
        cost = costs.measure("X", call)
        self.assertEqual((call.call_count, cost.code), (costs.REPEATS, 6))
        self.assertLessEqual(cost.median_us or 0, cost.longest_us or 0)

    def test_a_missing_call_has_no_times(self) -> None:
        cost = costs.measure("X", mock.Mock(side_effect=AttributeError))
        self.assertEqual((cost.times(), cost.code), (["-", "-"], "no such call"))

    def test_the_table_shows_both_return_values_if_they_differ(self) -> None:
        at_rest = [costs.Cost("A", 6, 1.0, 2.0), costs.Cost("B", "no such call")]
        busy = [costs.Cost("A", 0, 3.0, 4.0), costs.Cost("B", "no such call")]
        header, *rows = costs.table(at_rest, busy, True)
        self.assertIn("| busy: median [us] |", header)
        self.assertEqual(rows, ["| A | 1.0 | 2.0 | 3.0 | 4.0 | 6, 0 |", "| B | - | - | - | - | no such call |"])

    def test_calls_need_only_the_functions_that_a_driver_has(self) -> None:
        fake = mock.Mock(spec=["lib", "device"])
        fake.lib = mock.Mock(spec=["nvmlDeviceGetPowerUsage"])
        fake.lib.nvmlDeviceGetPowerUsage.return_value = 0
        measured = {cost.name: cost.code for cost in costs.costs(fake)}
        self.assertEqual(measured.pop("PowerUsage"), 0)
        self.assertEqual(set(measured.values()), {"no such call"})

    def test_structures_have_the_sizes_of_nvml_h(self) -> None:
        sizes = {nvml.Sample: 16, nvml.ProcessSample: 32, costs.Field: 40}
        for structure, size in sizes.items():
            self.assertEqual(ctypes.sizeof(structure), size, structure.__name__)


class SampleClocks(unittest.TestCase):
    def test_the_newest_sample_is_compared_with_both_clocks(self) -> None:
        samples = [nvml.Sample(time_us=int(time.time() * 1e6) - offset_us) for offset_us in (9_000_000, 2_000_000)]
        line = nvml.clock_line("x", 0, samples)
        found = re.match(r"samples of x: 2; the newest is -(\d+\.\d+) s from the time of day", line)
        self.assertIsNotNone(found)
        self.assertGreaterEqual(float(found[1]) if found else 0, 2)

    def test_an_error_has_no_samples(self) -> None:
        self.assertEqual(nvml.clock_line("x", 6, []), "samples of x: none (NVML returned 6, 0 entries)")


class Ptx(unittest.TestCase):
    def test_every_register_is_declared_and_the_entry_is_named(self) -> None:
        text = spin.SPIN.decode()
        self.assertIn(".entry spin(", text)
        count = re.search(r"\.reg \.u64 %r<(\d+)>", text)
        used = {int(number) for number in re.findall(r"%r(\d+)", text)}
        self.assertEqual(used, set(range(int(count[1]) if count else 0)))


class CommandLine(unittest.TestCase):
    def test_options(self) -> None:
        options = cli.parse_arguments(["--accounting", "/bin/gpu-track-run"])
        self.assertEqual((options.accounting, options.tracker), (True, "/bin/gpu-track-run"))
        self.assertEqual(cli.parse_arguments([]).tracker, None)

    def test_parts_are_started_by_the_program_itself(self) -> None:
        self.assertTrue(parts.PROGRAM.is_file())
        self.assertEqual(parts.part_command("spin", 6)[1:], [str(parts.PROGRAM), "spin", "6"])

    def test_a_part_gets_its_arguments_and_an_alarm(self) -> None:
        part = mock.Mock()
        with mock.patch.dict(cli.PARTS, {"hold": (part, 2, 120)}), mock.patch.object(signal, "alarm") as alarm:
            self.assertEqual(cli.main(["hold", "5", "plain", "120"]), 0)
        part.assert_called_once_with("5", "plain")
        alarm.assert_called_once_with(120)

    def check_status(self, error: Exception, *, has_device: bool = False) -> tuple[int, str]:
        output = io.StringIO()
        with (
            mock.patch.object(cli, "Nvml", side_effect=error),
            mock.patch.object(signal, "alarm"),
            mock.patch.object(os.path, "exists", return_value=has_device),
            contextlib.redirect_stdout(output),
        ):
            return cli.main([]), output.getvalue()

    def test_no_gpu_is_status_77(self) -> None:
        self.assertEqual(self.check_status(OSError("no device")), (77, "no GPU here (no device)\n"))

    def test_a_driver_that_refuses_is_a_failure_if_it_has_a_device(self) -> None:
        error = nvml.Refused("nvmlInit_v2 returned 18")
        self.assertEqual(self.check_status(error, has_device=True)[0], 1)
        self.assertEqual(self.check_status(error)[0], 77)


if __name__ == "__main__":
    unittest.main()
