"""The table: what gpu_tracker does with each line, and what gpu-track-run does differently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpu_track_scripts.gpu_tracker.outcome import Outcome
from gpu_track_scripts.markdown import header, row

STDERR = {"usage": "usage on stderr", "error": "an `ERROR:root:` line", "traceback": "a traceback"}


def phrases(outcome: Outcome) -> list[str]:
    """What a run did, in words."""
    said = [f"status {outcome.status}"]
    if outcome.status and outcome.started:
        said.append("after the command was started")
    if outcome.stdout.kind != "nothing":
        said.append(f"{outcome.stdout.kind} on stdout")
    said += [f"{text.kind} in {name}" for name, text in outcome.files.items()]
    if outcome.stderr in STDERR:
        said.append(STDERR[outcome.stderr])
    return said


def difference(theirs: Outcome, ours: Outcome) -> str:
    """What is different in ours; empty if nothing is."""
    if ours == theirs:
        return ""
    new = [phrase for phrase in phrases(ours) if phrase not in phrases(theirs)]
    if theirs.started and theirs.status and not ours.started and ours.status:
        new.append("before the command is started")
    if len(new) == 0 and len(phrases(ours)) < len(phrases(theirs)):
        gone = [phrase for phrase in phrases(theirs) if phrase not in phrases(ours)]
        return "without " + ", ".join(gone)
    return ", ".join(new) or "in other words"


def cell(line: str) -> str:
    """A command line as code."""
    return f"`gpu-tracker {line}".rstrip().replace("|", "\\|") + "`"


def table(theirs: Mapping[str, Outcome], ours: Mapping[str, Outcome], lines: Sequence[str]) -> str:
    """A row for each line that differs."""
    differences = {line: difference(theirs[line], ours[line]) for line in lines}
    other = [line for line in lines if differences[line]]
    rows = [row([cell(line), ", ".join(phrases(theirs[line])), differences[line]]) for line in other]
    return "\n".join([header(["command line", "gpu_tracker", "gpu-track-run"]), *rows])
