"""Runs workloads under tests/truth's recorder, bare and under gpu-track-run."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
from typing import Any

from gpu_track_scripts.commands import Word, words
from gpu_track_scripts.truth.compare import Row, row_of, worst_of
from workloads import FILES, NOBODY, PATH, Workload

# What the recorder's message contains if the kernel dropped messages: ENOBUFS of a socket, or a process's exit for
# which taskstats had no buffer left.
LOST = ("No buffer space available", "taskstats said nothing")
# How often a run is tried if messages were dropped.
TRIES = 3
# How long the recorder waits for processes that outlive the command, where gpu-track-run waits for them too.
GRACE_S = 60
# How much of a command's output is shown where it failed.
OUTPUT_SHOWN = 1000


class Failed(Exception):
    """A workload that did not run as it should, so there is nothing to compare."""


class NoTruth(Exception):
    """The kernel dropped messages for the recorder, because the machine is too busy."""


def as_nobody(home: pathlib.Path) -> list[Word]:
    """The front of a command line that runs the command as another user without capabilities."""
    setpriv = f"setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups --inh-caps=-all --bounding-set=-all"
    return [*setpriv.split(), "env", f"HOME={home}", f"XDG_CACHE_HOME={home}/.cache", f"TMPDIR={home}"]


def kept_name(workload: str) -> str:
    """The name of the directory in which a workload's results are kept."""
    return re.sub(r"\W+", "_", workload)[:60]


@dataclasses.dataclass
class Runner:
    """What all runs share."""

    recorder: pathlib.Path
    tracker: pathlib.Path
    tracker_options: list[str]
    as_user: bool
    keep: pathlib.Path | None
    temporary: pathlib.Path

    def compare(self, workload: Workload, runs: int) -> Row:
        """The worst row of several runs, with the ratio of the fastest wall times."""
        rows = []
        bare_s, tracked_s = [], []
        is_left = False
        for _ in range(runs):
            record, _ = self._run_until_recorded(workload, tracked=False)
            bare_s.append(record["wall_s"])
            is_left |= record["left_at_end"] > 0
            record, report = self._run_until_recorded(workload, tracked=True)
            tracked_s.append(record["wall_s"])
            is_left |= record["left_at_end"] > 0
            if report is not None:
                rows.append(row_of(workload, record, report))
        worst = worst_of(rows)
        # If processes outlive the command, the bare and the tracked run don't wait for the same.
        if not is_left:
            worst.wall_ratio = min(tracked_s) / min(bare_s)
        return worst

    def _run_until_recorded(self, workload: Workload, tracked: bool) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Repeats a run for which the kernel dropped messages."""
        for _ in range(TRIES - 1):
            try:
                return self.run(workload, tracked)
            except NoTruth:
                continue
        return self.run(workload, tracked)

    def run(self, workload: Workload, tracked: bool) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """One run: the recorder's record, and gpu-track-run's report if it was tracked."""
        with tempfile.TemporaryDirectory(dir=self.temporary) as name:
            # The results lie beside the workload's directory, not in it.
            results = pathlib.Path(name)
            directory = results / "work"
            directory.mkdir()
            prepare(workload, directory)
            if self.as_user:
                for path in [results, directory, *directory.rglob("*")]:
                    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
            truth, ours, output = results / "truth.json", results / "ours.json", results / "output"
            with open(output, "wb") as file:
                done = subprocess.run(
                    words(self.command_line(workload, directory, truth, ours if tracked else None)),
                    cwd=directory,
                    env=workload_environment() | {"LC_ALL": "C.UTF-8"},
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                )
            record = checked_record(workload, done.returncode, output.read_text(errors="replace"), truth)
            report: dict[str, Any] | None = json.loads(ours.read_text(encoding="utf-8")) if tracked else None
            if tracked and self.keep:
                keep = self.keep / kept_name(workload.name)
                keep.mkdir(parents=True, exist_ok=True)
                for path in (truth, ours, output):
                    shutil.copy(path, keep)
            return record, report

    def command_line(
        self, workload: Workload, directory: pathlib.Path, truth: pathlib.Path, ours: pathlib.Path | None
    ) -> list[Word]:
        """The recorder's command line. The recorder counts what stands behind the word `@`."""
        tracker: list[Word] = []
        if ours:
            tracker = [self.tracker, "-f", "json", "--ru", "bytes", "-o", ours, *self.tracker_options]
            tracker += [*(["--wait-all"] if workload.wait_all else []), "--"]
        grace_s = GRACE_S if workload.wait_all else 0
        recorder: list[Word] = [self.recorder, "record", "-o", truth, "--grace", grace_s, "--"]
        user = as_nobody(directory) if self.as_user else []
        return [*recorder, *user, *tracker, "@", "sh", "-c", workload.command]


def checked_record(workload: Workload, status: int, output: str, truth: pathlib.Path) -> dict[str, Any]:
    """The recorder's record of a run; fails if there is none or if the command failed."""
    shown = output[-OUTPUT_SHOWN:]
    if status != 0 and any(message in output for message in LOST):
        raise NoTruth(shown.strip())
    if status != 0:
        raise Failed(f"no record: {shown}")
    record: dict[str, Any] = json.loads(truth.read_text(encoding="utf-8"))
    if record["status"] != 0 and not workload.any_end:
        raise Failed(f"wait status {record['status']}: {shown}")
    return record


def workload_environment() -> dict[str, str]:
    """The environment of a workload."""
    return {**os.environ, "PATH": PATH, "FILES": str(FILES)}


def prepare(workload: Workload, directory: pathlib.Path) -> None:
    """Puts the workload's files into its directory."""
    if callable(workload.prepare):
        workload.prepare(directory)
    elif workload.prepare:
        subprocess.run(["sh", "-ec", workload.prepare], cwd=directory, env=workload_environment(), check=True)


def why_no_truth(recorder: pathlib.Path, temporary: pathlib.Path) -> str | None:
    """Why the recorder can't record here; None if it can."""
    command = words([recorder, "record", "-o", temporary / "probe.json", "--", "/bin/true"])
    probe = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return None if probe.returncode == 0 else probe.stderr.strip()
