"""Runs the commands of the pages that users read first, in a directory with stand-ins for what they work on.

A command is a line of a shell block, a line of an example that begins with `$ `, or `gpu-track-run -...` in the text.
A block is one script, as it would be pasted. Each has to succeed, and what jq reads of a report has to be there.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpu_track_scripts.commands import AS_TESTS, cargo_build
from gpu_track_scripts.paths import ROOT

GUIDE, PYTHON = "docs/GUIDE.md", "docs/PYTHON.md"
PAGES = [
    "README.md",
    GUIDE,
    "docs/WHY.md",
    PYTHON,
    "docs/CONTAINERS.md",
    "docs/NODES.md",
    "docs/GPU.md",
    "docs/GPU_TRACKER.md",
]
# A command that takes longer hangs.
WATCHDOG_S = 120

# What is not run, by the beginning of a line, and why.
NOT_RUN = {
    "cargo run --release": "builds for minutes; .ci/run builds and runs the program",
    "cargo install": "builds for minutes; .ci/run builds the program",
    "scripts/test": ".ci/run runs it",
    "pip install": "needs a release; scripts/release tries its packages",
    "tar -xzf gpu-track": "needs a release; scripts/release tries its packages",
    "tar -xzf gpu-check": "needs a release, and a GPU; scripts/release tries the package",
    "docker run": "needs Docker and an image",
    "gpu-track-run --containers": "needs Docker and an image; tests/e2e/containers_in_tree.rs runs the option",
    "apptainer exec": "needs Apptainer and an image",
    "cat ": "shows what the command before it wrote",
    "gpu-track-run -q --trace-gpu gpus.csv,every=5s": "takes an hour; tests/e2e/gpu_trace.rs runs the option",
    "gpu-track gpus --query-gpu": "has status 6 without a GPU; tests/e2e/gpu_queries.rs runs it",
    "gpu-track record 4711": "needs a run that goes on; tests/e2e/bundles.rs tries it",
    "gpu-track-run --cgroup": "an option, without the command behind it",
    "gpu-track-run -- srun": "an option, without the command behind it",
}
# Commands that end with another status than 0 here, and why.
STATUS = {
    "gpu-track-run --recover": (1, "no run was killed here"),
    "gpu-track-run --limit ram=100M": (124, "the limit ends it"),
    "gpu-track-run --record crashes --limit": (124, "the limit ends it"),
    "gpu-track compare base=gzip.json": (3, "the new way uses more than is allowed"),
}


def shown(page: str, beginning: str) -> str:
    """The Python program of a page that begins so."""
    program: str = re.findall(rf"(?ms)^```python\n({beginning}.*?)^```$", (ROOT / page).read_text())[0]
    return program


# Programs that the commands name but that do not belong to any machine.
STAND_INS = {
    # Ranks, one after the other, with the variables of Open MPI.
    "bin/mpirun": """#!/bin/sh
[ "$1" = -n ] && { ranks=$2; shift 2; }
rank=0
while [ $rank -lt ${ranks:-1} ]; do
    OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=${ranks:-1} "$@" || exit
    rank=$((rank + 1))
