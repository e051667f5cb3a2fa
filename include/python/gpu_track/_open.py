"""Opens files that users name, by the rules of gpu-track-run's `-o`.

In a directory with the sticky bit where all users may write, such as /tmp, another user's link is not followed, and
another user's file not written to. These are the kernel's rules (fs.protected_symlinks, fs.protected_regular;
proc_sys_fs(5)). They hold here whether the machine has them on or not. Nothing waits for the other end of a fifo.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from types import TracebackType

# The kernel's limit (path_resolution(7)).
_MOST_LINKS = 40
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_NEVER_WAITS = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Place:
    """What a path leads to: a name in a directory, which is open. The path is resolved as the kernel does it."""

    def __init__(self, path: str) -> None:
        """Raises PermissionError for another user's link where all users may write, and OSError as the kernel."""
        self.path = path
        # What has the name. None: nothing.
        self.found: os.stat_result | None = None
        # The name is one of /proc, such as 1 behind /dev/stdout: a link that stands for an open file.
        self.is_in_proc = False
        self.directory = os.open("/" if os.path.isabs(path) else ".", _DIRECTORY)
        try:
            self.name = self._resolve(_names(path))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Place:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Gives the directory back."""
        os.close(self.directory)

    def _resolve(self, names: list[str]) -> str:
        """Enters each directory of these names, the last first, and gives the name in the last one."""
        links = 0
        proc = _device_of_proc()
        while names:
            name = names.pop()
            if name == "..":
                self._enter(name, 0)
                continue
            self.is_in_proc = os.fstat(self.directory).st_dev == proc
            try:
                # The kernel follows links of /proc: they stand for files and directories that need not have a name.
                found = os.stat(name, dir_fd=self.directory, follow_symlinks=self.is_in_proc)
            except FileNotFoundError:
                if names:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.path) from None
                return name
            if stat.S_ISLNK(found.st_mode):
                self._refuse_foreign(found)
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), self.path)
                target = os.readlink(name, dir_fd=self.directory)
                if os.path.isabs(target):
                    self._enter("/", 0)
                names += _names(target)
            elif names:
                self._enter(name, 0 if self.is_in_proc else os.O_NOFOLLOW)
            else:
                self.found = found
                return name
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.path)

    def _enter(self, name: str, flags: int) -> None:
        directory = os.open(name, _DIRECTORY | flags, dir_fd=self.directory)
        os.close(self.directory)
        self.directory = directory

    def _refuse_foreign(self, found: os.stat_result) -> None:
        """Raises PermissionError if this is another user's, neither this one's nor that of a directory of all users."""
        directory = os.fstat(self.directory)
        is_shared = directory.st_mode & stat.S_ISVTX and directory.st_mode & stat.S_IWOTH
        if is_shared and found.st_uid not in (os.geteuid(), directory.st_uid):
            is_link = stat.S_ISLNK(found.st_mode)
            cure = "name the file that it leads to" if is_link else "give another name"
            kind = "link" if is_link else "file"
            problem = f"it is a {kind} of user {found.st_uid}, in a directory where all users may write: {cure}"
            raise PermissionError(errno.EACCES, problem, self.path)

    def open(self, flags: int, mode: int = 0o666) -> int:
        """Opens what has the name, without waiting for the other end of a fifo.

        Raises PermissionError if it is written to and is another user's where all users may write.
        """
        flags |= _NEVER_WAITS if self.is_in_proc else _NEVER_WAITS | os.O_NOFOLLOW
        descriptor = os.open(self.name, flags, mode, dir_fd=self.directory)
        try:
            found = os.fstat(descriptor)
            if flags & os.O_ACCMODE != os.O_RDONLY and stat.S_ISREG(found.st_mode) and not self.is_in_proc:
                self._refuse_foreign(found)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def open_file(path: str, flags: int) -> int:
    """Opens a regular file, or makes it. Raises OSError for what is none, and as `Place` and `Place.open`."""
    with Place(path) as place:
        # A device can do something when it is opened. What has taken the name since is looked at behind that.
        if place.found is not None and not flags & os.O_EXCL:
            _check(place.found, path)
        descriptor = place.open(flags)
    try:
        _check(os.fstat(descriptor), path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def remove(path: str) -> None:
    """Removes a file. Raises as `Place`."""
    with Place(path) as place:
        os.unlink(place.name, dir_fd=place.directory)


def read(path: str, most: int) -> bytes:
    """Reads a regular file, or an open pipe such as that of a shell's `<(COMMAND)`, of at most so many bytes.

    Raises OSError for another kind, and for a larger one.
    """
    with Place(path) as place:
        if place.found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        is_open_pipe = place.is_in_proc and stat.S_ISFIFO(place.found.st_mode)
        if not is_open_pipe:
            _check(place.found, path)
        descriptor = place.open(os.O_RDONLY)
    with open(descriptor, "rb") as file:
        if is_open_pipe:
            os.set_blocking(descriptor, True)
        else:
            _check(os.fstat(descriptor), path)
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes, the most that are read", path)
    return content


def _check(found: os.stat_result, path: str) -> None:
    """Raises OSError if it is no regular file."""
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, f"it is {'a fifo' if stat.S_ISFIFO(found.st_mode) else 'no file'}", path)


def _names(path: str) -> list[str]:
    """The names in a path, the last one first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _device_of_proc() -> int | None:
    """The number of the file system at /proc, if there is one."""
    with contextlib.suppress(OSError):
        return os.stat("/proc").st_dev
    return None
