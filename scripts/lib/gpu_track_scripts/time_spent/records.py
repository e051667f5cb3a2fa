"""What is read of gpu-track-run's report and of the truth that tests/programs/phases.c writes."""

from __future__ import annotations

from typing import TypedDict

# In their order: a moment belongs to the first one that holds for any thread.
STATES = (
    "computing",
    "waiting_for_core",
    "storage",
    "swap",
    "network",
    "gpu",
    "file_lock",
    "lock",
    "pipe",
    "terminal",
    "events",
    "sleeping",
    "stopped",
    "unknown",
)


class ByCommand(TypedDict):
    """A command's part of a state."""

    command: str
    share: float


class State(TypedDict):
    """One state of the report."""

    state: str
    share: float
    s: float
    by_command: list[ByCommand]


class Verdict(TypedDict):
    """What the report concludes."""

    kind: str
    share: float
    command: str | None
    text: str
    next_step: str | None


class TimeSpent(TypedDict):
    """The report's section on where the time went."""

    basis: str
    n_samples: int
    states: list[State]
    cores_while_computing: float | None
    verdict: Verdict | None


class Phase(TypedDict):
    """What the program measured of a phase. Its head says what the times mean."""

    kind: str
    state: str
    begin_s: float
    end_s: float
    computing_s: float
    waiting_s: float
    state_s: float
    cpu_s: float
    queued_s: float | None


class Phases(TypedDict):
    """What the program writes."""

    pid: int
    phases: list[Phase]
