"""Prints what the checks find, and keeps which of them failed."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class Results:
    """The lines of the output, one for each check."""

    failures: list[str] = dataclasses.field(default_factory=list)

    def check(self, what: str, is_right: bool, detail: str) -> None:
        """A figure that is right or wrong."""
        print(f"{'ok  ' if is_right else 'FAIL'} {what}: {detail}")
        if not is_right:
            self.failures.append(what)

    @staticmethod
    def skip(what: str, reason: str) -> None:
        """A check that can't be made here."""
        print(f"skip {what}: {reason}")

    @staticmethod
    def note(text: str) -> None:
        """Something to read that is no check."""
        print(f"     {text}")
