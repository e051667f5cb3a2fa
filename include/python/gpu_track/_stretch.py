"""A time that is tracked, from a start to a pause or to the end: one run of gpu-track-run."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpu_track import _metrics
from gpu_track._arguments import file_name
from gpu_track._attached import Attached, NotTracked, has_ended, is_own_or_ancestor, messages
from gpu_track._environment import PROCESS
from gpu_track._placeless import VARIABLE


class Stretch:
    """A stretch: `begin`, then `end` or `abandon`. `report` is there after `end`, if gpu-track-run wrote one."""

    def __init__(  # noqa: PLR0913
        self,
        directory: str,
        *,
        process_id: int | None,
        options: Sequence[str],
        tracking_file: str | None,
        kept_file: str | None,
        metrics: _metrics.MetricFile,
        warn: Callable[[str], None],
    ) -> None:
        """It tracks a process. None: this one. Files of its own are in `directory`.

        If it is this one or one that this one descends from, metrics of this program go to the file `metrics`.
        """
        self.begin_s = time.monotonic()
        self.tracking_file = tracking_file
        self.is_running = False
        self.report: dict[str, Any] | None = None
        # Why there is no report.
        self.problem = "gpu-track-run was ended before it wrote a report."
        self._metrics = metrics
        self._variables: Mapping[str, str] = {}
        self._warn = warn
        self._report_file = os.path.join(directory, "report.json")
        self._messages = os.path.join(directory, "messages")
        self._pid = os.getpid() if process_id is None else process_id
        self._is_other = process_id is not None
        self._arguments = ["--attach", str(self._pid), "-q", "-f", "json", "-o", file_name(self._report_file), *options]
        if kept_file is not None:
            self._arguments += ["-o", file_name(kept_file)]
        if tracking_file is not None:
            self._arguments += ["--tf", file_name(tracking_file)]
        # None: the process was gone before.
        self._attached: Attached | None = None

    def begin(self) -> None:
        """Begins to track. Where it is interrupted, as by Ctrl-C, or fails, `abandon` undoes what it has done.

        A process that is gone is a warning, as with gpu_tracker. Raises NotTracked for any other problem.
        """
        if not self._is_gone():
            try:
                self._attached = Attached(self._arguments, self._messages, {VARIABLE: self._metrics.path})
            except NotTracked:
                if not self._is_gone():
                    raise
        if self._attached is None:
            self._warn(f"The target process of ID {self._pid} ended before tracking could begin.")
        elif is_own_or_ancestor(self._pid):
            # What this program starts is no part of any other process.
            self._variables = {**self._attached.environment, VARIABLE: self._metrics.path}
            PROCESS.add(self._variables)
            _metrics.add(self._metrics)
        self.is_running = True

    @property
    def has_tracked(self) -> bool:
        """Whether there was a process to track."""
        return self._attached is not None

    @property
    def session(self) -> str | None:
        """The segments of the run and of those around it, as programs get them. None: it does not run."""
        if self._attached is None or not self.is_running:
            return None
        return self._attached.environment.get("GPU_TRACK_SESSION")

    def end(self, attempts: int, timeout_s: float) -> None:
        """Ends it, and reads its report. Waits for that `attempts` times, up to `timeout_s` each."""
        try:
            self._end(attempts, timeout_s)
        except BaseException:
            # Ctrl-C, for example.
            self.abandon(0.0)
            raise

    def _end(self, attempts: int, timeout_s: float) -> None:
        self.is_running = False
        if self._attached is None:
            return
        PROCESS.remove(self._variables)
        _metrics.remove(self._metrics)
        self._attached.ask_to_end()
        for _ in range(attempts):
            if self._attached.wait(timeout_s):
                break
            self._warn("The tracking process is still alive after join timout. Attempting to join again...")
        else:
            tried = f"after {attempts} attempts to join"
            self._warn(f"The tracking process is still alive {tried}. Terminating the process by force...")
            self._attached.kill()
        # What follows needs descriptors, of which the program may have no other free ones.
        self._attached.close()
        for message in messages(self._messages):
            self._warn(message)
        try:
            with open(self._report_file, encoding="utf-8") as file:
                self.report = json.load(file)
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            self.problem = f"The report of gpu-track-run cannot be read: {error}."
        with contextlib.suppress(OSError):
            os.remove(self._report_file)
        if self.report is not None and self.report["stage"] != "final":
            known_s = self.report["wall_s"]
            self._warn(f"gpu-track-run was ended before its last report: the figures are of the first {known_s:.1f} s.")

    def so_far(self) -> dict[str, Any] | None:
        """Its report; while it runs, that so far, which gpu-track-run renews. None: there is none yet."""
        if not self.is_running:
            return self.report
        try:
            with open(self._report_file, encoding="utf-8") as file:
                found: dict[str, Any] = json.load(file)
        except (OSError, ValueError):
            return None
        return found

    def _is_gone(self) -> bool:
        """Whether another process that is to be tracked has ended."""
        return self._is_other and has_ended(self._pid)

    def abandon(self, timeout_s: float) -> None:
        """Ends it without a look at its report, however far `begin` or `end` came."""
        self.is_running = False
        PROCESS.remove(self._variables)
        _metrics.remove(self._metrics)
        if self._attached is not None:
            self._attached.ask_to_end()
            self._attached.wait(timeout_s)
            self._attached.close()
