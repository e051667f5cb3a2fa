"""Figures as short texts, for notebooks and messages."""

from __future__ import annotations

UNKNOWN = "n/a"
# Most characters of a name that a line has.
_MOST_OF_NAME = 40


def one_line(text: str) -> str:
    """A text without line breaks and other control characters, which a terminal or a frontend would obey."""
    return "".join(character if character.isprintable() else " " for character in text)


def short_name(name: str) -> str:
    """A name in one line, cut if it is long."""
    name = one_line(name)
    return name if len(name) <= _MOST_OF_NAME else f"{name[: _MOST_OF_NAME - 1]}…"


def number_text(value: float | None) -> str:
    """A number of four digits, or a whole one that is not too long."""
    if value is None:
        return UNKNOWN
    return f"{value:.0f}" if value == round(value) and abs(value) < 1e9 else f"{value:.4g}"


def bytes_text(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    for unit in ("B", "kB", "MB", "GB"):
        # 999.5 would be shown as 1e+03.
        if abs(value) < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB" if value < 999.5 else f"{value:.0f} TB"


def change_text(value: float | None) -> str:
    """A number of bytes that are more or less than before."""
    return bytes_text(value) if value is None or value < 0 else f"+{bytes_text(value)}"


def percent_text(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f}%"


def seconds_text(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    if value < 59.95:
        return f"{value:.3g} s"
    minutes, seconds = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"
