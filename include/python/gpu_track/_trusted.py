"""What root takes from its environment (`su -m`, `sudo -E`): nothing that another user can replace.

The rule is that of gpu-track-run (safe_path.rs): root owns each directory of the path, and only root can write to it,
or it has the sticky bit. For any other user the environment is the user's own.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile

# What a user namespace shows for users that it does not map.
_UNMAPPED = 65534
_PREFIX = "gpu-track-py."


def is_root() -> bool:
    """Whether this is the machine's root or a container's, and not a user that its own user namespace maps to 0."""
    return os.geteuid() == 0 and os.stat("/").st_uid != _UNMAPPED


def path(named: str, *, is_made: bool = False) -> str | None:
    """The path to use for one that the environment names. None: another user could replace what it stands for.

    For root its directories are no links: a link in another user's directory could lead elsewhere by then. `is_made`:
    it is a file that is made if it is missing, by the rules of `open_file`.
    """
    if not is_root():
        return named
    directory, name = os.path.split(os.path.abspath(named))
    resolved = os.path.realpath(directory)
    place = os.path.join(resolved, name)
    # A link itself, and what it leads to.
    if not (_is_safe(place, is_made=is_made) and _is_safe(os.path.realpath(place), is_made=is_made)):
        return None
    return named if resolved == directory else place


def _is_safe(place: str, *, is_made: bool) -> bool:
    """Whether no other user can change a file or directory, or a directory above it, or make one that is missing."""
    owners = (0, os.stat("/").st_uid)
    is_missing = False
    while place != "/":
        try:
            found = os.lstat(place)
        except (FileNotFoundError, NotADirectoryError):
            is_missing = not is_made
        except OSError:
            return False
        else:
            is_writable = found.st_mode & 0o022 and not stat.S_ISLNK(found.st_mode)
            # With the sticky bit, other users replace nothing that is there.
            is_sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX and not is_missing
            if found.st_uid not in owners or (is_writable and not is_sticky):
                return False
            is_missing = False
        is_made = False
        place = os.path.dirname(place)
    return True


def temporary_directory() -> tempfile.TemporaryDirectory[str]:
    """A new directory for temporary files, which is removed at the end of a `with`."""
    return tempfile.TemporaryDirectory(prefix=_PREFIX, dir=_place())


def new_directory() -> str:
    """A new directory for temporary files, which the caller removes."""
    return tempfile.mkdtemp(prefix=_PREFIX, dir=_place())


def remove_directory(directory: str) -> None:
    """Removes such a directory, in several attempts if a gpu-track-run that ends writes its report there meanwhile."""
    for _ in range(10):
        shutil.rmtree(directory, ignore_errors=True)
        if not os.path.exists(directory):
            break


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
