"""Runs the lines, and writes or checks the table in docs/GPU_TRACKER.md."""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from gpu_track_scripts.commands import AS_TESTS, Word, cargo_build, words
from gpu_track_scripts.gpu_tracker import peer
from gpu_track_scripts.gpu_tracker.lines import EXAMPLE, LINES, prepare
from gpu_track_scripts.gpu_tracker.outcome import Outcome, Text, observe
from gpu_track_scripts.gpu_tracker.table import table
from gpu_track_scripts.paths import ROOT
from gpu_track_scripts.tools import Unavailable

PAGE = ROOT / "docs/GPU_TRACKER.md"
RECORD = ROOT / "scripts/fixtures/gpu_tracker/outcomes.json"
BEGIN, END = "<!-- begin: scripts/gpu-tracker-table -->", "<!-- end: scripts/gpu-tracker-table -->"
SKIPPED = 77

HELP = """Runs 40 command lines of gpu_tracker's documentation with it and with gpu-track-run under its name, and writes
the table of differences into docs/GPU_TRACKER.md. Exit status, streams, files, and the form of all output are compared,
not figures and warnings. What gpu_tracker did is kept in scripts/fixtures/gpu_tracker, so --check needs neither it nor
the network."""


def observe_all(program: pathlib.Path, ours: pathlib.Path) -> dict[str, Outcome]:
    """What `program` does with each line. `ours` writes the tracking file that one of them reads."""
    with tempfile.TemporaryDirectory(prefix="gpu-tracker-table.") as name:
        directory = pathlib.Path(name)
        prepare(directory)
        tracking_file = directory / "ours.csv"
        track: list[Word] = [ours, "-e", EXAMPLE, "--st=0.1", f"--tf={tracking_file}", "-o", "report.txt"]
        subprocess.run(words(track), cwd=directory, check=True, capture_output=True)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            outcomes = pool.map(lambda line: observe([program], line, tracking_file), LINES)
            return {line.text: outcome for line, outcome in zip(LINES, outcomes)}


def outcome_of(recorded: Mapping[str, Any]) -> Outcome:
    """An outcome as it was recorded."""
    files = {name: Text(**text) for name, text in recorded["files"].items()}
    return Outcome(**{**recorded, "stdout": Text(**recorded["stdout"]), "files": files})


def record(outcomes: Mapping[str, Outcome]) -> None:
    """Keeps what gpu_tracker did."""
    today = datetime.datetime.now(tz=datetime.timezone.utc).date().isoformat()
    on = f"gpu_tracker {peer.VERSION} on Python {platform.python_version()}, {today}, on a machine without a GPU"
    kept = {"on": on, "outcomes": {line: dataclasses.asdict(outcome) for line, outcome in outcomes.items()}}
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(kept, indent=1) + "\n")


def section(ours: Mapping[str, Outcome]) -> str:
    """The table with its caption."""
    kept = json.loads(RECORD.read_text())
    theirs = {line: outcome_of(recorded) for line, recorded in kept["outcomes"].items()}
    lines = [line.text for line in LINES]
    if list(theirs) != lines:
        raise Unavailable("scripts/fixtures/gpu_tracker has other lines: run scripts/gpu-tracker-table")
    same = sum(theirs[line] == ours[line] for line in lines)
    caption = f"{len(lines)} command lines: {same} do the same, {len(lines) - same} differ. ({kept['on']})"
    return f"{caption}\n\n{table(theirs, ours, lines)}"


def with_section(page: str, new: str) -> str:
    """The page with this section between the marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{new}\n{END}{after}"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=HELP)
    parser.add_argument("--check", action="store_true", help="fail if the page has another table; runs ours only")
    parser.add_argument("--program", type=pathlib.Path, help="gpu-track-run; without it, it is built")
    arguments = parser.parse_args()
    check: bool = arguments.check
    given: pathlib.Path | None = arguments.program
    if os.path.exists("/proc/driver/nvidia"):
        print("SKIPPED scripts/gpu-tracker-table: it compares on machines without a GPU")
        return SKIPPED
    program = (given or cargo_build("dev", *AS_TESTS, quiet=True)["gpu-track-run"]).resolve()
    with tempfile.TemporaryDirectory(prefix="gpu-tracker-table.") as directory:
        link = pathlib.Path(directory, "gpu-tracker")
        link.symlink_to(program)
        try:
            if not check:
                record(observe_all(peer.program(), link))
            new = with_section(PAGE.read_text(), section(observe_all(link, link)))
        except Unavailable as reason:
            print(f"scripts/gpu-tracker-table: {reason}", file=sys.stderr)
            return 1
    if not check:
        PAGE.write_text(new)
    elif new != PAGE.read_text():
        rows = [line for line in new.splitlines() if line not in PAGE.read_text().splitlines()]
        print("docs/GPU_TRACKER.md has another table. Run scripts/gpu-tracker-table. These are new:", *rows, sep="\n")
        return 1
    return 0
