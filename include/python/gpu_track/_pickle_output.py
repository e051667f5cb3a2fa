"""The file of a pickle: it is refused before the command runs, and replaced as a whole when that is over."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from types import TracebackType

# What the name of a new file begins with until all of it is written.
_TEMPORARY = ".gpu-track-py."


class PickleOutput:
    """A writable file. This user's is replaced, unless it is stdout or has another name. Others are written to."""

    def __init__(self, path: str) -> None:
        """Raises OSError if it can't be written. A FIFO waits for its reader here, and stays open."""
        if not os.path.basename(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        # A symbolic link stays one, also where there is no file behind it yet.
        self._target = os.path.realpath(path)
        # That of the file that is replaced.
        self._mode: int | None = None
        # A file that is written to, and not replaced.
        self._open: int | None = None
        with contextlib.suppress(FileNotFoundError):
            self._open = os.open(path, os.O_WRONLY)
        try:
            if self._open is None or self._is_own_file(self._open):
                self._try_to_replace(path)
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __enter__(self) -> PickleOutput:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open is not None:
            os.close(self._open)
            self._open = None

    def write(self, content: bytes) -> None:
        """Writes it. Raises OSError if that fails. A file that would have been replaced is as it was then."""
        if self._open is not None:
            if stat.S_ISREG(os.fstat(self._open).st_mode):
                os.ftruncate(self._open, 0)
            with open(self._open, "wb", closefd=False) as file:
                file.write(content)
            return
        temporary, descriptor = self._create()
        try:
            with open(descriptor, "wb") as file:
                if self._mode is not None:
                    os.fchmod(descriptor, self._mode)
                file.write(content)
            os.replace(temporary, self._target)
        except BaseException:
            os.remove(temporary)
            raise

    def _is_own_file(self, descriptor: int) -> bool:
        found = os.fstat(descriptor)
        is_stdout = False
        with contextlib.suppress(OSError):
            is_stdout = os.path.samestat(found, os.fstat(1))
        # Where it is open or has another name, the pickle must be seen there, too.
        is_shared = is_stdout or found.st_nlink != 1
        return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not is_shared

    def _try_to_replace(self, path: str) -> None:
        """Finds out whether a file can be made beside it. If not, an old file is overwritten where it is."""
        try:
            temporary, descriptor = self._create()
        except OSError as problem:
            if self._open is None:
                raise OSError(problem.errno, problem.strerror, path) from None
            return
        os.close(descriptor)
        # No other file is to be there while the command runs.
        os.remove(temporary)
        if self._open is not None:
            self._mode = os.fstat(self._open).st_mode & 0o777
            self.__exit__(None, None, None)

    def _create(self) -> tuple[str, int]:
        """A new file beside the target, with the mode that the umask leaves."""
        name = f"{_TEMPORARY}{os.getpid()}.{os.urandom(8).hex()}"
        temporary = os.path.join(os.path.dirname(self._target), name)
        return temporary, os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
