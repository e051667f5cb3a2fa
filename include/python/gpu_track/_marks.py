"""Sub-tracking files: the starts and stops of code blocks, in gpu_tracker 5.0.1's forms, CSV and SQLite.

Start and stop of a call are written together at its end, in one append. So a line of one process or thread is never
inside another's, and a process that is killed in a block leaves no half call. A file that can't be written any more, as
on a full disk, costs its marks and a warning, never the program.
"""

from __future__ import annotations

import abc
import contextlib
import errno
import logging
import os
import stat
import threading
import time
from os import write
from typing import Any

from gpu_track._descriptors import high, identity
from gpu_track._open import open_file, remove

COLUMNS = "process_id,code_block_name,position,timestamp"
_TYPES = ("INTEGER", "VARCHAR", "INTEGER", "FLOAT")
_TABLE = f"CREATE TABLE IF NOT EXISTS data ({', '.join(map(' '.join, zip(COLUMNS.split(','), _TYPES)))})"
LOG = logging.getLogger("gpu_track")

_NS_PER_S = 1_000_000_000
# How long a file may be gone before that is noticed. Looking takes as long as writing.
CHECK_EVERY_NS = 100_000_000
# No mark is in it.
_NO_SECOND = 0, 0, b"0"
# How long another process takes to overwrite a file.
_OVERWRITTEN_WITHIN_S = 0.1
# How many blocks of a file have their form ready.
_MOST_FORMS = 1024
# SQLite locks the database for each pair of marks: other processes wait this long.
_LOCK_TIMEOUT_S = 60.0


class MarkFile(abc.ABC):
    """A file that marks of code blocks are written to. It is made by the first block that is entered."""

    # What a file that can't be written lacks from then on.
    _lacks = "Code blocks are no longer marked in it."

    def __init__(self, path: str) -> None:
        self.name = path
        self.is_open = False
        self._path = os.path.abspath(path)
        self._failed = False
        self._opening = threading.Lock()
        # What `add` needs for the calls of a block of this process, by name.
        self.forms: dict[str, Any] = {}

    def open(self, overwrite: bool) -> None:
        """Makes the file.

        Raises FileExistsError if it exists and is not to be overwritten, OSError if it can't be made. A full disk is a
        warning.
        """
        with self._opening:
            if self.is_open:
                return
            if overwrite:
                with contextlib.suppress(FileNotFoundError):
                    remove(self._path)
            try:
                self._create()
            except FileExistsError:
                problem = f"File {self.name} already exists. Set overwrite to True to overwrite the existing file."
                raise FileExistsError(problem) from None
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                self._give_up(error.strerror)
            self.is_open = True

    @abc.abstractmethod
    def _create(self) -> None:
        """Makes a new file without marks."""

    def form(self, name: str) -> Any:  # noqa: ANN401 (each kind of file has its own)
        """What `add` needs for the calls of a block of this name. It is then in `forms`."""
        form = self.forms.get(name)
        if form is None:
            if len(self.forms) >= _MOST_FORMS:
                self.forms.clear()
            form = self.forms[name] = self._form(os.getpid(), name)
        return form

    def renew(self) -> None:
        """Makes it a file of this process, which is a forked child. A thread that held the lock is not in it."""
        self.forms = {}
        self._opening = threading.Lock()

    @abc.abstractmethod
    def _form(self, process_id: int, name: str) -> Any:  # noqa: ANN401
        """Makes it."""

    @abc.abstractmethod
    def add(self, form: Any, start_ns: int, stop_ns: int) -> None:  # noqa: ANN401
        """Writes a call, in nanoseconds since the epoch. Raises FileNotFoundError if the file was removed."""

    def _check_path(self) -> None:
        """Raises FileNotFoundError if no file is there. One that another process overwrites is missing for a moment."""
        if not os.path.isfile(self._path):
            time.sleep(_OVERWRITTEN_WITHIN_S)
            if not os.path.isfile(self._path):
                raise self._gone()

    def _gone(self) -> FileNotFoundError:
        return FileNotFoundError(f"The file {self.name} was removed in the middle of writing data to it.")

    def _give_up(self, problem: object) -> None:
        self._failed = True
        LOG.warning('"%s" cannot be written: %s. %s', self.name, problem, self._lacks)


