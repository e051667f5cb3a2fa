"""Compares workload by workload and prints the table."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Callable, Sequence

from gpu_track_scripts import markdown
from gpu_track_scripts.tools import Unavailable
from gpu_track_scripts.truth.compare import HEADS, Row
from gpu_track_scripts.truth.runner import TRIES, Failed, NoTruth
from workloads import Workload


@dataclasses.dataclass
class Tally:
    """How the workloads ended."""

    right: int = 0
    short: int = 0
    # One line for each workload.
    skipped: list[str] = dataclasses.field(default_factory=list)
    without_truth: list[str] = dataclasses.field(default_factory=list)
    failed: list[str] = dataclasses.field(default_factory=list)
    # Details of those whose figures are off.
    notes: list[str] = dataclasses.field(default_factory=list)

    def add(self, row: Row) -> None:
        """Counts a workload that was compared."""
        if row.broken_rules():
            self.short += 1
        else:
            self.right += 1
        self.notes += row.notes()

    def text(self) -> str:
        """What stands below the table."""
        counts = (
            f"{self.right} right, {self.short} short, {len(self.skipped)} skipped, "
            f"{len(self.without_truth)} without a truth, {len(self.failed)} failed"
        )
        return "\n".join([*self.notes, *self.skipped, *self.without_truth, *self.failed, counts])

    def status(self) -> int:
        """1 if a figure is off, a workload failed, or nothing could be compared for lack of a truth."""
        return int(bool(self.short or self.failed or (self.without_truth and not self.right)))


def print_table(workloads: Sequence[Workload], compare: Callable[[Workload], Row], *, only_broken: bool) -> Tally:
    """Prints a row as soon as its workload has run; of many random trees, only the rows that break a rule."""
    print(markdown.header(HEADS), flush=True)
    tally = Tally()
    for workload in workloads:
        try:
            row = compare(workload)
        except Unavailable as reason:
            tally.skipped.append(f"skipped: {workload.name}: {reason}")
        except NoTruth as reason:
            tally.without_truth.append(f"no truth in {TRIES} runs: {workload.name}: {reason}")
        except (Failed, subprocess.CalledProcessError) as reason:
            tally.failed.append(f"failed: {workload.name}: {reason}")
        else:
            tally.add(row)
            if row.broken_rules() or not only_broken:
                print(markdown.row(row.cells()), flush=True)
    print()
    print(tally.text())
    return tally
