"""Statistics of repeated measurements of several sides, for example of a program with and without tracking."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

# The measurements of each side, in the order of the rounds.
BySide = Mapping[str, Sequence[float]]
Measured = TypeVar("Measured")


def with_quartiles(values: Iterable[float], digits: int = 1, unit: str = "") -> str:
    """The median as text, with the lower and upper quartile in brackets if there is more than one value."""
    numbers = list(values)
    if len(numbers) < 2:
        return f"{numbers[0]:.{digits}f}{unit}"
    low, middle, high = statistics.quantiles(numbers, n=4, method="inclusive")
    return f"{middle:.{digits}f}{unit} [{low:.{digits}f}, {high:.{digits}f}]"


def interleave(sides: Sequence[str], rounds: int, measure: Callable[[str], Measured]) -> dict[str, list[Measured]]:
    """Measures each side once a round and gives the results by side.

    Each round starts with another side, so a disturbance of the machine affects all sides alike.
    """
    results: dict[str, list[Measured]] = {side: [] for side in sides}
    for turn in range(rounds):
        shift = turn % len(sides)
        for side in [*sides[shift:], *sides[:shift]]:
            results[side].append(measure(side))
    return results


def differences(figures: BySide, one: str, other: str) -> list[float]:
    """`one` minus `other`, round by round."""
    return [a - b for a, b in zip(figures[one], figures[other])]


def ratios(figures: BySide, one: str, other: str) -> list[float]:
    """`one` divided by `other`, round by round."""
    return [a / b for a, b in zip(figures[one], figures[other])]
