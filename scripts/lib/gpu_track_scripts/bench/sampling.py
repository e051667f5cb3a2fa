"""What sampling costs: `once`, `sample200`, `busy200`, `sample500`, `sample5000`, `khz`, `memory` and `dirty`."""

from __future__ import annotations

import dataclasses
import functools
import mmap
import statistics
import time
from collections.abc import Iterator, Sequence

from gpu_track_scripts.bench.row import Row
from gpu_track_scripts.bench.tracked import Resident, TrackedRun, children, sample_time_ns, samples_taken
from gpu_track_scripts.bench.workbench import Workbench
from gpu_track_scripts.commands import output
from gpu_track_scripts.figures import BySide, differences, interleave, ratios, with_quartiles
from gpu_track_scripts.tools import Unavailable

# The interval of 1 kHz, and how finely its grid is searched for.
TICK_NS = 1_000_000
GRID_STEP_NS = 10_000


@dataclasses.dataclass(frozen=True)
class SamplingCosts:
    """CPU time per process and sample in nanoseconds by side ("ours", "launcher", "limit"), and memory at the end."""

    cpu_ns: BySide
    resident: Resident
    launcher: Resident


@functools.cache
def sampling(bench: Workbench, count: int, what: str = "sleepers") -> SamplingCosts:
    """Samples processes (`what` of `work`), and runs a loop of bare reads of the same processes at the same time."""
    with TrackedRun(bench, [bench.work, what, count]) as run:
        if run.stdout.readline() != "ready\n":
            raise Unavailable(f"can't start {count} processes here")
        pids = [pid for main in run.command_pids() for pid in children(main)]
        # New processes are sampled more often; the steady cost begins after that.
        time.sleep(bench.pick(5, 3))
        ours, launcher, limit = [], [], []
        for _ in range(bench.pick(12, 5)):
            before, samples = (run.collector_cpu_ns(), run.launcher_cpu_ns()), run.samples()
            limit.append(float(output([bench.work, "bare", 2, 10, *pids]).split()[0]))
            reads = max(1, run.samples() - samples) * (len(pids) + 1)
            ours.append((run.collector_cpu_ns() - before[0]) / reads)
            launcher.append((run.launcher_cpu_ns() - before[1]) / reads)
        cpu_ns = {"ours": ours, "launcher": launcher, "limit": limit}
        return SamplingCosts(cpu_ns, run.resident(), run.resident_launcher())


def once(bench: Workbench) -> Iterator[Row]:
    """What a process costs when it is first seen."""
    few, many = 20, 220
    # Sleepers cost little after their first samples.
    seconds = 2.0

    def cpu_ms(side: str) -> float:
        with TrackedRun(bench, [bench.work, "sleepers", few if side == "few" else many]) as run:
            if run.stdout.readline() != "ready\n":
                raise Unavailable(f"can't start {many} processes here")
            time.sleep(seconds)
            return (run.collector_cpu_ns() + run.launcher_cpu_ns()) / 1e6

    yield once_row(many - few, interleave(("few", "many"), bench.pick(9, 3), cpu_ms))


def once_row(processes: int, cpu_ms: BySide) -> Row:
    """Divides what the further processes cost by their number."""
    of_each = [added / processes for added in differences(cpu_ms, "many", "few")]
    return Row(
        "CPU of collector and launcher in the first 2 s of a sleeping process",
        f"a run with {processes} processes fewer: {with_quartiles(cpu_ms['few'], 0, ' ms')}",
        "0.2 ms",
        with_quartiles(of_each, 3, " ms"),
        statistics.median(of_each) <= 0.2,
    )


def sample200(bench: Workbench) -> Iterator[Row]:
    """The steady cost of few processes, where what does not depend on their number counts most."""
    yield both_row("sleeping", sampling(bench, 200).cpu_ns)


def busy200(bench: Workbench) -> Iterator[Row]:
    """The same of processes whose figures change in each sample."""
    yield both_row("computing", sampling(bench, 200, "busy").cpu_ns)


def both_row(what: str, cpu_ns: BySide) -> Row:
    """Compares collector and launcher together with the loop of bare reads."""
    both = {"ours": [sum(pair) for pair in zip(cpu_ns["ours"], cpu_ns["launcher"])], "limit": cpu_ns["limit"]}
    ratio = ratios(both, "ours", "limit")
    return Row(
        f"CPU of collector and launcher per process and sample, 200 {what} processes, 10 Hz",
        f"clock_gettime, pread of stat and statm: {with_quartiles(both['limit'], 0, ' ns')}",
        "1.15 x",
        f"{with_quartiles(both['ours'], 0, ' ns')}: {with_quartiles(ratio, 2, ' x')}",
        statistics.median(ratio) <= 1.15,
    )


def sample500(bench: Workbench) -> Iterator[Row]:
    """The steady cost of sampling."""
    yield steady_row(sampling(bench, 500).cpu_ns)


