"""The command line of scripts/sampling-rules."""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import tempfile

from gpu_track_scripts.commands import cargo_build, compile_c
from gpu_track_scripts.figures import interleave
from gpu_track_scripts.markdown import header, row
from gpu_track_scripts.paths import ROOT
from gpu_track_scripts.sampling_rules.jobs import JOBS, RULES, Job, Rule, share_right

DESCRIPTION = """Switches each rule of SamplingPolicy off in turn (--sampling), runs jobs that hold a known
amount of memory, and prints how many of the reported peaks were right, and the worst error. The sides take turns."""


def build_programs(directory: pathlib.Path) -> None:
    """Compiles the jobs' programs, one of them without a dynamic loader."""
    source = ROOT / "tests" / "programs"
    for name, flags in {"touch": [], "share": [], "touch.static": ["-static"]}.items():
        compile_c(directory / name, source / f"{name.partition('.')[0]}.c", *flags)


def peak(tracker: pathlib.Path, directory: pathlib.Path, job: Job, rule: Rule) -> float | None:
    """The combined RAM peak of one run, bytes; None: the report does not know it."""
    report = directory / "report.json"
    program, *arguments = job.command
    command = [str(tracker), "-f", "json", "--ru", "bytes", "-o", str(report), *job.options]
    command += ["--sampling", json.dumps(rule.off), "--"]
    subprocess.run([*command, str(directory / program), *arguments], check=True)
    total: float | None = json.loads(report.read_text())["max_ram"]["combined"]["total_rss"]
    return total


def main() -> int:
    """Measures, and prints a Markdown table."""
    parser = argparse.ArgumentParser(description=DESCRIPTION)
    parser.add_argument("--rounds", type=int, default=40, help="runs of each job with each rule (default: 40)")
    rounds: int = parser.parse_args().rounds
    tracker = cargo_build("release", "-p", "gpu-track-run")["gpu-track-run"]
    rules = {rule.name: rule for rule in RULES}
    print(header(["job", *("all rules" if rule.name == "none" else f"without: {rule.name}" for rule in RULES)]))
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        build_programs(directory)
        for job in JOBS:

            def measure(side: str, job: Job = job) -> float | None:
                return peak(tracker, directory, job, rules[side])

            peaks = interleave(list(rules), rounds, measure)
            print(row([job.name, *(share_right(peaks[side], job.held_bytes) for side in rules)]), flush=True)
    return 0
