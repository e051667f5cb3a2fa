"""Tests of gpus(). A program stands in for gpu-track; what that writes is tested with the built one."""

from __future__ import annotations

import json
import os
import pathlib
import tempfile
import unittest
from typing import Any
from unittest import mock

import gpu_track

_BUSY: dict[str, Any] = {
    "index": 0,
    "id": "GPU-1",
    "name": "NVIDIA H100",
    "memory_bytes": 81_920 << 20,
    "parent": None,
    "figures": [{"figure": "power", "available": False, "reason": "no permission"}],
    "now": {
        "memory_used_bytes": 11_719 << 20,
        "memory_free_bytes": 70_201 << 20,
        "utilization_percent": 87.4,
        "temperature_c": 54.0,
        "power_w": None,
        "sm_active_percent": 18.0,
        "processes": [{"pid": 7, "user": "ada", "command": "python3", "memory_bytes": 10_490 << 20, "rss_bytes": 4096}],
    },
}


def listed(listing: dict[str, Any], status: int = 0) -> list[gpu_track.Gpu]:
    """What gpus() gives if gpu-track prints this."""
    with tempfile.TemporaryDirectory() as directory:
        answer = pathlib.Path(directory, "answer")
        answer.write_text(json.dumps(listing), encoding="utf-8")
        for name in ("gpu-track", "gpu-track-run"):
            program = pathlib.Path(directory, name)
            failed = "echo gpu-track: no driver >&2; " if status else ""
            program.write_text(f"#!/bin/sh\n{failed}cat {answer}; exit {status}\n", encoding="utf-8")
            program.chmod(0o755)
        beside = os.path.join(directory, "gpu-track-run")
        with mock.patch.dict(os.environ, {"GPU_TRACK_RUN": beside}):
            return gpu_track.gpus()


class Gpus(unittest.TestCase):
    """The GPUs as objects."""

    # Requirement: PY-94
    def test_gpus_are_objects_with_memory_utilization_and_processes(self) -> None:
        """Each figure by the name that users of GPUtil and pynvml expect; unknown is None, never 0."""
        (gpu,) = listed({"count": 1, "gpus": [_BUSY]})
        self.assertEqual((gpu.used, gpu.free, gpu.total), (11_719 << 20, 70_201 << 20, 81_920 << 20))
        self.assertEqual((gpu.utilization, gpu.temperature, gpu.power), (87.4, 54.0, None))
        self.assertEqual((gpu.missing["power"], gpu.figures["sm_active_percent"]), ("no permission", 18.0))
        assert gpu.processes is not None
        self.assertEqual(gpu.processes[0], gpu_track.GpuProcess(7, "ada", "python3", 10_490 << 20, 4096))
        line = "[0] NVIDIA H100 | 54'C, 87 %, n/a W | 11719 / 81920 MiB | ada/python3(10490M)"
        self.assertEqual(str(gpu), line)

    # Requirement: PY-94
    def test_no_gpu_is_an_empty_list_and_a_driver_that_fails_an_error(self) -> None:
        """An empty list where a driver failed would look like a machine without GPUs."""
        self.assertEqual(listed({"count": 0, "gpus": []}), [])
        with self.assertRaisesRegex(RuntimeError, "no driver"):
            listed({"count": None, "gpus": []}, status=1)
        unlisted = {**_BUSY, "now": {**_BUSY["now"], "processes": None}}
        self.assertIsNone(listed({"count": 1, "gpus": [unlisted]})[0].processes)


if __name__ == "__main__":
    unittest.main()