done
""",
    "bin/srun": '#!/bin/sh\n[ "$1" = -n ] && shift 2\nexec "$@"\n',
    "app": "#!/bin/sh\nsleep 0.05\n",
    "run.sh": "python3 mem.py || exit 1\n",
    "train.sh": "python3 train.py\n",
    # What the study of docs/examples runs, without the packages of its own.
    "study.toml": (ROOT / "docs/examples/study.toml").read_text(),
    "train.py": "data = bytearray(10_000_000)\n",
    # The programs of the guide and of the page about Python.
    "blocks.py": shown(GUIDE, "import contextlib"),
    "tracked.py": shown(PYTHON, "import subprocess"),
    "grow_and_go_on.py": shown(PYTHON, "import time\nimport gpu_track"),
    "fit.py": shown(PYTHON, "import math"),
    # Grows by 1 GB/s.
    "grow.py": "import time\ndata = []\nfor _ in range(25):\n"
    "    data.append(bytearray(20_000_000))\n    time.sleep(0.02)\n",
    "load.py": "data = bytearray(10_000_000)\n",
    "mem.py": "import time\ndata = bytearray(10_000_000)\ntime.sleep(2)\n",
}


@dataclass(frozen=True)
class Command:
    """A command, or the lines of a block."""

    page: str
    line: int
    script: str


def commands(page: str, text: str) -> Iterator[Command]:
    """The commands of a page, in its order."""
    for fence in re.finditer(r"(?ms)^```(\w*)\n(.*?)^```$|`(gpu-track-run -[^`\n]+)`", text):
        line = text.count("\n", 0, fence.start()) + 1
        if fence[1] == "sh":
            yield Command(page, line, fence[2])
        elif fence[1] == "text":
            yield from (Command(page, line, shown) for shown in re.findall(r"(?m)^\$ (.*)$", fence[2]))
        elif fence[3] and not re.search(r"\.\.\.|\[", fence[3]) and fence[3] != "gpu-track-run --":
            yield Command(page, line, fence[3])


def reason(line: str, reasons: Mapping[str, str]) -> str | None:
    """Why a line is excepted."""
    return next((why for begin, why in reasons.items() if line.startswith(begin)), None)


def missing(script: str) -> str | None:
    """What a script needs that this machine does not have."""
    for program in ["jq", "gzip", "bzip2", "zstd", "bwrap", "python3"]:
        if re.search(rf"\b{program}\b", script) and not shutil.which(program):
            return f"{program} is not installed"
    probe = ["bwrap", "--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "true"]
    if "bwrap" in script and subprocess.run(probe, capture_output=True).returncode:
        return "bwrap can make no namespace here"
    return None


def prepare(directory: pathlib.Path, program: pathlib.Path) -> dict[str, str]:
    """Makes the stand-ins, and the environment in which they are found. `~` is the directory, too."""
    for name, text in STAND_INS.items():
        file = directory / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
    # No way of compressing it takes less memory than another by chance.
    (directory / "data").write_bytes(os.urandom(1_000_000))
    (directory / "sessions").mkdir()
    # What this user's killed runs left behind is not for us.
    (directory / "bin/gpu-track-run").write_text(
        f'#!/bin/bash\n[ "${{0##*/}}" = gpu-tracker ] && exec -a gpu-tracker \'{program}\' "$@"\n'
        f"exec '{program}' --session-dir '{directory}/sessions' \"$@\"\n"
    )
    (directory / "bin/gpu-track-run").chmod(0o755)
    (directory / "bin/gpu-track").write_text(f"#!/bin/bash\nexec -a gpu-track '{program}' \"$@\"\n")
    (directory / "bin/gpu-track").chmod(0o755)
    # A run in a job of Slurm or MPI is another one.
    env = {name: value for name, value in os.environ.items() if not re.match("GPU_TRACK_|SLURM_|OMPI_|PMI", name)}
    return {
        **env,
        "HOME": str(directory),
        # For --last. Without it, runs on a terminal are kept alone.
        "GPU_TRACK_KEEP": "20",
        "PATH": f"{directory}/bin:{env['PATH']}",
        # The wheel has the module.
        "PYTHONPATH": str(ROOT / "include/python"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "XDG_CACHE_HOME": f"{directory}/cache",
        "XDG_STATE_HOME": f"{directory}/state",
    }


def fault(command: Command, directory: pathlib.Path, env: Mapping[str, str]) -> str | None:
    """Runs a command; what is wrong with it."""
    lines = [line for line in command.script.splitlines() if not reason(line, NOT_RUN)]
    script = "\n".join(lines)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=directory,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
    )
    expected = next((status for begin, (status, _) in STATUS.items() if script.startswith(begin)), 0)
    if done.returncode != expected:
        return f"status {done.returncode}: {script}\n{done.stdout}{done.stderr}"
    if re.search(r"\bjq\b", script) and "null" in done.stdout:
        return f"the report has no such key: {script}\n{done.stdout}"
    return None


def check(page: str, text: str, program: pathlib.Path) -> tuple[int, int, list[str]]:
    """How many commands of a page ran and how many were not to run, and what is wrong."""
    ran, excepted, faults = 0, 0, []
    with tempfile.TemporaryDirectory(prefix="check-commands.") as name:
        directory = pathlib.Path(name).resolve()
        env = prepare(directory, program)
        for command in commands(page, text):
            lines = [line for line in command.script.splitlines() if line and line[0] != "#"]
            excepted += sum(reason(line, NOT_RUN) is not None for line in lines)
            if all(reason(line, NOT_RUN) for line in lines):
                continue
            if lacks := missing(command.script):
                print(f"SKIPPED {page}:{command.line}: {lacks}")
                continue
            ran += 1
            if problem := fault(command, directory, env):
                faults.append(f"{page}:{command.line}: {problem}")
    return ran, excepted, faults


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", type=pathlib.Path, help="gpu-track-run; without it, it is built")
    given: pathlib.Path | None = parser.parse_args().program
    program = (given or cargo_build("dev", *AS_TESTS, quiet=True)["gpu-track-run"]).resolve()
    results = [check(page, (ROOT / page).read_text(), program) for page in PAGES]
    faults = [problem for *_, problems in results for problem in problems]
    ran = sum(ran for ran, _, _ in results)
    excepted = sum(excepted for _, excepted, _ in results)
    print(*faults, sep="\n", end="\n" if faults else "", file=sys.stderr)
    print(
        f"check-commands: {ran} commands and blocks run, {excepted} lines excepted with a reason; {len(faults)} wrong"
    )
    return 1 if faults else 0
