"""What scripts/time-spent runs: random mixes of phases, and cases of their own."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Callable

from gpu_track_scripts.time_spent import surroundings
from gpu_track_scripts.time_spent.surroundings import Workplace

# The wall time of a mix.
SHORTEST_S, LONGEST_S = 8.0, 25.0
# No phase of a mix is shorter.
PHASE_S = 0.3
# One kind takes so much of half of the mixes, so that they have a verdict.
LEADING_SHARE = (0.65, 0.95)
MAX_POOL = 8
# Where a pipeline leaves what its shell knows of the CPU time.
TIMES = "times"
# Kinds of tests/programs/phases.c. A mix has each state as often, however many kinds it has.
KINDS_BY_STATE = {
    "computing": ("compute", "compute2", "alternate", "innerpipe"),
    "sleeping": ("sleep", "child", "duty"),
    "lock": ("lock",),
    "file_lock": ("flock", "fcntl"),
    "pipe": ("pipe",),
    "network": ("network",),
    "events": ("poll", "epoll", "select"),
    "stopped": ("stop",),
    "storage": ("fsync", "coldfile"),
}

# Starts what a case needs beside it, and gives what stands in front of its command.
Around = Callable[[Workplace], "contextlib.AbstractContextManager[list[str]]"]


def nothing(_: Workplace) -> contextlib.AbstractContextManager[list[str]]:
    """For cases that need nothing beside them."""
    return contextlib.nullcontext([])


@dataclasses.dataclass(frozen=True)
class Case:
    """A run, and what of it is known."""

    name: str
    # Of tests/programs/phases.c.
    phases: tuple[str, ...] = ()
    pool: int = 0
    # Another command, where there are no phases.
    command: tuple[str, ...] = ()
    # Where it is a pipeline: its programs, which have one thread each, and the verdict's kind and command.
    programs: int = 0
    verdict: tuple[str, str] = ("", "")
    around: Around = nothing
    waiting_by_schedstat: bool = False


def random_phase(dice: random.Random, kind: str, seconds: float) -> str:
    """The word for a phase."""
    if kind == "duty":
        return f"duty:{seconds:.2f}:{dice.choice([8, 23, 50, 100, 130])}:{dice.randrange(10, 91, 5)}"
    return f"{kind}:{seconds:.2f}"


def mix(seed: int, *, quick: bool = False) -> Case:
    """Random phases, the same ones for the same seed."""
    dice = random.Random(seed)
    total_s = SHORTEST_S if quick else dice.uniform(SHORTEST_S, LONGEST_S)
    count = dice.randrange(3, 8)
    weights = [dice.uniform(0.2, 1) for _ in range(count)]
    if dice.random() < 0.5:
        share = dice.uniform(*LEADING_SHARE)
        weights[0] = sum(weights[1:]) * share / (1 - share)
    kinds = [dice.choice(KINDS_BY_STATE[dice.choice(list(KINDS_BY_STATE))]) for _ in weights]
    words = [
        random_phase(dice, kind, max(PHASE_S, total_s * weight / sum(weights))) for kind, weight in zip(kinds, weights)
    ]
    dice.shuffle(words)
    pool = dice.randrange(1, MAX_POOL + 1) if dice.random() < 0.33 else 0
    return Case(f"mix of seed {seed}", tuple(words), pool)


def special(*, quick: bool = False) -> list[Case]:
    """The cases beside the mixes."""
    seconds = 6 if quick else 20
    return [
        Case("two computing threads", (f"compute2:{seconds}",), around=surroundings.two_cores),
        Case("one of eight threads computes", (f"compute:{seconds}",), pool=7),
        Case("seven idle threads, one asleep", (f"sleep:{seconds}",), pool=7),
        Case(
            "busy strangers", (f"compute:{seconds / 2}",), around=surroundings.busy_strangers, waiting_by_schedstat=True
        ),
        Case("CPU quota of 30 %", (f"compute:{0.3 * seconds:.1f}",), around=surroundings.quota),
        Case(
            "FUSE file system that delays",
            (f"compute:{seconds / 5}", f"slowread:{seconds}"),
            around=surroundings.slow_file_system,
        ),
        Case(
            "gzip in a pipeline",
            command=("sh", "-c", f"{{ head -c @BYTES@ /dev/zero | gzip -c | cat >/dev/null; }}; times >{TIMES}"),
            programs=3,
            verdict=("computing", "gzip"),
        ),
        Case("2000 short commands", command=("sh", "-c", "for i in $(seq 2000); do /bin/true; done")),
    ]
