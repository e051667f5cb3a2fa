"""The requirements check passes a complete repository, and names each fault of a wrong one."""

from __future__ import annotations

import contextlib
import io
import unittest
from pathlib import Path

from gpu_track_scripts.checks import requirements

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures/requirements"


def check(root: Path) -> tuple[int, list[str]]:
    """Status and lines of the check on a repository."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        status = requirements.main(["--root", str(root)])
    return status, output.getvalue().splitlines()


class Requirements(unittest.TestCase):
    def test_complete_repository_passes_and_counts_untested_rows(self) -> None:
        status, lines = check(FIXTURES / "complete")
        expected = (
            "check-requirements: 4 requirements, 1 of them untested with a reason; 5 tests carry an id; 0 problems"
        )
        self.assertEqual((status, lines), (0, [expected]))

    def test_every_fault_is_named(self) -> None:
        status, lines = check(FIXTURES / "wrong")
        self.assertEqual(status, 1)
        self.assertEqual(
            lines[:-1],
            [
                "tests/requirements/cpu.md:5: CPU-1 is already defined in tests/requirements/all.md:3",
                "tests/requirements/untested.md:4: no row in tests/requirements defines RAM-9",
                "tests/cpu.rs:1: no row in tests/requirements defines CPU-7",
                "tests/cpu.rs:5: RAM-1 has a test, but tests/requirements/untested.md:3 calls it untested",
                "tests/cpu.rs:9: no test follows this tag",
                "tests/cpu.rs:12: no test follows this tag",
                "tests/cpu.rs:17: `cpu one` is no requirement's id",
                "tests/requirements/all.md:4: no test carries OUT-1; "
                "write `// Requirement: ID` above one, or the reason into tests/requirements/untested.md",
            ],
        )

    def test_repository_without_requirements_is_an_error(self) -> None:
        self.assertEqual(check(FIXTURES)[0], 2)


if __name__ == "__main__":
    unittest.main()
