"""What root takes from its environment (`su -m`, `sudo -E`): nothing that another user can replace.

The rule is that of gpu-track-run (safe_path.rs): root owns each directory of the path, and only root can write to it,
or it has the sticky bit. For any other user the environment is the user's own.
"""

from __future__ import annotations

import os
import stat
import tempfile

# What a user namespace shows for users that it does not map.
_UNMAPPED = 65534
_PREFIX = "gpu-track-py."


def is_root() -> bool:
    """Whether this is the machine's root or a container's, and not a user that its own user namespace maps to 0."""
    return os.geteuid() == 0 and os.stat("/").st_uid != _UNMAPPED


def path(named: str) -> str | None:
    """The path to use for one that the environment names. None: another user could replace what it stands for.

    For root its directories are no links: a link in another user's directory could lead elsewhere by then.
    """
    if not is_root():
        return named
    directory, name = os.path.split(os.path.abspath(named))
    resolved = os.path.realpath(directory)
    if not (_is_safe(resolved) and _is_safe(os.path.realpath(named))):
        return None
    return named if resolved == directory else os.path.join(resolved, name)


def _is_safe(resolved: str) -> bool:
    """Whether no other user can change a file or directory, or a directory above it. What is missing does not count."""
    owners = {0, os.stat("/").st_uid}
    while resolved != "/":
        try:
            found = os.lstat(resolved)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError:
            return False
        else:
            is_sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
            if found.st_uid not in owners or (found.st_mode & 0o022 and not is_sticky):
                return False
        resolved = os.path.dirname(resolved)
    return True


def temporary_directory() -> tempfile.TemporaryDirectory[str]:
    """A new directory for temporary files, which is removed at the end of a `with`."""
    return tempfile.TemporaryDirectory(prefix=_PREFIX, dir=_place())


def new_directory() -> str:
    """A new directory for temporary files, which the caller removes."""
    return tempfile.mkdtemp(prefix=_PREFIX, dir=_place())


def _place() -> str | None:
    """Where temporary directories are made. None: where Python makes them.

    Raises FileNotFoundError if root has no place for them that no other user can replace.
    """
    if not is_root():
        return None
    # As Python's tempfile: what the program has set, the variables, and directories that are there.
    variables = [os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP")]
    for directory in (tempfile.tempdir, *variables, "/tmp", "/var/tmp", "/usr/tmp"):
        place = path(os.fsdecode(directory)) if directory else None
        if place is not None and os.path.isdir(place):
            return place
    raise FileNotFoundError("root has no directory for temporary files that no other user can replace")
