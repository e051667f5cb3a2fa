"""Compares a report's section `time_spent` with the truth."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from gpu_track_scripts.time_spent.truth import STATES, Share, Truth, percent

# What every share may be off.
SHARE = 0.05
# From this wall time on, a share may be off no more than that, however few samples there were.
LONG_S = 20.0
# What the sum of the shares may be off.
SUM = 1e-6
# Below this, a state is unknown rarely enough.
UNKNOWN = 0.03
# A state with this share must be the verdict.
CLEAR = 0.6
# A verdict needs so many samples, and so long a run.
VERDICT_SAMPLES = 20
VERDICT_S = 1.0
# What the number of cores may be off, in parts of it.
CORES = 0.15
# A run that computes on no more cores is serial.
SERIAL_CORES = 1.1
# Below this share of computing, the number of cores is not compared.
CORES_FROM = 0.2


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One figure, and whether it is right."""

    what: str
    found: str
    wanted: str
    holds: bool

    def text(self) -> str:
        """For below the table."""
        return f"{self.what}: {self.found}, wanted {self.wanted}"


def tolerance(truth: Share, samples: int, wall_s: float) -> float:
    """How far a share may be off: twice its sampling error, and at least SHARE."""
    if wall_s >= LONG_S:
        return SHARE
    share = truth.most_uncertain()
    return max(SHARE, 2 * math.sqrt(share * (1 - share) / max(samples, 1)))


def shares_of(report: dict[str, Any]) -> dict[str, float]:
    """The report's shares by state; a state that it leaves out has none."""
    return dict.fromkeys(STATES, 0.0) | {state["state"]: state["share"] for state in report["states"]}


def compare_form(report: dict[str, Any], wall_s: float) -> list[Comparison]:
    """What holds of each report, whatever ran."""
    states = report["states"]
    names = [state["state"] for state in states]
    total = math.fsum(state["share"] for state in states)
    strange = [name for name in names if name not in STATES or names.count(name) > 1]
    outside = [state["state"] for state in states if not 0 <= state["share"] <= 1]
    # Seconds may be rounded to tenths.
    off = [state["state"] for state in states if abs(state["s"] - state["share"] * wall_s) > 0.06 + 0.01 * wall_s]
    parts = [
        state["state"]
        for state in states
        if any(not 0 <= part["share"] <= state["share"] + SUM for part in state["by_command"])
    ]
    return [
        Comparison("sum of the shares", repr(total), "1", abs(total - 1) <= SUM),
        Comparison("states twice or without a meaning", listed(strange), "-", not strange),
        Comparison("shares that are none", listed(outside), "-", not outside),
        Comparison("seconds that are not the share of the wall time", listed(off), "-", not off),
        Comparison("states of which a command has more than all", listed(parts), "-", not parts),
    ]


def listed(names: list[str]) -> str:
    """Names in a row."""
    return ", ".join(names) or "-"


def compare_shares(report: dict[str, Any], wall_s: float, truth: Truth) -> list[Comparison]:
    """One comparison for each state that is known."""
    found = shares_of(report)
    comparisons = []
    for state, share in truth.shares.items():
        allowed = tolerance(share, report["n_samples"], wall_s)
        comparisons.append(
            Comparison(
                state,
                f"{percent(found[state])} %",
                f"{share.text()} +- {percent(allowed)} %",
                share.off(found[state]) <= allowed,
            )
        )
    return comparisons


def compare_unknown(report: dict[str, Any]) -> Comparison:
    """Of the programs that are known, every state has a name."""
    share = shares_of(report)["unknown"]
    return Comparison("unknown", f"{percent(share)} %", f"below {percent(UNKNOWN)} %", share < UNKNOWN)


def compare_cores(report: dict[str, Any], truth: Truth) -> list[Comparison]:
    """The cores in use, where enough of the time was spent computing."""
    if truth.cores is None or truth.shares["computing"].low < CORES_FROM:
        return []
    found = report["cores_while_computing"]
    holds = found is not None and abs(found - truth.cores) <= CORES * truth.cores
    wanted = f"{truth.cores:.2f} +- {100 * CORES:.0f} %"
    return [Comparison("cores while computing", "none" if found is None else f"{found:.2f}", wanted, holds)]


def compare_verdict(report: dict[str, Any], wall_s: float, truth: Truth) -> list[Comparison]:
    """A state that leads clearly must be the verdict. Else none is, or one that is as good as the leading state."""
    verdict, samples = report["verdict"], report["n_samples"]
    found = said(verdict)
    if samples < VERDICT_SAMPLES or wall_s < VERDICT_S:
        return [Comparison("verdict", found, f"none of {samples} samples in {wall_s:.1f} s", verdict is None)]
    if truth.verdict is not None:
        kind, command = truth.verdict
        holds = verdict is not None and state_of(report, verdict) == kind and program_of(verdict) == command
        return [Comparison("verdict", found, f"{kind} ({command})", holds)]
    leader = truth.leader()
    if leader is None:
        return []
    state, share = leader
    if share >= CLEAR:
        return [Comparison("verdict", found, state, verdict is not None and state_of(report, verdict) == state)]
    good = [
        other
        for other, known in truth.shares.items()
        if known.low > 0 and known.low >= share - tolerance(known, samples, wall_s)
    ]
    # A kind that is no state says that the time is shared.
    found_state = None if verdict is None else state_of(report, verdict)
    holds = found_state is None or found_state not in STATES or found_state in good
    return [Comparison("verdict", found, f"none, shared, or {' or '.join(good)}", holds)]


def state_of(report: dict[str, Any], verdict: dict[str, Any]) -> str:
    """The state that a verdict is about. That one core of several computes is computing, if no more did."""
    is_one_core = (report["cores_while_computing"] or 0) <= SERIAL_CORES
    return "computing" if verdict["kind"] == "serial" and is_one_core else verdict["kind"]


def program_of(verdict: dict[str, Any]) -> str:
    """The name of the program that a verdict is about."""
    words = (verdict["command"] or "").split()
    return words[0].rpartition("/")[2] if words else ""


def said(verdict: dict[str, Any] | None) -> str:
    """A verdict in short."""
    if verdict is None:
        return "none"
    about = program_of(verdict)
    return f"{verdict['kind']} {percent(verdict['share'])} %" + (f" ({about})" if about else "")


def compare(report: dict[str, Any], wall_s: float, truth: Truth, *, may_be_unknown: bool = False) -> list[Comparison]:
    """All comparisons of a run."""
    comparisons = [*compare_form(report, wall_s), *compare_shares(report, wall_s, truth)]
    if not may_be_unknown:
        comparisons.append(compare_unknown(report))
    return [*comparisons, *compare_cores(report, truth), *compare_verdict(report, wall_s, truth)]
