"""How gpu-check starts itself again: the processes that are tracked are parts of the same program."""

from __future__ import annotations

import pathlib
import sys

PROGRAM = pathlib.Path(__file__).resolve().parents[3] / "gpu-check"

MIB = 1 << 20
# Even an import of PyTorch from a cold disk takes less.
PART_AT_MOST_S = 120
# Several processes, started one after another.
PARTS_AT_MOST_S = 300
# How long `spin` keeps the device busy.
BUSY_S = 6


def part_command(part: str, *arguments: object) -> list[str]:
    """The command line of a part."""
    return [sys.executable, str(PROGRAM), part, *map(str, arguments)]