def steady_row(cpu_ns: BySide) -> Row:
    """Compares with the loop of bare reads."""
    ratio = ratios(cpu_ns, "ours", "limit")
    return Row(
        "collector CPU per process and sample, 500 sleeping processes, 10 Hz",
        f"clock_gettime, pread of stat and statm: {with_quartiles(cpu_ns['limit'], 0, ' ns')}",
        "1.3 x",
        f"{with_quartiles(cpu_ns['ours'], 0, ' ns')}: {with_quartiles(ratio, 2, ' x')}",
        statistics.median(ratio) <= 1.3,
    )


def sample5000(bench: Workbench) -> Iterator[Row]:
    """How the cost grows with the number of processes."""
    count = bench.pick(5000, 2000)
    yield growth_row(count, sampling(bench, 500).cpu_ns, sampling(bench, count).cpu_ns)


def growth_row(count: int, few: BySide, many: BySide) -> Row:
    """Compares the costs with few and many processes, each in units of the bare loop that ran at the same time."""
    growth = statistics.median(ratios(many, "ours", "limit")) / statistics.median(ratios(few, "ours", "limit"))
    return Row(
        f"the same with {count} processes",
        f"bare loop: {with_quartiles(many['limit'], 0, ' ns')}",
        "1.2 x the cost with 500",
        f"{with_quartiles(many['ours'], 0, ' ns')} against {with_quartiles(few['ours'], 0, ' ns')}; "
        f"in units of the bare loop {growth:.2f} x",
        growth <= 1.2,
    )


def khz(bench: Workbench) -> Iterator[Row]:
    """Sampling at 1 kHz."""
    seconds = bench.pick(10, 3)
    with TrackedRun(bench, [bench.work, "sleepers", 3], "--st", "0.001") as run:
        run.stdout.readline()
        time.sleep(1)
        pids = [pid for main in run.command_pids() for pid in [main, *children(main)]]
        with open(run.live, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as live:
            seen = samples_taken(live)
            cpu_ns, start_ns = run.collector_cpu_ns(), time.monotonic_ns()
            times_ns: list[int] = []
            while time.monotonic_ns() < start_ns + seconds * 10**9:
                # The ring holds a second of samples.
                time.sleep(0.2)
                now = samples_taken(live)
                times_ns += [sample_time_ns(live, number) for number in range(seen, now)]
                seen = now
            percent = 100 * (run.collector_cpu_ns() - cpu_ns) / (time.monotonic_ns() - start_ns)
        limit = 100 * float(output([bench.work, "bare", seconds, 1000, *pids]).split()[1])
    yield khz_row(seconds, limit, percent, times_ns)


def off_grid_us(times_ns: Sequence[int]) -> list[float]:
    """How far each sample is from its tick, ascending.

    The ticks are 1 ms apart. Their phase is not known; it is the one that makes the median distance smallest.
    """

    def distances(phase_ns: int) -> list[int]:
        return [abs((stamp - phase_ns + TICK_NS // 2) % TICK_NS - TICK_NS // 2) for stamp in times_ns]

    phase_ns = min(range(0, TICK_NS, GRID_STEP_NS), key=lambda phase_ns: statistics.median(distances(phase_ns)))
    return sorted(distance / 1000 for distance in distances(phase_ns))


def khz_row(seconds: int, limit_percent: float, percent: float, times_ns: Sequence[int]) -> Row:
    """Compares with a loop that wakes up as often and reads the same."""
    jitter_us = off_grid_us(times_ns)
    rate = (len(times_ns) - 1) / ((times_ns[-1] - times_ns[0]) / 1e9)
    middle, high = jitter_us[len(jitter_us) // 2], jitter_us[len(jitter_us) * 99 // 100]
    return Row(
        f"sampling at 1 kHz, 4 processes, {seconds} s",
        f"a loop that wakes up as often, and reads clock, stat and statm: {limit_percent:.1f}%",
        "3% of one core",
        f"{percent:.1f}%; {rate:.0f} samples a second; off the grid: median {middle:.0f} us, p99 {high:.0f} us",
        percent <= 3,
    )


def memory(bench: Workbench) -> Iterator[Row]:
    """Memory of collector and launcher."""
    yield memory_row(sampling(bench, 500).resident)


def memory_row(resident: Resident) -> Row:
    """Judges PSS, which counts a page that both processes map once."""
    return Row(
        "resident memory of collector and launcher, 500 processes",
        "",
        "8 MB",
        f"{resident.pss_bytes / 1e6:.1f} MB with shared pages counted once (PSS); sum of RSS "
        f"{resident.rss_bytes / 1e6:.1f} MB; private {resident.private_bytes / 1e6:.1f} MB",
        resident.pss_bytes <= 8e6,
    )


def dirty(bench: Workbench) -> Iterator[Row]:
    """Memory that no other process shares."""
    costs = sampling(bench, 200)
    yield dirty_row(costs.resident.dirty_bytes - costs.launcher.dirty_bytes, costs.launcher.dirty_bytes)


def dirty_row(collector_bytes: int, launcher_bytes: int) -> Row:
    """Judges each process by itself."""
    return Row(
        "private dirty memory, 200 processes",
        "",
        "collector 1.5 MB, launcher 0.45 MB",
        f"collector {collector_bytes / 1e6:.2f} MB, launcher {launcher_bytes / 1e6:.2f} MB",
        collector_bytes <= 1.5e6 and launcher_bytes <= 0.45e6,
    )
