"""A run of gpu_tracker's command line with `-f pickle`: the program writes JSON, from which the pickle is made here.

gpu_tracker 5.0.1 has that format, too, but always fails in it. The pickle has a `ResourceUsage`, as the file that its
`Tracker` keeps in case that tracking is interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence, Set
from typing import NoReturn

from gpu_track._pickle_output import PickleOutput
from gpu_track._program import find
from gpu_track._trusted import temporary_directory
from gpu_track.resource_usage import ResourceUsage

_VALUES = ("execute", "output", "format", "tconfig", "st", "ru", "gru", "tu", "nec", "guuids", "gb", "tf")
_SWITCHES = ("disable-logs", "overwrite")
_SHORT = ("execute", "output", "format")
# Signals that are handed on to the program.
_HANDED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT, signal.SIGQUIT)
# Those of keys at a terminal, which reach the program by themselves.
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
    with PickleOutput(output) as file, temporary_directory() as directory:
        report = os.path.join(directory, "report.json")
        given = {**options, "format": "json", "output": report}
        words = [f"--{name}" if value is True else f"--{name}={value}" for name, value in given.items()]
        status = _await(["gpu-tracker", *words])
        if os.path.exists(report):
            with open(report, encoding="utf-8") as text:
                usage = ResourceUsage.of_report(json.load(text))
            file.write(pickle.dumps(usage))
    return status


def _await(words: Sequence[str]) -> int:
    """Runs the program under this name, and hands signals on to it. Gives its exit status."""
    program = find("gpu-track-run")
    # One that is ignored stays so, in the program, too.
    taken = {number for number in _HANDED_ON if signal.getsignal(number) is not signal.SIG_IGN}
    # Blocked ones wait until the program is there.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, taken)
    for number in taken:
        signal.signal(number, signal.SIG_DFL)
    sys.stdout.flush()
    # No other thread runs, as preexec_fn needs it.
    child = subprocess.Popen(
        words,
        executable=program,
        preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),  # noqa: PLW1509
    )
    threading.Thread(target=_hand_on, args=(child, taken), name="gpu_track signals", daemon=True).start()
    status = child.wait()
    # Nothing is left to hand signals to: now they end this process, and its temporary files are removed.
    for number in taken:
        signal.signal(number, lambda received, _frame: sys.exit(128 + received))
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return status if status >= 0 else 128 - status


def _hand_on(child: subprocess.Popen[bytes], taken: Set[signal.Signals]) -> None:
    """Hands signals on to a program, until this one ends."""
    while True:
        received = signal.sigwaitinfo(taken)
        # sigaction(2): codes above 0 are the kernel's, here the terminal's. It signals all of the foreground.
        if (received.si_signo not in _OF_TERMINAL or received.si_code <= 0) and child.poll() is None:
            child.send_signal(received.si_signo)
