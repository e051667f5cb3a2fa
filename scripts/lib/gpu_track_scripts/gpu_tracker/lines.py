"""Command lines of gpu_tracker 5.0.1's documentation: its tutorial, its help, and the tests of its command line."""

from __future__ import annotations

import pathlib
import shlex
import sqlite3
import stat
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """A command line, without the program's name."""

    text: str

    @property
    def words(self) -> list[str]:
        """Its words, as a shell splits it."""
        return shlex.split(self.text)


EXAMPLE = "bash example-script.sh"
TUTORIAL = [
    "-h",
    f'-e "{EXAMPLE}" --st=0.3',
    f"-e '{EXAMPLE}' --tu=seconds --gru=megabytes --ru=megabytes --st=0.2",
    f"-e '{EXAMPLE}' -o out.txt --st=0.2",
    f"-e '{EXAMPLE}' -f json --st=0.2",
    f"-e '{EXAMPLE}' -f json -o out.json --st=0.3",
]
HELP = [
    "--version",
    '--execute="ls -l -a"',
    f'--exec="{EXAMPLE}" --out=out.txt --form=json',
    f'-e "{EXAMPLE}" -f pickle -o out.pkl',
    f'-e "{EXAMPLE}" --tconfig=config.json',
    f'-e "{EXAMPLE}" --tconfig=config.json --ru=bytes --tu=days',
    f'-e "{EXAMPLE}" --tconfig=missing.json',
    f'-e "{EXAMPLE}" --st=0.05',
    f'-e "{EXAMPLE}" --ru=terabytes --gru=bytes --tu=minutes',
    f'-e "{EXAMPLE}" --ru=furlongs',
    f'-e "{EXAMPLE}" --nec=0',
    f'-e "{EXAMPLE}" --guuids=gpu-uuid1,gpu-uuid2,etc -f json',
    f'-e "{EXAMPLE}" --gb=nvidia',
    f'-e "{EXAMPLE}" --tf=tracking.csv',
    f'-e "{EXAMPLE}" --tf=existing.csv',
    f'-e "{EXAMPLE}" --tf=existing.csv --overwrite',
    f'-e "{EXAMPLE}" --tf=tracking.sqlite',
    f'-e "{EXAMPLE}" -o missing/out.txt',
    "sub-track combine --stf=combined.csv -p a.csv -p b.csv",
    "sub-track analyze --tf=ours.csv --stf=a.csv",
    "sub-track compare -m A=a.pkl -m B=b.pkl --stat=max",
]
# "my-command" of the tests is our script, or is not there.
TESTS = [
    "-e my-command --ru=kilobytes",
    f"--execute '{EXAMPLE} arg1 ' --disable-logs --overwrite",
    f"-e '{EXAMPLE}' --nec=3 --gru=megabytes --tu=days --disable-logs",
    "-e '' ",
    "-e ./not-executable",
    f"-e '{EXAMPLE}' -f invalid-format",
    "sub-track compare",
]
# What docopt does with other lines of the same usage, and how a command ends.
USAGE = [
    "",
    "-etrue -fjson",
    f"--o=out.txt -e '{EXAMPLE}'",
    f"-e '{EXAMPLE}' -e '{EXAMPLE}'",
    "-e 'bash fails.sh'",
    "-e 'bash killed.sh' -f json",
]
LINES = [Line(text.strip()) for text in TUTORIAL + HELP + TESTS + USAGE]

SCRIPTS = {
    # Each run tells that it ran. It is long enough for gpu_tracker to begin with tracking on a busy machine.
    "example-script.sh": "echo ran >>started\nsleep 1.2\n",
    "fails.sh": "echo ran >>started\nsleep 1.2\nexit 3\n",
    "killed.sh": "echo ran >>started\nsleep 1.2\nkill -9 $$\n",
}
SUB_TRACKING = "process_id,code_block_name,position,timestamp\n7,block,0,1000000000.0\n7,block,1,1000000001.0\n"


def prepare(directory: pathlib.Path) -> None:
    """Makes the files that the lines name."""
    for name, text in SCRIPTS.items():
        (directory / name).write_text(text)
    (directory / "config.json").write_text('{"sleep_time": 0.2, "ram_unit": "megabytes", "time_unit": "seconds"}')
    (directory / "existing.csv").write_text("of another run\n")
    for name in ["a.csv", "b.csv"]:
        (directory / name).write_text(SUB_TRACKING)
    refused = directory / "not-executable"
    refused.write_text("#!/bin/sh\n")
    refused.chmod(stat.S_IRUSR | stat.S_IWUSR)


def columns(file: pathlib.Path) -> int | None:
    """How many columns a tracking file has; `None` if it is none."""
    if file.suffix == ".sqlite":
        with sqlite3.connect(file) as base:
            return len(base.execute("pragma table_info(data)").fetchall())
    lines = file.read_text(errors="replace").splitlines()
    return len(lines[2].split(",")) if len(lines) > 2 and "main_ram" in lines[2] else None
