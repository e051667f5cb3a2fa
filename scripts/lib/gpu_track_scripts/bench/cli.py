"""The command line of scripts/bench."""

from __future__ import annotations

import argparse
import datetime
import os
import pathlib
import platform
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence

from gpu_track_scripts.bench import peers as other_programs
from gpu_track_scripts.bench.gpu import gpus8
from gpu_track_scripts.bench.jobs import peers
from gpu_track_scripts.bench.processes import fork, spawn
from gpu_track_scripts.bench.row import HEADER, Row, skipped_line
from gpu_track_scripts.bench.runs import compute, hello, loop, many, ring, shell, stalls, true
from gpu_track_scripts.bench.sampling import busy200, dirty, khz, memory, once, sample200, sample500, sample5000
from gpu_track_scripts.bench.workbench import Workbench, prepare
from gpu_track_scripts.commands import first_line
from gpu_track_scripts.tools import Unavailable

DESCRIPTION = """\
Measures what tracking costs, compares each figure with a limit from the same run, and prints a Markdown table.

    scripts/bench [--quick] [--tracker FILE] [NAME...]

NAME: {names}; without one, all of them.
The sides of a comparison alternate in many short rounds, so a disturbance of the machine affects all of them alike.
A figure is the median over the rounds, with its quartiles in brackets.

Needs Rust and a C compiler. `hello` needs the archive that scripts/test fetches. `peers` uses whichever of
gpu-tracker, psrecord, GNU time and resource_monitor it finds in PATH or in --bin DIR.
"""

Benchmark = Callable[[Workbench], Iterator[Row]]
# In the order of the table.
RUNS: list[Benchmark] = [spawn, fork, loop, hello, compute, stalls]
ALL: list[Benchmark] = [
    *RUNS,
    once,
    sample200,
    busy200,
    sample500,
    sample5000,
    khz,
    true,
    shell,
    memory,
    dirty,
    many,
    gpus8,
    peers,
    ring,
]
NAMES = [benchmark.__name__ for benchmark in ALL]


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line; ends with status 2 where it is wrong."""
    parser = argparse.ArgumentParser(
        prog="bench",
        description=DESCRIPTION.format(names=" ".join(NAMES)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="a benchmark to run")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument(
        "--tracker",
        type=lambda path: pathlib.Path(path).resolve(),
        metavar="FILE",
        help="a gpu-track-run that is built already, to compare two builds",
    )
    parser.add_argument("--bin", action="append", default=[], metavar="DIR", help="where peers are, beside PATH")
    options = parser.parse_args(arguments)
    for name in options.names:
        if name not in NAMES:
            parser.error(f"no benchmark is called '{name}'; choose from {', '.join(NAMES)}")
    return options


def selected(names: Sequence[str]) -> list[Benchmark]:
    """The benchmarks of these names in the order of the table; all of them without a name."""
    return [benchmark for benchmark in ALL if not names or benchmark.__name__ in names]


def environment(bench: Workbench) -> str:
    """The line above the table: on what the figures depend."""
    versions = [
        first_line([bench.tracker, "--version"]),
        first_line(["rustc", "--version"]),
        first_line(["cc", "--version"]),
        " ".join(platform.libc_ver()),
        *other_programs.versions(bench),
    ]
    today = datetime.datetime.now().astimezone().date()
    machine = f"Linux {platform.release()}, {platform.machine()}, {os.cpu_count()} cores"
    return f"{today}, {machine}, load {os.getloadavg()[0]:.1f} at the start; {', '.join(versions)}."


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the selected benchmarks and prints their rows as they come."""
    # A normal exit removes the temporary directory.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    options = parse_arguments(arguments)
    with tempfile.TemporaryDirectory(prefix="gpu-track-bench.") as name:
        bench = prepare(options.quick, options.bin, options.tracker, pathlib.Path(name))
        print(environment(bench), end="\n\n")
        print(HEADER, flush=True)
        for benchmark in selected(options.names):
            try:
                for row in benchmark(bench):
                    print(row.line(benchmark.__name__), flush=True)
            except Unavailable as reason:
                print(skipped_line(benchmark.__name__, reason), flush=True)
    return 0
