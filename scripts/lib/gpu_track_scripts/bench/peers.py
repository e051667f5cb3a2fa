"""Other programs for the same purpose: how each is started on a command and how its figures are read."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shlex
from collections.abc import Callable, Sequence

from gpu_track_scripts.bench.workbench import Workbench
from gpu_track_scripts.commands import Word, first_line

# 2^20 bytes, which psrecord and resource_monitor call MB.
MIB_IN_MB = 1.048576


@dataclasses.dataclass(frozen=True)
class PeerFigures:
    """What a peer says of a run; None where it has no such figure."""

    processes: float | None = None
    cpu_s: float | None = None
    ram_mb: float | None = None


@dataclasses.dataclass(frozen=True)
class Peer:
    """A program that measures a command."""

    # The command line for a command.
    wrap: Callable[[Sequence[Word]], list[Word]]
    # The figures, by the text of its output file.
    parse: Callable[[str], PeerFigures]
    # Appended to the name that the peer is given for its output.
    suffix: str = ""
    # The command is handed over as one string, which the peer splits at blanks.
    splits_words: bool = False


def parse_ours(text: str) -> PeerFigures:
    """gpu-track-run's JSON report, in bytes and seconds."""
    report = json.loads(text)
    return PeerFigures(
        report["coverage"]["processes"],
        report["cpu_time"]["total_s"],
        report["max_ram"]["combined"]["total_rss"] / 1e6,
    )


def parse_gpu_tracker(text: str) -> PeerFigures:
    """gpu_tracker's JSON report, in bytes. Its CPU figures are percentages."""
    return PeerFigures(ram_mb=json.loads(text)["max_ram"]["combined"]["total_rss"] / 1e6)


def parse_psrecord(text: str) -> PeerFigures:
    """psrecord's log: a row for each sample, with the RSS in MiB in the third column."""
    rows = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return PeerFigures(ram_mb=max((float(row[2]) for row in rows), default=0.0) * MIB_IN_MB)


def parse_gnu_time(text: str) -> PeerFigures:
    """GNU time's output by "%U %S %M": seconds, seconds, KiB. Other lines may stand before it."""
    user_s, system_s, kib = map(float, text.split()[-3:])
    return PeerFigures(cpu_s=user_s + system_s, ram_mb=kib * 1024 / 1e6)


def parse_resource_monitor(text: str) -> PeerFigures:
    """resource_monitor's summary: each figure is a number, or a list of the number and its unit."""
    summary = json.loads(text)

    def figure(name: str) -> float | None:
        value = summary.get(name)
        number = value[0] if isinstance(value, list) else value
        return None if number is None else float(number)

    memory_mib = figure("memory")
    return PeerFigures(
        figure("total_processes"), figure("cpu_time"), None if memory_mib is None else memory_mib * MIB_IN_MB
    )


def joined(command: Sequence[Word]) -> str:
    """The command as one string, for peers that split it at blanks."""
    return " ".join(map(str, command))


def installed_peers(bench: Workbench, out: pathlib.Path) -> dict[str, Peer]:
    """Bare, gpu-track-run, and the peers that are installed; each writes its figures to `out`."""
    peers = {
        "bare": Peer(list, lambda _: PeerFigures()),
        "gpu-track-run": Peer(
            lambda command: [
                bench.tracker,
                *["-f", "json", "--ru", "bytes", "--tu", "seconds", "-o"],
                out,
                "--",
                *command,
            ],
            parse_ours,
        ),
    }
    if gpu_tracker := bench.tool("gpu-tracker"):
        options = ["--st=0.1", "--ru=bytes", "--format=json", f"--output={out}", "--disable-logs"]
        peers["gpu_tracker"] = Peer(
            lambda command: [gpu_tracker, f"--execute={joined(command)}", *options],
            parse_gpu_tracker,
            splits_words=True,
        )
    if psrecord := bench.tool("psrecord"):
        peers["psrecord"] = Peer(
            lambda command: [psrecord, joined(command), "--log", out, "--include-children", "--interval", "0.1"],
            parse_psrecord,
            splits_words=True,
        )
    if gnu_time := bench.tool("time"):
        peers["GNU time"] = Peer(lambda command: [gnu_time, "-f", "%U %S %M", "-o", out, *command], parse_gnu_time)
    if monitor := bench.tool("resource_monitor"):
        monitor_options = ["-i", "1", "--accurate-short-processes", "--without-disk-footprint"]
        peers["resource_monitor"] = Peer(
            lambda command: [monitor, *monitor_options, "-O", out, "--", *command],
            parse_resource_monitor,
            suffix=".summary",
        )
    return peers


def versions(bench: Workbench) -> list[str]:
    """The version of each peer, or that it is not there."""
    found = []
    for name in ["gpu-tracker", "psrecord", "time", "resource_monitor"]:
        tool = bench.tool(name)
        if not tool:
            found.append(f"no {name}")
        elif name == "psrecord":
            # psrecord has no option for its version; the interpreter of its first line knows the package.
            interpreter = pathlib.Path(tool).read_text(encoding="utf-8").splitlines()[0].removeprefix("#!")
            program = "import importlib.metadata as m; print(m.version('psrecord'))"
            found.append("psrecord " + first_line([*shlex.split(interpreter), "-c", program]))
        elif name == "gpu-tracker":
            found.append("gpu_tracker " + first_line([tool, "--version"]))
        else:
            found.append(first_line([tool, "--version"]).split(" (released")[0])
    return found
