"""What whole runs cost: `hello`, `loop`, `compute`, `stalls`, `true`, `shell`, `many` and `ring`."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import Any

from gpu_track_scripts.bench.row import Row
from gpu_track_scripts.bench.tracked import TrackedRun
from gpu_track_scripts.bench.workbench import Workbench
from gpu_track_scripts.commands import Word, output
from gpu_track_scripts.figures import BySide, differences, interleave, ratios, with_quartiles
from gpu_track_scripts.tools import Unavailable, cache

SIDES = ("bare", "ours")
# The number of ended processes until which memory may grow: tables and caches reach their size by then.
WARM_UP_FORKS = 10_000


def hello(bench: Workbench) -> Iterator[Row]:
    """A real build."""
    archive = cache() / "hello_2.10.orig.tar.gz"
    if not archive.exists():
        raise Unavailable("no archive of GNU hello: scripts/test fetches it")

    def measure(side: str) -> float:
        directory = bench.temporary / f"hello-{side}"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        subprocess.run(["tar", "-xzf", archive, "--strip-components=1", "-C", directory], check=True)
        command = ["sh", "-c", "{ ./configure && make -j4; } >/dev/null 2>&1"]
        start = time.monotonic()
        output([*(bench.track() if side == "ours" else []), *command], cwd=directory)
        return time.monotonic() - start

    yield hello_row(interleave(SIDES, bench.pick(7, 1), measure))


def hello_row(wall_s: BySide) -> Row:
    """Compares the wall times."""
    ratio = ratios(wall_s, "ours", "bare")
    return Row(
        f"GNU hello: configure && make -j4, {len(ratio)} rounds",
        f"bare: {with_quartiles(wall_s['bare'], 2, ' s')}",
        "1.03 x",
        with_quartiles(ratio, 3, " x"),
        statistics.median(ratio) <= 1.03,
    )


def loop(bench: Workbench) -> Iterator[Row]:
    """A shell that starts nothing but the shortest program: the dearest case of all."""
    count = bench.pick(1000, 300)
    command: list[Word] = ["sh", "-c", f"i=0; while [ $i -lt {count} ]; do /bin/true; i=$((i+1)); done"]

    def measure(side: str) -> float:
        start = time.monotonic()
        output([*(bench.track() if side == "ours" else []), *command])
        return time.monotonic() - start

    yield loop_row(count, interleave(SIDES, bench.pick(15, 5), measure))


def loop_row(count: int, wall_s: BySide) -> Row:
    """Compares the wall times."""
    ratio = ratios(wall_s, "ours", "bare")
    return Row(
        f"{count} x /bin/true in a shell loop",
        f"bare: {with_quartiles(wall_s['bare'], 2, ' s')}",
        "1.15 x",
        with_quartiles(ratio, 3, " x"),
        statistics.median(ratio) <= 1.15,
    )


def stalls(bench: Workbench) -> Iterator[Row]:
    """How long a large program with fork children waits for memory, at the longest."""
    # Memory in MiB, number of mappings.
    cases = [(512, 0), (512, 60_000), (1024, 0), (4096, 0), (12288, 0)]
    available = available_bytes()
    for mib, maps in cases[: bench.pick(len(cases), 1)]:
        name = f"{mib} MiB, 3 fork children" + (f", {maps:,} mappings" if maps else "")
        if mib << 20 > available * 3 // 4:
            raise Unavailable(f"too little free memory for {name}")

        def measure(side: str, mib: int = mib, maps: int = maps) -> float:
            front = bench.track() if side == "ours" else []
            return int(output([*front, bench.work, "stalls", mib, 3, maps])) / 1e6

        yield stalls_row(name, interleave(SIDES, bench.pick(10, 2), measure))


def available_bytes() -> int:
    """Memory that programs can have without swapping."""
    fields = dict(line.split(":") for line in pathlib.Path("/proc/meminfo").read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) << 10


def stalls_row(name: str, longest_ms: BySide) -> Row:
    """Compares the medians of the longest waits, as a single one depends on chance."""
    bare, ours = (statistics.median(longest_ms[side]) for side in SIDES)
    return Row(
        f"longest wait for mmap, a page fault and munmap in 4 s; {name}; {len(longest_ms['ours'])} rounds",
        f"bare: {with_quartiles(longest_ms['bare'], 1, ' ms')}",
        "+10 ms",
        with_quartiles(longest_ms["ours"], 1, " ms"),
        ours - bare <= 10,
    )


@dataclasses.dataclass(frozen=True)
class Work:
    """What a run of `work` printed: its wall time, voluntary context switches, and CPU time."""

    wall_s: float
    voluntary: int
    cpu_ns: int


def parse_work(text: str) -> Work:
    """Reads "WALL_NS VOLUNTARY INVOLUNTARY CPU_NS"."""
    wall_ns, voluntary, _, cpu_ns = map(int, text.split())
    return Work(wall_ns / 1e9, voluntary, cpu_ns)


def compute(bench: Workbench) -> Iterator[Row]:
    """Programs that make no processes."""
    rounds = bench.pick(15, 5)
    cases: dict[str, list[Word]] = {
        "16 threads that compute": ["compute", 16, bench.pick(20, 5)],
        "one thread, memory traffic over 100 MB": ["stream", 100, bench.pick(20, 6)],
    }
    for name, command in cases.items():

        def measure(side: str, command: Sequence[Word] = command) -> Work:
            front = bench.track() if side == "ours" else []
            return parse_work(output([*front, bench.work, *command]))

        yield compute_row(f"{name}, {rounds} rounds", interleave(SIDES, rounds, measure))


def compute_row(measured: str, runs: dict[str, list[Work]]) -> Row:
    """Judges CPU time, which other programs disturb less than wall time. The limit is the spread of the bare runs."""
    wall_s = {side: [run.wall_s for run in of_side] for side, of_side in runs.items()}
    cpu_ns = {side: [run.cpu_ns for run in of_side] for side, of_side in runs.items()}
    switches = {side: statistics.median(run.voluntary for run in of_side) for side, of_side in runs.items()}
    ratio = ratios(cpu_ns, "ours", "bare")
    middle = statistics.median(cpu_ns["bare"])
    low, _, high = statistics.quantiles([value / middle for value in cpu_ns["bare"]], n=4)
    return Row(
        measured,
        f"bare: {with_quartiles(wall_s['bare'], 3, ' s')}; its own CPU time varies by {100 * (high - low):.1f}%",
        "1.00 x within noise",
        f"{with_quartiles(ratios(wall_s, 'ours', 'bare'), 3, ' x')} wall; {with_quartiles(ratio, 3, ' x')} CPU; "
        f"voluntary switches {switches['bare']:.0f} bare, {switches['ours']:.0f} tracked",
        abs(statistics.median(ratio) - 1) <= max(0.005, high - low),
    )


def true(bench: Workbench) -> Iterator[Row]:
    """The shortest run."""
    program = shutil.which("true") or "/bin/true"

    commands = {
        "bare": [program],
        "version": [str(bench.tracker), "--version"],
        "ours": [*map(str, bench.track()), program],
    }
    yield true_row(interleave(tuple(commands), bench.pick(200, 40), lambda side: time_ms(commands[side])))


def time_ms(command: Sequence[str]) -> float:
    """The time of a command without its output, milliseconds."""
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    start = time.monotonic_ns()
    pid = os.posix_spawn(command[0], [*command], os.environ, file_actions=quiet)
    os.waitpid(pid, 0)
    return (time.monotonic_ns() - start) / 1e6


def true_row(wall_ms: BySide) -> Row:
    """What a run takes beside the command itself, in units of what this program takes to do nothing."""
    above = differences(wall_ms, "ours", "bare")
    units = [added / whole for added, whole in zip(above, wall_ms["version"])]
    return Row(
        "gpu-track-run -- true, from start to end, with its report",
        f"true: {with_quartiles(wall_ms['bare'], 2, ' ms')}; gpu-track-run --version: "
        f"{with_quartiles(wall_ms['version'], 2, ' ms')}",
        "+1.8 x --version",
        f"+{with_quartiles(above, 2, ' ms')}: {with_quartiles(units, 2, ' x')}",
        statistics.median(units) <= 1.8,
    )


def shell(bench: Workbench) -> Iterator[Row]:
    """A task of a workflow that gets a report of its own: a stand-in for its shell runs it."""
    companion = bench.temporary / "gpu-track"
    companion.symlink_to(bench.tracker)
    stand_ins, reports = bench.temporary / "stand-ins", bench.temporary / "reports"
    output([companion, "shell", "--install", stand_ins, "--reports", reports])
    task = ["-c", "/bin/true; exit 0"]
    commands = {
        "bare": ["/bin/bash", *task],
        "run": [*map(str, bench.track("-f", "json")), "/bin/bash", *task],
        "ours": [str(stand_ins / "bash"), *task],
    }
    rounds = bench.pick(200, 40)
    times = interleave(tuple(commands), rounds, lambda side: time_ms(commands[side]))
    if len(list(reports.glob("*.json"))) < rounds:
        raise Unavailable("not each task has left a report")
    yield shell_row(times)


def shell_row(wall_ms: BySide) -> Row:
    """What a task takes beside its shell, and beside a run of it."""
    added = {side: with_quartiles(differences(wall_ms, side, "bare"), 2, " ms") for side in ("run", "ours")}
    return Row(
        "a task (bash -c) by gpu-track shell, with its report",
        f"bash: {with_quartiles(wall_ms['bare'], 2, ' ms')}; gpu-track-run -- bash: +{added['run']}",
        "",
        f"+{added['ours']}",
        None,
    )


def many(bench: Workbench) -> Iterator[Row]:
    """A long run of short processes."""
    count = bench.pick(200_000, 40_000)
    report = bench.temporary / "many.json"
    pss_bytes: list[tuple[int, int]] = []
    last_ns = 0
    with TrackedRun(bench, [bench.births, "many", count], "-o", report, "-f", "json") as run:
        while line := run.stdout.readline():
            done, last_ns = map(int, line.split())
            try:
                pss_bytes.append((done, run.resident().pss_bytes))
            except (FileNotFoundError, ProcessLookupError):
                break
    end_s = (time.monotonic_ns() - last_ns) / 1e9
    coverage = json.loads(report.read_text(encoding="utf-8"))["coverage"]
    yield many_row(count, pss_bytes, end_s, coverage)


def many_row(count: int, pss_bytes: Sequence[tuple[int, int]], end_s: float, coverage: dict[str, Any]) -> Row:
    """Judges growth after the warm-up, dropped events, the count of processes, and the time to the report.

    `pss_bytes` has pairs: how many processes had ended, and the PSS of collector and launcher then.
    """
    (first_done, first), *later = [pair for pair in pss_bytes if pair[0] >= WARM_UP_FORKS]
    largest = max([first, *(size for _, size in later)])
    growth = largest / first - 1
    drops = coverage.get("dropped_events")
    return Row(
        f"{count} forks in one run",
        "",
        "flat memory, no drops, report in 1 s",
        f"{first / 1e6:.1f} MB after {first_done}, {largest / 1e6:.1f} MB at most later (+{100 * growth:.0f}%); "
        f"{coverage['processes']} processes counted, {drops} events dropped; "
        f"report and end {end_s * 1000:.0f} ms after the last",
        growth <= 0.1 and drops == 0 and coverage["processes"] == count + 1 and end_s < 1,
    )


def ring(bench: Workbench) -> Iterator[Row]:
    """The event ring at full speed."""
    for writers in [2, 8, 64]:
        for slots in [512, 2048, 8192]:
            command: list[Word] = [bench.ring, writers, slots, bench.pick(1, 0.3)]
            yield ring_row(writers, slots, [output(command) for _ in range(bench.pick(5, 3))])


def ring_row(writers: int, slots: int, outputs: Sequence[str]) -> Row:
    """Each output is "STORED_A_SECOND DROPPED_PERCENT COPIED_A_SECOND". There is no target to meet."""
    stored, dropped, copied = zip(*([float(word) for word in text.split()] for text in outputs))
    return Row(
        f"event ring, {writers} writing processes at full speed, {slots} slots",
        f"the same records copied: {with_quartiles([value / 1e6 for value in copied], 1, ' M/s')}",
        "reported",
        f"{with_quartiles([value / 1e3 for value in stored], 0, ' k/s')} taken; "
        f"{with_quartiles(dropped, 1, '%')} of the attempts found it full",
        None,
    )
