"""Descriptors that the module keeps open in the user's program.

They have high numbers. A program that closes all of its own, as a daemon does, then hardly gets one of these numbers
for a file of its own, in which our lines would land.
"""

from __future__ import annotations

import fcntl
import os
import resource

_OURS = 128
_MOST = 1024


def high(descriptor: int) -> int:
    """Moves a descriptor to a high number. Raises OSError if none is free; it is closed in any case."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST if soft == resource.RLIM_INFINITY else min(soft, _MOST)
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, max(most - _OURS, 3))
    finally:
        os.close(descriptor)


def identity(descriptor: int) -> tuple[int, int] | None:
    """What tells the file of a descriptor from others. None: it is no descriptor."""
    if descriptor < 0:
        return None
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino
