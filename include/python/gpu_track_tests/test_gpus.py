"""Tests of gpus(). A program stands in for gpu-track; what that writes is tested with the built one."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sys
import tempfile
import types
import unittest
from collections.abc import Iterator
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


@contextlib.contextmanager
def printed(listing: dict[str, Any], status: int = 0) -> Iterator[None]:
    """Lets a program that prints this stand in for gpu-track."""
    with tempfile.TemporaryDirectory() as directory:
        answer = pathlib.Path(directory, "answer")
        whole = {"gpus": [], "drivers": [], "warnings": [], **listing}
        answer.write_text(json.dumps(whole), encoding="utf-8")
        for name in ("gpu-track", "gpu-track-run"):
            program = pathlib.Path(directory, name)
            program.write_text(f"#!/bin/sh\ncat {answer}; exit {status}\n", encoding="utf-8")
            program.chmod(0o755)
        beside = os.path.join(directory, "gpu-track-run")
        with mock.patch.dict(os.environ, {"GPU_TRACK_RUN": beside}):
            yield


def listed(listing: dict[str, Any], status: int = 0) -> list[gpu_track.Gpu]:
    """What gpus() gives if gpu-track prints this."""
    with printed(listing, status):
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
        failed = {"count": None, "drivers": [{"name": "NVIDIA", "reason": "no driver"}]}
        with self.assertRaisesRegex(RuntimeError, "^NVIDIA: no driver$"):
            listed(failed, status=1)
        with printed(failed, status=1), self.assertRaisesRegex(ValueError, "^NVIDIA: no driver$"):
            gpu_track.Tracker(gpu_uuids={"GPU-1"})
        with self.assertLogs("gpu_track", "WARNING") as logged:
            self.assertEqual(len(listed({"count": 1, "gpus": [_BUSY], "warnings": ["a GPU could not be read"]})), 1)
        self.assertIn("a GPU could not be read", logged.output[0])
        unlisted = {**_BUSY, "now": {**_BUSY["now"], "processes": None}}
        self.assertIsNone(listed({"count": 1, "gpus": [unlisted]})[0].processes)

    # Requirement: PY-94
    def test_one_uuid_can_be_a_text(self) -> None:
        """As a set of its letters, it would be refused for one of them."""
        known = {"count": 1, "gpus": [{**_BUSY, "uuid": "GPU-1"}]}
        with printed(known):
            gpu_track.Tracker(gpu_uuids="GPU-1")
            with self.assertRaisesRegex(ValueError, "GPU UUID of GPU-2 is not valid"):
                gpu_track.Tracker(gpu_uuids="GPU-2")


def torch(stats: dict[str, int], uuid: str | None = "1") -> dict[str, Any]:
    """A stand-in of PyTorch with one device."""
    properties = types.SimpleNamespace() if uuid is None else types.SimpleNamespace(uuid=uuid)
    cuda = types.SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: 1,
        memory_stats=lambda _device: stats,
        get_device_properties=lambda _device: properties,
    )
    return {"torch": types.SimpleNamespace(cuda=cuda)}


_STATS = {
    "allocated_bytes.all.current": 3 << 30,
    "reserved_bytes.all.current": 5 << 30,
    "inactive_split_bytes.all.current": 1 << 30,
}


class OfPyTorch(unittest.TestCase):
    """What PyTorch has, beside what the driver counts."""

    def memory(self, modules: dict[str, Any], pid: int, used: int | None) -> list[gpu_track.TorchMemory]:
        process = {"pid": pid, "user": None, "command": None, "memory_bytes": used, "rss_bytes": None}
        gpu = {**_BUSY, "now": {**_BUSY["now"], "processes": [process]}}
        with (
            mock.patch.dict(sys.modules, modules),
            mock.patch("gpu_track._gpus.gpu_listing", return_value={"gpus": [gpu]}),
        ):
            return gpu_track.torch_memory()

    # Requirement: PY-96
    def test_live_cached_and_context_are_told_apart(self) -> None:
        (found,) = self.memory(torch(_STATS), os.getpid(), 6 << 30)
        self.assertEqual((found.uuid, found.live, found.cached, found.reserved), ("GPU-1", 3 << 30, 2 << 30, 5 << 30))
        self.assertEqual((found.fragmented, found.driver, found.context), (1 << 30, 6 << 30, 1 << 30))

    # Requirement: PY-96
    def test_what_the_driver_does_not_tell_of_this_process_is_none(self) -> None:
        own = os.getpid()
        for modules, pid, used in (
            (torch(_STATS), own + 1, 6 << 30),
            (torch(_STATS), own, None),
            (torch(_STATS, uuid=None), own, 6 << 30),
        ):
            (found,) = self.memory(modules, pid, used)
            self.assertEqual((found.live, found.driver, found.context), (3 << 30, None, None))
        (changed,) = self.memory(torch(_STATS), own, 4 << 30)
        self.assertEqual((changed.driver, changed.context), (4 << 30, None))
        self.assertEqual(self.memory({}, own, 6 << 30), [], "PyTorch is not imported")


if __name__ == "__main__":
    unittest.main()