def _is_own(directory: str) -> bool:
    """Whether only this user, root, and members of this process's groups can put files there, or replace the directory.

    Root trusts no group. The path has no links. A directory with the sticky bit may be above it.
    """
    user = os.geteuid()
    owners, groups = (user, 0, os.stat("/").st_uid), [os.getegid(), *os.getgroups()] if user else []
    is_above = False
    while directory != os.sep:
        found = os.lstat(directory)
        forbidden = stat.S_IWOTH if found.st_gid in groups else stat.S_IWOTH | stat.S_IWGRP
        is_kept = is_above and found.st_mode & stat.S_ISVTX
        if found.st_uid not in owners or (found.st_mode & forbidden and not is_kept):
            return False
        directory, is_above = os.path.dirname(directory), True
    return True


def first_cells(process_id: int, name: str) -> bytes:
    """The first two cells of a line, as a part of a form for `%`."""
    if any(special in name for special in ',"\r\n'):
        name = '"' + name.replace('"', '""') + '"'
    return f"{process_id},{name}".replace("%", "%%").encode("utf-8", "surrogateescape")


def _split(ns: int) -> tuple[bytes, int]:
    """Whole seconds as text, and the nanoseconds that are left."""
    seconds, rest = divmod(ns, _NS_PER_S)
    return b"%d" % seconds, rest


class CsvFile(MarkFile):
    """Lines of comma-separated values."""

    # The first line.
    _head = f"{COLUMNS}\r\n".encode()

    def __init__(self, path: str) -> None:
        super().__init__(path)
        # -1: there is none, since the program has closed it, or has too many files open.
        self._descriptor = -1
        self._identity: tuple[int, int] | None = None
        # The second of the last mark, when the file is looked for again (both nanoseconds since the epoch), and that
        # second as text: most marks are in the same one. Replaced as a whole, since threads share it.
        self._second = _NO_SECOND

    def _create(self) -> None:
        self._keep(open_file(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL))
        self._append(self._head)

    def _form(self, process_id: int, name: str) -> bytes:
        """Two lines with places for the times."""
        line = first_cells(process_id, name)
        # Whole seconds and the rest. To write a float takes longer.
        return line + b",0,%b.%09d\r\n" + line + b",1,%b.%09d\r\n"

    def add(self, form: bytes, start_ns: int, stop_ns: int) -> None:
        """Appends the two lines of a call."""
        second_ns, until_ns, second = self._second
        if second_ns <= start_ns <= stop_ns < until_ns:
            lines = form % (second, start_ns - second_ns, second, stop_ns - second_ns)
        else:
            if self._failed:
                return
            self._check()
            second, rest = _split(stop_ns)
            self._second = stop_ns - rest, stop_ns + min(CHECK_EVERY_NS, _NS_PER_S - rest), second
            lines = form % (*_split(start_ns), second, rest)
        # As `_append`, which would be a call more.
        try:
            written = write(self._descriptor, lines)
        except OSError as error:
            written = self._append_anew(lines, error)
        if written != len(lines):
            self._give_up(os.strerror(errno.ENOSPC))

    def _give_up(self, problem: object) -> None:
        super()._give_up(problem)
        # The next mark looks at `_failed`.
        self._second = _NO_SECOND

    def _append(self, lines: bytes) -> None:
        try:
            written = os.write(self._descriptor, lines)
        except OSError as error:
            written = self._append_anew(lines, error)
        # The rest would be written behind the lines of others.
        if written != len(lines):
            self._give_up(os.strerror(errno.ENOSPC))

    def _append_anew(self, lines: bytes, error: OSError) -> int:
        """Appends after an error: without the descriptor of before, if that is closed. Else no more is written."""
        try:
            if error.errno != errno.EBADF:
                raise error
            descriptor = open_file(self._path, os.O_WRONLY | os.O_APPEND)
            try:
                return os.write(descriptor, lines)
            finally:
                self._keep(descriptor)
        except FileNotFoundError:
            raise self._gone() from None
        except OSError as problem:
            self._give_up(problem.strerror)
            return len(lines)

    def _keep(self, descriptor: int) -> None:
        """Keeps a descriptor under a high number, or closes it where none is free."""
        try:
            self._descriptor = high(descriptor)
        except OSError:
            self._descriptor = -1
        self._identity = identity(self._descriptor)

    def _check(self) -> None:
        """Raises FileNotFoundError if the file was removed. Forgets a descriptor that is another file's by now.

        Another process that overwrites the file has a new one in its place, which the next mark opens.
        """
        if self._descriptor < 0:
            return
        try:
            found = os.fstat(self._descriptor)
        except OSError:
            self._descriptor = -1
            return
        if (found.st_dev, found.st_ino) != self._identity:
            self._descriptor = -1
        elif found.st_nlink == 0:
            self._check_path()
            os.close(self._descriptor)
            self._descriptor = -1


