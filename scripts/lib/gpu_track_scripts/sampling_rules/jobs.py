"""Jobs that hold a known amount of memory, and the rules that are switched off in turn."""

from __future__ import annotations

from dataclasses import dataclass

MB = 1_000_000
MIB = 1 << 20


@dataclass(frozen=True)
class Job:
    """A program of tests/programs with its arguments, and what it holds at its largest."""

    name: str
    command: tuple[str, ...]
    held_bytes: int
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rule:
    """A rule of SamplingPolicy, and the fields that switch it off."""

    name: str
    off: dict[str, int]


JOBS = [
    Job("8 children hold 200 MB for 30 ms", ("touch", "together", "8", "200000000", "30"), 1600 * MB),
    Job("the same, --st 1", ("touch", "together", "8", "200000000", "30"), 1600 * MB, ("--st", "1")),
    Job("8 children grow to 200 MB and end", ("touch", "together", "8", "200000000", "0"), 1600 * MB),
    Job("8 children of 50 MB end 4 ms apart", ("touch", "in_turn", "8", "50000000", "4"), 400 * MB),
    Job("5 shared maps of 100 MiB, held 0.1 s", ("share", "maps", "5", str(100 * MIB), "4", "0.1"), 500 * MIB),
    Job("the same, growing for 0.2 s", ("share", "growing", "5", str(100 * MIB), "4", "0.2"), 500 * MIB),
    Job(
        "6 static children hold 30 MB for 15 ms",
        ("touch.static", "together", "6", "30000000", "15"),
        180 * MB,
    ),
    Job(
        "the same 6 static children, --st 1",
        ("touch.static", "together", "6", "30000000", "15"),
        180 * MB,
        ("--st", "1"),
    ),
    Job(
        "static program, 100 MB for 15 ms, --st 1",
        ("touch.static", "hold", "100000000", "15"),
        100 * MB,
        ("--st", "1"),
    ),
]

RULES = [
    Rule("none", {}),
    Rule("programs that have not reported are sampled every 3 to 10 ms", {"unreported_rest_ns": 0}),
    Rule("growing trees are sampled every 25 ms", {"growing_ns": 0}),
    Rule("large ends delay a sample", {"together_ns": 0}),
    Rule("early sample at 8,192 waiting intervals", {"most_waiting": 1 << 40}),
]


def is_right(reported: float | None, held_bytes: int) -> bool:
    """Whether a reported peak is within 2% of what was held, or 8 MB: the programs themselves have up to 1 MB each."""
    return reported is not None and abs(reported - held_bytes) <= max(held_bytes * 0.02, 8 * MB)


def share_right(peaks: list[float | None], held_bytes: int) -> str:
    """How many of the peaks are right, and the worst error."""
    right = sum(is_right(peak, held_bytes) for peak in peaks)
    errors = [((peak or 0) - held_bytes) / held_bytes * 100 for peak in peaks]
    worst = max(errors, key=abs)
    return f"{right} of {len(peaks)}, {worst:+.0f}%"
