"""The benchmark `peers`: other programs on the same jobs."""

from __future__ import annotations

import pathlib
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence

from gpu_track_scripts.bench.peers import Peer, PeerFigures, installed_peers
from gpu_track_scripts.bench.row import Row
from gpu_track_scripts.bench.workbench import Workbench
from gpu_track_scripts.commands import Word, words
from gpu_track_scripts.figures import BySide, interleave, ratios, with_quartiles
from gpu_track_scripts.tools import Unavailable


def peers(bench: Workbench) -> Iterator[Row]:
    """Other programs on the same jobs."""
    count = bench.pick(1000, 200)
    shell_loop = f"i=0; while [ $i -lt {count} ]; do /bin/true; i=$((i+1)); done"
    holders: list[Word] = [bench.touch, "forks", 20, 100_000_000, 30]
    jobs: dict[str, list[Word]] = {
        f"{count} x /bin/true in a shell loop (truth: {count + 1} processes)": ["sh", "-c", shell_loop],
        "20 children hold 100 MB for 30 ms, one after another (truth: 21 processes, 101 MB)": holders,
        "one process that computes (truth: 1 process)": [bench.work, "compute", 1, bench.pick(400, 100)],
    }
    out = bench.temporary / "peer"
    sides = installed_peers(bench, out)
    for job, command in jobs.items():
        wall_s, figures = run_job(command, sides, bench.pick(7, 3), out)
        yield from peer_rows(job, wall_s, figures)


def run_job(
    command: Sequence[Word], sides: Mapping[str, Peer], rounds: int, out: pathlib.Path
) -> tuple[dict[str, list[float]], dict[str, list[PeerFigures]]]:
    """The wall times and the figures of each side."""

    def measure(side: str) -> tuple[float, PeerFigures]:
        for old in out.parent.glob(f"{out.name}*"):
            old.unlink()
        peer = sides[side]
        line = words(peer.wrap(unsplittable(command, out.parent) if peer.splits_words else command))
        start = time.monotonic()
        done = subprocess.run(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=out.parent, text=True)
        took_s = time.monotonic() - start
        if done.returncode != 0:
            raise Unavailable(f"{side}: status {done.returncode}: {done.stderr[-300:]}")
        written = out.with_name(out.name + peer.suffix)
        return took_s, peer.parse(written.read_text(encoding="utf-8") if side != "bare" else "")

    results = interleave(list(sides), rounds, measure)
    wall_s = {side: [took for took, _ in pairs] for side, pairs in results.items()}
    return wall_s, {side: [figures for _, figures in pairs] for side, pairs in results.items()}


def unsplittable(command: Sequence[Word], directory: pathlib.Path) -> list[Word]:
    """The command without blanks in its words: the code of `sh -c` goes to a file."""
    if command[:2] != ["sh", "-c"]:
        return list(command)
    script = directory / "job.sh"
    script.write_text(str(command[2]), encoding="utf-8")
    return ["sh", script]


def peer_rows(job: str, wall_s: BySide, figures: Mapping[str, Sequence[PeerFigures]]) -> Iterator[Row]:
    """A row for each side but the bare one. A peer's row is met if gpu-track-run took no longer."""
    ours = statistics.median(ratios(wall_s, "gpu-track-run", "bare"))
    for side, of_side in figures.items():
        if side == "bare":
            continue
        is_ours = side == "gpu-track-run"
        ratio = ratios(wall_s, side, "bare")
        shown = [
            described("processes", [run.processes for run in of_side], 0, ""),
            described("CPU", [run.cpu_s for run in of_side], 2, " s"),
            described("RAM", [run.ram_mb for run in of_side], 0, " MB"),
        ]
        yield Row(
            job,
            f"bare: {with_quartiles(wall_s['bare'], 2, ' s')}",
            "" if is_ours else f"ours ahead ({ours:.2f} x)",
            f"**{side}**: {with_quartiles(ratio, 2, ' x')}; {'; '.join(shown)}",
            None if is_ours else ours <= statistics.median(ratio),
        )


def described(what: str, values: Sequence[float | None], digits: int, unit: str) -> str:
    """A figure over all runs that have it."""
    known = [value for value in values if value is not None]
    return f"{what} {with_quartiles(known, digits, unit)}" if known else f"{what}: no figure"
