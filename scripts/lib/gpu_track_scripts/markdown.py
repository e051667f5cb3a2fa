"""Writes Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence


def row(cells: Sequence[str]) -> str:
    """A line of a table. A `|` within a cell must be escaped already."""
    return "| " + " | ".join(cells) + " |"


def header(cells: Sequence[str]) -> str:
    """The two lines that begin a table."""
    return row(cells) + "\n|" + "---|" * len(cells)
