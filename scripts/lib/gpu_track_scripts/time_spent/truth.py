"""What is known of a run without gpu-track-run."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

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


def percent(share: float) -> str:
    """A share in percent."""
    return f"{100 * share:.1f}"


@dataclasses.dataclass(frozen=True)
class Share:
    """Between which bounds a share lies. They are the same where it was measured."""

    low: float
    high: float

    def off(self, share: float) -> float:
        """How far a share is outside."""
        return max(self.low - share, share - self.high, 0.0)

    def text(self) -> str:
        """In percent."""
        return percent(self.low) + (f" to {percent(self.high)}" if self.low < self.high else "")

    def most_uncertain(self) -> float:
        """The share within the bounds whose sampling error is largest."""
        return min(max(self.low, 0.5), self.high)


@dataclasses.dataclass(frozen=True)
class Truth:
    """The shares of a run's wall time by state, and more where it is known."""

    # The states that are known. None: no state is.
    shares: dict[str, Share]
    # The verdict's kind and command, where the program does not measure itself.
    verdict: tuple[str, str] | None = None
    # Cores in use while any thread computes.
    cores: float | None = None

    def leader(self) -> tuple[str, float] | None:
        """The state with the largest share, where all shares are measured."""
        if len(self.shares) < len(STATES):
            return None
        state = max(self.shares, key=lambda state: self.shares[state].low)
        return state, self.shares[state].low


NOTHING = Truth({})


def of_phases(record: dict[str, Any], *, waiting_by_schedstat: bool = False) -> Truth:
    """Adds up what a program measured of its phases, all of its seconds.

    A phase that computes takes what is left of its time as waiting for a core. With `waiting_by_schedstat` it is what
    the kernel counted; that counts each thread alone, so it is for programs with one thread.
    """
    phases = record["phases"]
    seconds: dict[str, float] = collections.defaultdict(float)
    for phase in phases:
        seconds["computing"] += phase["computing_s"]
        queued_s = phase["queued_s"]
        by_schedstat = waiting_by_schedstat and queued_s is not None
        seconds["waiting_for_core"] += queued_s if by_schedstat and queued_s is not None else phase["waiting_s"]
        if phase["state"] != "computing":
            seconds[phase["state"]] += phase["state_s"]
    wall_s = phases[-1]["end_s"] - phases[0]["begin_s"]
    shares = {state: seconds[state] / wall_s for state in STATES}
    cores = None
    if seconds["computing"] > 0:
        cores = sum(phase["cpu_s"] for phase in phases) / seconds["computing"]
    return Truth({state: Share(share, share) for state, share in shares.items()}, cores=cores)


def of_pipeline(cpu_s: float, wall_s: float, programs: int, verdict: tuple[str, str]) -> Truth:
    """What the CPU time of some programs with one thread each says: they computed one by one, or at once."""
    high = min(cpu_s / wall_s, 1.0)
    return Truth({"computing": Share(high / programs, high)}, verdict)
