"""The command line of scripts/time-spent."""

from __future__ import annotations

import argparse
import os
import pathlib
import platform
import random
import signal
import sys
import tempfile
from collections.abc import Sequence

from gpu_track_scripts.commands import cargo_build, compile_c, first_line
from gpu_track_scripts.paths import ROOT
from gpu_track_scripts.time_spent.cases import Case, mix, special
from gpu_track_scripts.time_spent.runner import Runner
from gpu_track_scripts.time_spent.server import serving
from gpu_track_scripts.time_spent.table import print_table

DESCRIPTION = """\
Compares `time_spent` of gpu-track-run's report with known times, and prints a table.

tests/programs/phases.c computes, sleeps, and waits for locks, files and others, and measures how long it did each.
scripts/time-spent runs random mixes of that, and then cases of their own: threads, strangers on all cores, a CPU quota,
a slow file system, a pipeline. What is not possible here is skipped, with the reason.

Each share of the wall time must be within 5 points of the truth. In runs below 20 s, twice the sampling error counts
where that is more. The shares add up to 1, below 3% is unknown, and a state of 60% or more is the verdict.

The status is 0 if all comparisons held and no run failed.
"""
COLD_BYTES = 64 << 20
# A file system of a disk, on most systems: /tmp is often memory, where nothing blocks.
DIRECTORY = pathlib.Path("/var/tmp")


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line; ends with status 2 where it is wrong."""
    parser = argparse.ArgumentParser(
        prog="time-spent", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("name", nargs="*", help="run only what has one of these words in its name (`mix`: the random mixes)")
    add("--runs", type=int, help="how many mixes (default: 6; with --quick 2)")
    add("--seed", type=int, help="the first mix's seed, the next ones count on (default: a random one)")
    add("--quick", action="store_true", help="short runs")
    add("--list", action="store_true", help="print the names and what they run, and end")
    add("--bare", action="store_true", help="run without gpu-track-run, and print the truth")
    add("--directory", type=pathlib.Path, default=DIRECTORY, help=f"where files are, on a disk (default: {DIRECTORY})")
    add("--profile", default="release", help="the cargo profile of gpu-track-run")
    add("--tracker", type=lambda path: pathlib.Path(path).resolve(), help="a gpu-track-run that is built already")
    add("--keep", type=pathlib.Path, help="keep reports and truths in this directory")
    options = parser.parse_args(arguments)
    if options.runs is None:
        options.runs = 2 if options.quick else 6
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1_000_000)
    return options


def selected(options: argparse.Namespace) -> list[Case]:
    """The cases that the options name."""
    mixes = [mix(options.seed + number, quick=options.quick) for number in range(options.runs)]
    cases = [*mixes, *special(quick=options.quick)]
    return [case for case in cases if not options.name or any(word in case.name for word in options.name)]


def write_cold_file(path: pathlib.Path) -> None:
    """A file whose pages are on the disk."""
    with open(path, "wb") as file:
        file.writelines(random.randbytes(1 << 20) for _ in range(COLD_BYTES >> 20))
        file.flush()
        os.fsync(file.fileno())


def environment(options: argparse.Namespace, tracker: pathlib.Path | None) -> str:
    """On what the figures depend."""
    version = "without gpu-track-run" if tracker is None else first_line([tracker, "--version"])
    system = f"Linux {platform.release()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start"
    return f"{version}, {system}; seed {options.seed}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Builds the programs, runs the cases and prints the table."""
    # A normal exit ends what runs, and removes the temporary directory.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    options = parse_arguments(arguments)
    cases = selected(options)
    if options.list:
        for case in cases:
            pool = f"--pool {case.pool} " if case.pool else ""
            print(f"{case.name}: {pool}{' '.join(case.phases or case.command)}")
        return 0
    tracker = None
    if not options.bare:
        tracker = options.tracker or cargo_build(options.profile, "-p", "gpu-track-run")["gpu-track-run"]
    with tempfile.TemporaryDirectory(prefix="gpu-track-time-spent.", dir=options.directory) as name:
        temporary = pathlib.Path(name)
        program = compile_c(temporary / "phases", ROOT / "tests" / "programs" / "phases.c", "-std=c11")
        cold = temporary / "cold"
        write_cold_file(cold)
        with serving(temporary) as server:
            runner = Runner(tracker, program, server, cold, temporary, options.keep)
            print(f"scripts/time-spent: {environment(options, tracker)}\n")
            return print_table(cases, runner.run).status()
