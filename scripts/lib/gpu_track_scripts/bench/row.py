"""A row of the table that scripts/bench prints."""

from __future__ import annotations

import dataclasses

from gpu_track_scripts import markdown
from gpu_track_scripts.tools import Unavailable

HEADER = markdown.header(["measured", "held against", "target", "found", ""])


@dataclasses.dataclass(frozen=True)
class Row:
    """One measurement beside its limit."""

    measured: str
    # What the same thing costs at least, measured in the same run.
    held_against: str
    target: str
    found: str
    # None if the row has no target to meet.
    is_met: bool | None

    def line(self, benchmark: str) -> str:
        """The row as Markdown."""
        verdict = {True: "met", False: "**missed**", None: ""}[self.is_met]
        return markdown.row([f"`{benchmark}`: {self.measured}", self.held_against, self.target, self.found, verdict])


def skipped_line(benchmark: str, reason: Unavailable) -> str:
    """The row of a benchmark that was skipped."""
    return markdown.row([f"`{benchmark}`", "", "", f"skipped: {reason}", ""])
