"""Figures as text, in gpu_tracker 5.0.1's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# How words of keys are shown.
_SHOWN = {"ram": "RAM", "gpu": "GPU", "gpus": "GPUs", "cpu": "CPU", "rss": "RSS"}
_CAPITAL = {"max", "unit", "system", "compute", "total", "private", "shared", "main", "descendants", "combined", "mean"}


def _title(key: str, is_leaf: bool) -> str:
    key = key.replace("_", " ").replace("n threads", "number of threads").replace("n expected", "Number of expected")
    words = [_SHOWN.get(word, word.capitalize() if word in _CAPITAL else word) for word in key.split(" ")]
    return "Time" if is_leaf and key == "time" else " ".join(words)


def lines(values: Mapping[str, Any], indent: str = "") -> list[str]:
    """A line for each key, those of an object indented. What is not known is n/a."""
    found = []
    for key, value in values.items():
        if isinstance(value, dict):
            found += [f"{indent}{_title(key, False)}:", *lines(value, indent + "   ")]
        else:
            shown = "n/a" if value is None else f"{float(f'{value:.3f}')}" if isinstance(value, float) else value
            found.append(f"{indent}{_title(key, True)}: {shown}")
    return found
