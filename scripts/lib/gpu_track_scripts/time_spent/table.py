"""Compares case by case and prints the table."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Callable, Sequence

from gpu_track_scripts import markdown
from gpu_track_scripts.time_spent.cases import Case
from gpu_track_scripts.time_spent.compare import Comparison, compare, said, shares_of
from gpu_track_scripts.time_spent.runner import Failed, Outcome
from gpu_track_scripts.time_spent.truth import Truth, percent
from gpu_track_scripts.tools import Unavailable

HEADS = ["run", "wall s", "samples", "state: report's % / truth's %", "verdict", "held", "not held"]
# A state with less is not shown in the row.
SHOWN = 0.01


@dataclasses.dataclass
class Tally:
    """How the cases ended."""

    compared: int = 0
    held: int = 0
    # Details of what did not hold.
    notes: list[str] = dataclasses.field(default_factory=list)
    skipped: list[str] = dataclasses.field(default_factory=list)
    failed: list[str] = dataclasses.field(default_factory=list)

    def add(self, case: Case, comparisons: Sequence[Comparison]) -> None:
        """Counts a run's comparisons."""
        self.compared += len(comparisons)
        self.held += sum(comparison.holds for comparison in comparisons)
        broken = [comparison for comparison in comparisons if not comparison.holds]
        self.notes += [f"not held: {case.name}: {comparison.text()}" for comparison in broken]
        if broken:
            self.notes.append(f"  its command: {described(case)}")

    def text(self) -> str:
        """What stands below the table."""
        counts = f"{self.held} of {self.compared} comparisons held"
        counts += f", {len(self.skipped)} runs skipped, {len(self.failed)} failed"
        return "\n".join([*self.notes, *self.skipped, *self.failed, counts])

    def status(self) -> int:
        """1 if a comparison did not hold, or a run failed."""
        return int(self.held < self.compared or bool(self.failed))


def described(case: Case) -> str:
    """What a case runs."""
    pool = f"--pool {case.pool} " if case.pool else ""
    return f"phases {pool}{' '.join(case.phases)}" if case.phases else " ".join(case.command)


def shares_text(found: dict[str, float], known: Truth) -> str:
    """Both shares of each state that is of some size in one of them."""
    parts = []
    for state, share in found.items():
        truth = known.shares.get(state)
        if max(share, truth.low if truth else 0) < SHOWN:
            continue
        parts.append(f"{state}: {percent(share)} / {truth.text() if truth else '?'}")
    return ", ".join(parts)


def cells(case: Case, outcome: Outcome, comparisons: Sequence[Comparison]) -> list[str]:
    """The columns of HEADS."""
    report = outcome.report
    broken = [comparison.what for comparison in comparisons if not comparison.holds]
    if report is None:
        known = outcome.known.shares.items()
        shown = ", ".join(f"{state}: {share.text()}" for state, share in known if share.high >= SHOWN)
        return [case.name, f"{outcome.wall_s:.1f}", "", shown, "", "", ""]
    return [
        case.name,
        f"{outcome.wall_s:.1f}",
        str(report["n_samples"]),
        shares_text(shares_of(report), outcome.known),
        said(report["verdict"]),
        f"{len(comparisons) - len(broken)} of {len(comparisons)}",
        ", ".join(broken) or "-",
    ]


def print_table(cases: Sequence[Case], run: Callable[[Case], Outcome]) -> Tally:
    """Prints a row as soon as its case has run."""
    print(markdown.header(HEADS), flush=True)
    tally = Tally()
    for case in cases:
        try:
            outcome = run(case)
        except Unavailable as reason:
            tally.skipped.append(f"skipped: {case.name}: {reason}")
        except (Failed, subprocess.CalledProcessError) as reason:
            tally.failed.append(f"failed: {case.name}: {reason}")
        else:
            comparisons: list[Comparison] = []
            if outcome.report is not None:
                may_be_unknown = bool(case.command)
                comparisons = compare(outcome.report, outcome.wall_s, outcome.known, may_be_unknown=may_be_unknown)
            tally.add(case, comparisons)
            print(markdown.row(cells(case, outcome, comparisons)), flush=True)
    print()
    print(tally.text())
    return tally