class SqliteFile(MarkFile):
    """A database with the table `data`."""

    def _create(self) -> None:
        """Makes the database.

        Raises PermissionError where another user could put files beside it: SQLite would use such a file as its
        journal, and delete a file that it names.
        """
        directory = os.path.dirname(os.path.realpath(self._path))
        if not _is_own(directory):
            problem = f"no place for SQLite, since other users may write to {directory}: name a file that ends in .csv"
            raise PermissionError(errno.EACCES, problem, self.name)
        os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
        self._run("", [])

    def _form(self, process_id: int, name: str) -> tuple[int, str]:
        """The first columns of a row."""
        return process_id, name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

    def add(self, form: tuple[int, str], start_ns: int, stop_ns: int) -> None:
        """Inserts the two rows of a call, in one transaction."""
        if self._failed:
            return
        self._check_path()
        self._run(
            "INSERT INTO data VALUES (?, ?, ?, ?)", [(*form, 0, start_ns / _NS_PER_S), (*form, 1, stop_ns / _NS_PER_S)]
        )

    def _run(self, statement: str, rows: list[tuple[object, ...]]) -> None:
        """Runs a statement with each row, in one transaction. A child must not use its parent's, so none is kept.

        Another process that overwrites the file makes it before its table.
        """
        import sqlite3  # noqa: PLC0415 (most programs do without)

        try:
            with contextlib.closing(sqlite3.connect(self._path, timeout=_LOCK_TIMEOUT_S)) as connection, connection:
                connection.execute(_TABLE)
                for row in rows:
                    connection.execute(statement, row)
        except sqlite3.Error as error:
            self._give_up(error)


_FORMS: dict[str, type[MarkFile]] = {".csv": CsvFile, ".sqlite": SqliteFile}
# Those of this process, by their names.
files: dict[str, MarkFile] = {}


def extension(path: str) -> str:
    """The end of a file's name that tells its form. Raises ValueError if none of gpu_tracker's does."""
    for known in _FORMS:
        if path.endswith(known):
            return known
    raise ValueError(f'Invalid file name: "{path}". Valid file extensions are ".csv" and ".sqlite".')


def mark_file(path: str) -> MarkFile:
    """The file of this name: one object for all blocks of the process and of its forked children."""
    file = files.get(path)
    if file is None:
        file = files.setdefault(path, _FORMS[extension(path)](path))
    return file


def _renew() -> None:
    for file in files.values():
        file.renew()


os.register_at_fork(after_in_child=_renew)
