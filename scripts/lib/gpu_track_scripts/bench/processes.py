"""What making processes costs: `spawn` and `fork`."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import statistics
from collections.abc import Iterator, Sequence

from gpu_track_scripts.bench.row import Row
from gpu_track_scripts.bench.workbench import Workbench
from gpu_track_scripts.commands import Word, output
from gpu_track_scripts.figures import BySide, differences, interleave, ratios, with_quartiles


@dataclasses.dataclass(frozen=True)
class ChildCosts:
    """What a child costs by side: the median of each round, in microseconds."""

    wall_us: BySide
    cpu_us: BySide


def parse_births(text: str) -> tuple[float, float]:
    """The medians that a run of `births` printed: wall time and CPU time of a child in microseconds.

    The first line has each child's wall time in nanoseconds, the second its CPU time in microseconds.
    """
    wall_ns, cpu_us = text.splitlines()
    return statistics.median(map(int, wall_ns.split())) / 1000, float(statistics.median(map(int, cpu_us.split())))


def child_costs(bench: Workbench, command: Sequence[Word], sides: Sequence[str], rounds: int) -> ChildCosts:
    """Runs `births` on each side: bare, with a library preloaded, or tracked."""
    directory = pathlib.Path("/dev/shm") if os.path.isdir("/dev/shm") else bench.temporary
    segment = directory / f"gpu-track-bench.{os.getpid()}"
    segment.write_bytes(bytes(bench.mapped_bytes))

    def measure(side: str) -> tuple[float, float]:
        environment = dict(os.environ)
        if side in bench.preloads:
            environment |= {"LD_PRELOAD": str(bench.preloads[side]), "GPU_TRACK_SESSION": str(segment)}
        front = bench.track() if side == "ours" else []
        return parse_births(output([*front, bench.births, *command], env=environment))

    try:
        results = interleave(sides, rounds, measure)
    finally:
        segment.unlink()
    return ChildCosts(
        wall_us={side: [wall for wall, _ in pairs] for side, pairs in results.items()},
        cpu_us={side: [cpu for _, cpu in pairs] for side, pairs in results.items()},
    )


def spawn(bench: Workbench) -> Iterator[Row]:
    """posix_spawn and wait."""
    rounds, each = bench.pick(25, 8), bench.pick(200, 60)
    cases: list[tuple[str, Word, int]] = [
        ("/bin/true, VmHWM read", "/bin/true", 40),
        ("a program that outgrows its parent, no VmHWM read", bench.births, 20),
    ]
    for name, program, target_us in cases:
        costs = child_costs(bench, ["spawn", each, program], ["bare", "empty", "ours"], rounds)
        yield spawn_row(f"posix_spawn + wait of {name}, {rounds} x {each}", target_us, costs)


def spawn_row(measured: str, target_us: int, costs: ChildCosts) -> Row:
    """Compares with an empty preloaded library, since any library costs its loading. Users pay for both."""
    wall = costs.wall_us
    whole = with_quartiles(differences(wall, "ours", "bare"), unit=" us")
    whole_cpu = with_quartiles(differences(costs.cpu_us, "ours", "bare"), unit=" us")
    above = differences(wall, "ours", "empty")
    above_cpu = differences(costs.cpu_us, "ours", "empty")
    empty = with_quartiles(differences(wall, "empty", "bare"), unit=" us")
    return Row(
        measured,
        f"empty preload: {empty} above bare's {statistics.median(wall['bare']):.0f} us",
        f"+{target_us} us",
        f"+{with_quartiles(above, unit=' us')} wall; +{with_quartiles(above_cpu, unit=' us')} CPU of the child; "
        f"above bare: +{whole} wall, +{whole_cpu} CPU, {with_quartiles(ratios(wall, 'ours', 'bare'), 2)} x",
        statistics.median(above) <= target_us,
    )


def fork(bench: Workbench) -> Iterator[Row]:
    """fork, _exit, waitpid."""
    rounds, each = bench.pick(25, 8), bench.pick(400, 100)
    costs = child_costs(bench, ["fork", each], ["bare", "empty", "least", "ours"], rounds)
    yield fork_row(f"fork + _exit + wait, {rounds} x {each}", costs)


def fork_row(measured: str, costs: ChildCosts) -> Row:
    """Compares with a bare fork; a fork child loads nothing."""

    def above_bare(figures: BySide, side: str) -> str:
        return with_quartiles(differences(figures, side, "bare"), unit=" us")

    wall, cpu = costs.wall_us, costs.cpu_us
    return Row(
        measured,
        f"bare: {with_quartiles(wall['bare'], unit=' us')}; above it an empty preload that maps the segment "
        f"{above_bare(wall, 'empty')}, one that writes three records and no more {above_bare(wall, 'least')}, "
        f"{above_bare(cpu, 'least')} CPU of the child",
        "+3 us",
        f"+{above_bare(wall, 'ours')} wall; +{above_bare(cpu, 'ours')} CPU of the child",
        statistics.median(differences(wall, "ours", "bare")) <= 3,
    )
