"""The installed programs, which do the work: gpu-track-run and gpu-track."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterable, Sequence
from typing import Any

from gpu_track import _trusted
from gpu_track._environment import PROCESS

LOG = logging.getLogger("gpu_track")

# The path of another gpu-track-run, for tests. gpu-track is beside it.
_VARIABLE = "GPU_TRACK_RUN"
# How long to wait for the end of a killed program. One that waits for a device can't be killed.
_KILLED_WITHIN_S = 1.0
# What the messages of the programs begin with.
_PREFIXES = ("gpu-track: ", "gpu-track-run: ")


def find(name: str) -> str:
    """The path of a program: that beside `GPU_TRACK_RUN`, that of this environment, or the one on PATH.

    Root runs none of another user that a variable names. Raises FileNotFoundError if there is none.
    """
    given = os.environ.get(_VARIABLE)
    if given:
        beside = shutil.which(name, path=os.path.dirname(given))
        trusted = beside and _trusted.path(beside)
        if trusted:
            return trusted
        if beside is None:
            raise _not_installed(name)
        LOG.warning("%s is ignored: root runs no program that another user can replace: %s", _VARIABLE, beside)
    # That of this interpreter, whose programs and modules root runs already.
    found = shutil.which(name, path=sysconfig.get_path("scripts"))
    if found is not None:
        return found
    # HOME names the first of these.
    for directory in (sysconfig.get_path("scripts", f"{os.name}_user"), *os.get_exec_path()):
        found = shutil.which(name, path=directory or os.curdir)
        trusted = found and _trusted.path(found)
        if trusted:
            return trusted
    raise _not_installed(name)


def _not_installed(name: str) -> FileNotFoundError:
    wheel = "`pip install gpu_track-*.whl`, a file of a release, installs it beside this module"
    return FileNotFoundError(f"{name} is not installed: {wheel}")


def ask(
    arguments: Sequence[str],
    *,
    warns: bool = True,
    expected: str | None = None,
    given: str | None = None,
    timeout_s: float | None = None,
) -> str:
    """What `gpu-track` prints to stdout. Its warnings are logged, but those with the text `expected`.

    It gets the text `given` as its stdin. Raises ValueError with its message if it refuses something, FileNotFoundError
    if it is not installed, and subprocess.TimeoutExpired after `timeout_s`.
    """
    out, messages, status = _run(arguments, given, timeout_s)
    # A program that ignores SIGCHLD learns of no status. What has a message and no answer has failed.
    if status or (messages and not out):
        raise _failed(messages, status)
    _log(message for message in messages if warns and (expected is None or expected not in message))
    return out


def _run(
    arguments: Sequence[str], given: str | None = None, timeout_s: float | None = None
) -> tuple[str, list[str], int]:
    """What `gpu-track` prints to stdout, its messages on stderr, and its exit status."""
    command = [find("gpu-track"), *arguments]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=PROCESS.of_helper()
    )
    try:
        out, errors = child.communicate((given or "").encode("utf-8", "surrogateescape"), timeout_s)
    except BaseException:
        _abandon(child)
        raise
    messages = [without_name(line) for line in errors.decode("utf-8", "replace").splitlines()]
    return out.decode("utf-8", "replace"), messages, child.returncode


def _failed(messages: Sequence[str], status: int) -> ValueError:
    return ValueError("\n".join(messages) or f"gpu-track ended with status {status}")


def _log(messages: Iterable[str]) -> None:
    for message in messages:
        LOG.warning("%s", message)


def _abandon(child: subprocess.Popen[bytes]) -> None:
    """Kills a program, and waits for a while. `subprocess.run` would wait for ever for one that can't be killed."""
    child.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_KILLED_WITHIN_S)
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def without_name(message: str) -> str:
    """A message without the name of the program."""
    begin = next((prefix for prefix in _PREFIXES if message.startswith(prefix)), "")
    return message[len(begin) :]


def ask_json(arguments: Sequence[str], *, warns: bool = True, expected: str | None = None) -> Any:  # noqa: ANN401 (JSON)
    """The same as JSON."""
    return json.loads(ask([*arguments, "-f", "json"], warns=warns, expected=expected))


def gpu_listing(*, warns: bool = True) -> Any:  # noqa: ANN401 (JSON)
    """What `gpu-track gpus` lists. Raises ValueError with the reason if a driver can't be read, and logs warnings."""
    out, messages, status = _run(["gpus", "-f", "json"])
    # With a failed driver, the status is that of a failure, and the answer says why.
    if not out:
        raise _failed(messages, status)
    listing = json.loads(out)
    _log([*messages, *listing["warnings"]] if warns else ())
    failed = [f"{driver['name']}: {driver['reason']}" for driver in listing["drivers"]]
    if failed:
        raise ValueError("; ".join(failed))
    return listing


def file_argument(path: str) -> str:
    """A path as an argument that is no option, whatever it begins with."""
    return os.path.join(os.curdir, path) if path.startswith("-") else path
