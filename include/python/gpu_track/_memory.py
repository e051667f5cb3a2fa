"""Resident memory of this process, as the kernel tells it."""

from __future__ import annotations

from dataclasses import dataclass

# Why a figure of `Memory` is None.
UNREADABLE = "/proc/self/status does not tell it"


@dataclass
class Memory:
    """Resident memory of this process, bytes: now, and the most since it was started. None: not known."""

    rss_bytes: int | None
    most_bytes: int | None

    @classmethod
    def now(cls) -> Memory:
        """Reads it from /proc/self/status."""
        fields: dict[str, int] = {}
        try:
            with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
                for line in file:
                    name, _, value = line.partition(":")
                    if name in {"VmRSS", "VmHWM"}:
                        fields[name] = int(value.split()[0]) * 1024
        except OSError:
            pass
        return cls(fields.get("VmRSS"), fields.get("VmHWM"))
