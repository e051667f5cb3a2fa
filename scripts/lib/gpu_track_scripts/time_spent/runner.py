"""Runs the cases under gpu-track-run, or alone."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from typing import Any

from gpu_track_scripts.commands import Word, words
from gpu_track_scripts.time_spent import truth
from gpu_track_scripts.time_spent.cases import TIMES, Case
from gpu_track_scripts.time_spent.server import Server
from gpu_track_scripts.time_spent.surroundings import Workplace
from gpu_track_scripts.tools import Unavailable

# A run that takes longer hangs.
LIMIT_S = 240
# How much of a run's output is shown where it failed.
OUTPUT_SHOWN = 1000
# From how much the pipeline's speed is measured.
PROBE_BYTES = 100_000_000
# How long it then takes on the same machine.
PIPELINE_S = 10


class Failed(Exception):
    """A run that did not end as it should, so there is nothing to compare."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What is known of a run. Without a report it was not tracked."""

    wall_s: float
    known: truth.Truth
    report: dict[str, Any] | None = None


@dataclasses.dataclass(frozen=True)
class Runner:
    """What all runs share."""

    # None: they are not tracked.
    tracker: pathlib.Path | None
    program: pathlib.Path
    server: Server
    cold: pathlib.Path
    # A real file system.
    temporary: pathlib.Path
    keep: pathlib.Path | None

    def run(self, case: Case) -> Outcome:
        """Runs a case in a directory of its own."""
        with tempfile.TemporaryDirectory(dir=self.temporary) as name:
            place = Workplace(self.program, pathlib.Path(name))
            with case.around(place) as front:
                report = place.directory / "report.json"
                tracker: list[Word] = []
                if self.tracker:
                    tracker = [self.tracker, "--output", report, "-f", "json", "--"]
                command = [*tracker, *front, *self.command(case, place)]
                begin_s = time.monotonic()
                self.execute(command, place.directory)
                wall_s = time.monotonic() - begin_s
            if self.keep:
                keep_results(place.directory, self.keep / re.sub(r"\W+", "_", case.name))
            if not self.tracker:
                return Outcome(wall_s, known_of(case, place.directory, wall_s))
            made = json.loads(report.read_text(encoding="utf-8"))
            section: dict[str, Any] | None = made.get("time_spent")
            if section is None or not section.get("states"):
                raise Failed(f"the report has no time_spent: {section}")
            wall_s = made["wall_s"]
            return Outcome(wall_s, known_of(case, place.directory, wall_s), section)

    def command(self, case: Case, place: Workplace) -> list[Word]:
        """The command line of a case."""
        if case.programs:
            bytes_ = pipeline_bytes(PIPELINE_S)
            return [word.replace("@BYTES@", str(bytes_)) for word in case.command]
        if case.command:
            return list(case.command)
        line: list[Word] = [place.program, "--truth", place.directory / "truth.json"]
        if case.pool:
            line += ["--pool", case.pool]
        line += ["--server", self.server.port(), "--lock", self.server.lock, "--fifo", self.server.fifo]
        line += ["--cold", self.cold, "--slow", place.slow_directory() / "slow"]
        return [*line, *case.phases]

    @staticmethod
    def execute(command: list[Word], directory: pathlib.Path) -> None:
        """Runs a command that must succeed."""
        output = directory / "output"
        with open(output, "wb") as file:
            # In a session of its own, so that all of it can be ended.
            run = subprocess.Popen(
                words(command),
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
            try:
                status = run.wait(LIMIT_S)
            except BaseException as reason:
                os.killpg(run.pid, signal.SIGKILL)
                run.wait()
                if not isinstance(reason, subprocess.TimeoutExpired):
                    raise
                raise Failed(f"still running after {LIMIT_S} s: {shlex.join(words(command))}") from None
        if status:
            shown = output.read_text(encoding="utf-8", errors="replace")[-OUTPUT_SHOWN:]
            raise Failed(f"status {status}: {shlex.join(words(command))}: {shown.strip()}")


def keep_results(directory: pathlib.Path, place: pathlib.Path) -> None:
    """Copies what a run left."""
    place.mkdir(parents=True, exist_ok=True)
    for name in ("report.json", "truth.json", "output", TIMES):
        if (directory / name).exists():
            shutil.copy(directory / name, place)


def known_of(case: Case, directory: pathlib.Path, wall_s: float) -> truth.Truth:
    """What is known of a run that has ended."""
    if case.programs:
        cpu_s = cpu_of_times((directory / TIMES).read_text(encoding="utf-8"))
        return truth.of_pipeline(cpu_s, wall_s, case.programs, case.verdict)
    if case.command:
        return truth.NOTHING
    record: dict[str, Any] = json.loads((directory / "truth.json").read_text(encoding="utf-8"))
    return truth.of_phases(record, waiting_by_schedstat=case.waiting_by_schedstat)


def cpu_of_times(text: str) -> float:
    """The CPU time of a shell's children, by its command `times`: `1m2.500000s 0m0.250000s` in the second line."""
    parts = re.findall(r"(\d+)m([\d.]+)s", text.splitlines()[1])
    return sum(60 * int(minutes) + float(seconds) for minutes, seconds in parts)


def pipeline_bytes(seconds: float) -> int:
    """How many zeros gzip compresses in that time."""
    if shutil.which("gzip") is None:
        raise Unavailable("gzip is missing (package gzip)")
    begin_s = time.monotonic()
    subprocess.run(["sh", "-c", f"head -c {PROBE_BYTES} /dev/zero | gzip -c >/dev/null"], check=True)
    return int(PROBE_BYTES * seconds / (time.monotonic() - begin_s))
