"""What a run of one command line did, without the figures of that run."""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpu_track_scripts.gpu_tracker import lines

# A run that takes longer hangs.
WATCHDOG_S = 120
END = "Resource tracking complete."
# No figure of a report stands in a word. The types of figures stay: 1 and 1.0 differ.
FLOAT = re.compile(r"(?<![\w.])-?\d+(\.\d+(e[+-]?\d+)?|e[+-]?\d+)(?![\w.])")
INTEGER = re.compile(r"(?<![\w.#])-?\d+(?![\w.])")


@dataclass(frozen=True)
class Text:
    """A text by its kind, and a digest of it without figures."""

    kind: str
    digest: str


@dataclass(frozen=True)
class Outcome:
    """What can be compared between two programs."""

    status: int
    # Whether the command was started, as far as it can tell.
    started: bool
    stdout: Text
    # "nothing", "usage", "error", "traceback". Warnings are not in it: each program has its own.
    stderr: str
    # The line that says what is wrong.
    message: str = ""
    files: Mapping[str, Text] = field(default_factory=dict)


def without_figures(text: str) -> str:
    """A report in which `#` stands for each figure, and `#.#` for one with a point."""
    return INTEGER.sub("#", FLOAT.sub("#.#", text))


def text_of(content: bytes) -> Text:
    """The kind of a text, and its digest."""
    if content.startswith(b"\x80"):
        return Text("a pickle", "")
    text = content.decode(errors="replace")
    begin = text.find(END)
    end_line, _, report = text[begin:].partition("\n") if begin >= 0 else ("", "", text)
    if not text:
        kind = "nothing"
    elif report.startswith("{"):
        kind = "a JSON report"
    elif report.startswith("Max RAM:"):
        kind = "a text report"
    elif begin >= 0 and not report:
        kind = "only the command's status"
    elif "\nUsage:" in text:
        kind = "help"
    elif re.fullmatch(r"\d+\.\d+\.\d+\n", text):
        return Text(f"`{text.strip()}`", "")
    else:
        kind = "other text"
    digest = hashlib.sha256(f"{end_line}\n{without_figures(report)}".encode()).hexdigest()[:12]
    return Text(kind, digest)


def file_of(path: pathlib.Path) -> Text:
    """A file that a run wrote."""
    if path.suffix in {".csv", ".sqlite"}:
        columns = lines.columns(path)
        return Text("a file of sub-tracking" if columns is None else f"a tracking file of {columns} columns", "")
    return text_of(path.read_bytes())


def stderr_of(text: str) -> tuple[str, str]:
    """The kind of what stderr got, and the line in it that says what is wrong."""
    said = [line for line in text.splitlines() if not line.startswith("WARNING:root:")]
    if not said:
        return "nothing", ""
    if any(line.startswith("Traceback ") for line in said):
        return "traceback", said[-1].split(":")[0]
    if "Usage:" in said:
        return "usage", "" if said[0] == "Usage:" else said[0]
    return "error", said[-1]


def observe(program: Sequence[str | pathlib.Path], line: lines.Line, tracking_file: pathlib.Path | None) -> Outcome:
    """Runs a line in a directory of its own. `tracking_file` is one that is there already, as ours.csv."""
    with tempfile.TemporaryDirectory(prefix="gpu-tracker-table.") as name:
        directory = pathlib.Path(name)
        lines.prepare(directory)
        if tracking_file:
            (directory / "ours.csv").write_bytes(tracking_file.read_bytes())
        before = {path: path.stat().st_mtime_ns for path in directory.iterdir()}
        env = {name: value for name, value in os.environ.items() if not name.startswith("GPU_TRACK_")}
        done = subprocess.run(
            [*map(str, program), *line.words], cwd=directory, env=env, capture_output=True, timeout=WATCHDOG_S
        )
        written = [path for path in directory.iterdir() if path.stat().st_mtime_ns != before.get(path)]
        # gpu_tracker's hidden file of the run so far can stay after an error.
        files = {path.name: file_of(path) for path in sorted(written) if path.name[0] != "." and path.name != "started"}
        stderr, message = stderr_of(done.stderr.decode(errors="replace"))
        stdout = text_of(done.stdout)
        started = (directory / "started").exists() or END.encode() in done.stdout
        return Outcome(done.returncode, started, stdout, stderr, message, files)
