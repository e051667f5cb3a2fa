"""The line that shows what a notebook uses while its cells run."""

from __future__ import annotations

import csv
import os
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

from gpu_track._cell import METADATA_KEY, Bundle, html_line
from gpu_track._program import ask_json
from gpu_track._shown import bytes_text, percent_text, seconds_text
from gpu_track._tracked import Tracked
from gpu_track._trusted import temporary_directory

# How often the line changes at most. Samples for it are written as often.
_PERIOD_S = 0.5


class Samples:
    """The last row of a tracking file in CSV that is being written, in bytes and percent of one core."""

    def __init__(self, path: str, *, has_gpus: bool) -> None:
        self._path = path
        # Without GPUs the file has 0 as theirs.
        self._has_gpus = has_gpus
        self._read_bytes = 0
        # The begin of a row whose end is not written yet.
        self._rest = b""
        self._lines = 0
        self._columns: list[str] = []

    def last(self) -> dict[str, Any] | None:
        """The newest figures, or None if there are none since the last time. Raises OSError if it can't be read."""
        with open(self._path, "rb") as file:
            file.seek(self._read_bytes)
            read = file.read()
        self._read_bytes += len(read)
        *lines, self._rest = (self._rest + read).split(b"\n")
        rows = list(csv.reader(line.decode("utf-8", "replace") for line in lines))
        row = None
        for row in rows:
            self._lines += 1
            if self._lines == 3:
                self._columns = row
        return self._figures(dict(zip(self._columns, row))) if row is not None and self._lines > 3 else None

    def _figures(self, row: Mapping[str, str]) -> dict[str, Any]:
        def number(name: str) -> float | None:
            # Empty: not known.
            return float(row[name]) if row[name] else None

        gpu = {"memory_bytes": number("combined_gpu_ram"), "sum_percent": number("gpu_sum_utilization_percent")}
        return {
            "monotonic_s": int(row["at_ns"]) / 1e9,
            "ram": {"bytes": number("combined_ram"), "peak_bytes": number("max_combined_ram")},
            "cpu_percent": number("cpu_combined_sum_utilization_percent"),
            "processes": number("n_processes"),
            "gpu": gpu if self._has_gpus else None,
        }


def current_line(figures: Mapping[str, Any]) -> str:
    """The figures of a sample in one line."""
    parts = [
        f"at {seconds_text(figures['at_s'])}",
        f"RAM {bytes_text(figures['ram']['bytes'])}, peak {bytes_text(figures['ram']['peak_bytes'])}",
        f"CPU {percent_text(figures['cpu_percent'])}",
    ]
    gpu = figures["gpu"]
    if gpu is not None:
        parts.append(f"GPU memory {bytes_text(gpu['memory_bytes'])}, utilization {percent_text(gpu['sum_percent'])}")
    return " | ".join(parts)


class Watch:
    """Tracks this process, and shows its line in one output, from the start to `stop()`."""

    def __init__(self, publisher: Any) -> None:  # noqa: ANN401 (IPython)
        """Begins. `publisher`: that of the shell. A cell with %%capture replaces the shell's own for a while."""
        self._publisher = publisher
        self._transient = {"display_id": uuid.uuid4().hex}
        self._directory = temporary_directory()
        path = os.path.join(self._directory.name, "watch.csv")
        has_gpus = _has_gpus()
        self._begin_s = time.monotonic()
        self._tracked = Tracked(_PERIOD_S, path)
        self._publish(_bundle(f"gpu_track watch: {self._tracked.reason or 'no sample yet'}", {}), update=False)
        self._is_over = threading.Event()
        self._thread = threading.Thread(
            target=self._show, args=(Samples(path, has_gpus=has_gpus),), name="gpu_track watch", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Ends it, and shows what was used in all."""
        self._is_over.set()
        self._thread.join()
        figures = self._tracked.end()
        self._directory.cleanup()
        self._publish(figures._repr_mimebundle_(), update=True)

    def _show(self, samples: Samples) -> None:
        while not self._is_over.wait(_PERIOD_S):
            try:
                figures = samples.last()
            except OSError:
                continue
            if figures is not None:
                figures["at_s"] = figures.pop("monotonic_s") - self._begin_s
                self._publish(_bundle(current_line(figures), figures), update=True)

    def _publish(self, bundle: Bundle, *, update: bool) -> None:
        data, metadata = bundle
        self._publisher.publish(data=data, metadata=metadata, transient=self._transient, update=update)


def _has_gpus() -> bool:
    """Whether this machine has GPUs. The head of a tracking file says so at the end only."""
    try:
        return bool(ask_json(["gpus"], warns=False)["gpus"])
    except (OSError, ValueError):
        # The tracker says why gpu-track does not work; the figures at the end have the GPUs.
        return False


def _bundle(line: str, figures: dict[str, Any]) -> Bundle:
    return {"text/plain": line, "text/html": html_line(line)}, {METADATA_KEY: figures}
