"""The file of a pickle: it is refused before the command runs, and replaced as a whole when that is over."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import stat
import time
from types import TracebackType

from gpu_track._open import Place

# What the name of a new file begins with until all of it is written.
_TEMPORARY = ".gpu-track-py."
# How long a fifo may be without a reader, and how often it is tried meanwhile.
_READER_WITHIN_S = 5.0
_TRY_EVERY_S = 0.05
# How long a reader may take nothing: a user may have stopped the terminal with Ctrl-S.
_STALL_MS = 60_000


class PickleOutput:
    """A writable file. This user's is replaced, unless it is stdout or has another name. Others are written to."""

    def __init__(self, path: str) -> None:
        """Raises OSError if it can't be written. A fifo is opened when it is written to."""
        # That of the file that is replaced.
        self._mode: int | None = None
        # A file that is written to, and not replaced.
        self._open: int | None = None
        self._place = Place(path)
        try:
            found = self._place.found
            if found is not None and stat.S_ISDIR(found.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            if self._is_fifo():
                if not os.access(self._place.name, os.W_OK, dir_fd=self._place.directory, effective_ids=True):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
                return
            if found is not None:
                self._open = self._place.open(os.O_WRONLY)
            if self._open is None or self._is_own_file(self._open):
                self._try_to_replace()
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __enter__(self) -> PickleOutput:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        self._place.close()

    def _close(self) -> None:
        if self._open is not None:
            os.close(self._open)
            self._open = None

    def write(self, content: bytes) -> None:
        """Writes it. Raises OSError if that fails. A file that would have been replaced is as it was then."""
        if self._is_fifo():
            self._open = self._with_reader()
        if self._open is not None:
            if stat.S_ISREG(os.fstat(self._open).st_mode):
                os.ftruncate(self._open, 0)
            _write(self._open, content)
            return
        directory = self._place.directory
        temporary, descriptor = self._create()
        try:
            with open(descriptor, "wb") as file:
                if self._mode is not None:
                    os.fchmod(descriptor, self._mode)
                file.write(content)
            os.replace(temporary, self._place.name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            os.unlink(temporary, dir_fd=directory)
            raise

    def _is_fifo(self) -> bool:
        """Whether it is one by name. One of /proc is open, and has a reader."""
        found = self._place.found
        return found is not None and stat.S_ISFIFO(found.st_mode) and not self._place.is_in_proc

    def _with_reader(self) -> int:
        """Opens a fifo, and waits for its reader for a while. Raises OSError if it is another file by now."""
        until_s = time.monotonic() + _READER_WITHIN_S
        while True:
            try:
                descriptor = self._place.open(os.O_WRONLY)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
            else:
                if self._place.found is not None and os.path.samestat(os.fstat(descriptor), self._place.found):
                    return descriptor
                os.close(descriptor)
                raise OSError(errno.EINVAL, "it is another file than at the start of the run", self._place.path)
            if time.monotonic() > until_s:
                raise TimeoutError(errno.ETIMEDOUT, "no process reads it", self._place.path)
            time.sleep(_TRY_EVERY_S)

    def _is_own_file(self, descriptor: int) -> bool:
        found = os.fstat(descriptor)
        is_stdout = False
        with contextlib.suppress(OSError):
            is_stdout = os.path.samestat(found, os.fstat(1))
        # Where it is open or has another name, the pickle must be seen there, too.
        is_shared = is_stdout or self._place.is_in_proc or found.st_nlink != 1
        return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not is_shared

    def _try_to_replace(self) -> None:
        """Finds out whether a file can be made beside it. If not, an old file is overwritten where it is."""
        try:
            temporary, descriptor = self._create()
        except OSError as problem:
            if self._open is None:
                raise OSError(problem.errno, problem.strerror, self._place.path) from None
            return
        os.close(descriptor)
        # No other file is to be there while the command runs.
        os.unlink(temporary, dir_fd=self._place.directory)
        if self._open is not None:
            self._mode = os.fstat(self._open).st_mode & 0o777
            self._close()

    def _create(self) -> tuple[str, int]:
        """A new file beside the target, with the mode that the umask leaves."""
        temporary = f"{_TEMPORARY}{os.getpid()}.{os.urandom(8).hex()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return temporary, os.open(temporary, flags, 0o666, dir_fd=self._place.directory)


def _write(descriptor: int, content: bytes) -> None:
    """Writes all of it to a descriptor that does not block. Raises TimeoutError if nothing is taken for long."""
    left = memoryview(content)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:
            waiting = select.poll()
            waiting.register(descriptor, select.POLLOUT)
            if not waiting.poll(_STALL_MS):
                raise TimeoutError(errno.ETIMEDOUT, "its reader takes nothing") from None
