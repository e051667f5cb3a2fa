"""A run of gpu_tracker's command line with `-f pickle`: the program writes JSON, from which the pickle is made here.

gpu_tracker 5.0.1 has that format, too, but always fails in it. The pickle has a `ResourceUsage`, as the file that its
`Tracker` keeps in case that tracking is interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from gpu_track._program import find
from gpu_track.resource_usage import ResourceUsage

_VALUES = ("execute", "output", "format", "tconfig", "st", "ru", "gru", "tu", "nec", "guuids", "gb", "tf")
_SWITCHES = ("disable-logs", "overwrite")
_SHORT = ("execute", "output", "format")
# Signals that are handed on to the program. Ctrl-C at a terminal reaches it by itself.
_HANDED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_OF_TERMINAL = (signal.SIGINT, signal.SIGQUIT)


class _Parser(argparse.ArgumentParser):
    """Raises ValueError for what it can't parse: the program itself says what is wrong."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def options_of(arguments: Sequence[str]) -> dict[str, str | bool] | None:
    """The options of a run with `-f pickle`. None: the line is another one, or a wrong one."""
    parser = _Parser(add_help=False)
    for name in _VALUES:
        parser.add_argument(*([f"-{name[0]}"] if name in _SHORT else []), f"--{name}")
    for name in _SWITCHES:
        parser.add_argument(f"--{name}", dest=name, action="store_true")
    try:
        found = vars(parser.parse_args(arguments))
    except ValueError:
        return None
    is_run = found["format"] == "pickle" and found["execute"] is not None
    return {name: value for name, value in found.items() if value not in (None, False)} if is_run else None


def run(options: dict[str, str | bool]) -> int:
    """Runs the command, and writes the pickle if there is a report. Gives the exit status: after a signal a shell's.

    Raises ValueError without an output, and OSError if that can't be written.
    """
    output = options.get("output")
    if not isinstance(output, str):
        raise ValueError("a pickle is no text: name a file with --output")
    _check_place(output)
    with tempfile.TemporaryDirectory(prefix="gpu-track.") as directory:
        report = os.path.join(directory, "report.json")
        given = {**options, "format": "json", "output": report}
        words = [f"--{name}" if value is True else f"--{name}={value}" for name, value in given.items()]
        status = _await(["gpu-tracker", *words])
        with contextlib.suppress(FileNotFoundError), open(report, encoding="utf-8") as file:
            usage = ResourceUsage.of_report(json.load(file))
            with open(output, "wb") as binary:
                pickle.dump(usage, binary)
    return status


def _check_place(output: str) -> None:
    """Raises OSError if the file can't be written, before the command runs."""
    is_new = not os.path.exists(output)
    with open(output, "ab"):
        pass
    if is_new:
        os.remove(output)


def _await(words: Sequence[str]) -> int:
    """Runs the program under this name, and hands signals on to it. Gives its exit status."""
    child: subprocess.Popen[bytes] | None = None

    def hand_on(number: int, _frame: FrameType | None) -> None:
        if child is not None and child.poll() is None:
            child.send_signal(number)

    for number in (*_HANDED_ON, *_OF_TERMINAL):
        # One that is ignored stays so, in the program, too.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, hand_on if number in _HANDED_ON else lambda _number, _frame: None)
    sys.stdout.flush()
    child = subprocess.Popen(words, executable=find("gpu-track-run"))
    status = child.wait()
    return status if status >= 0 else 128 - status
