"""How long readings keep a GPU driver busy."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from typing import Any

from gpu_track_scripts.bench.row import Row
from gpu_track_scripts.bench.workbench import Workbench
from gpu_track_scripts.commands import Word, cargo_build, words

GPUS = 8
# What the calls of the fake driver take, microseconds, as seen on a laptop: the lists of processes, and all others.
LIST_US = 4500
OTHER_US = 50
LISTS = "RunningProcesses"
# The interval that is asked for without --st, seconds.
INTERVAL_S = 0.1
# Each of the GPUs has these figures.
SCRIPT = """\
count {count}
*.memory_total 85899345920
*.memory_used 1000000000
*.utilization 30
*.memory_utilization 7
*.power 100000
*.energy 5000000+100000/s
*.temperature 41
*.sm_clock 1410
*.memory_clock 1593
*.pstate 0
*.throttle 0
*.pcie_tx 1000
*.pcie_rx 2000
*.pcie_generation 1
*.pcie_width 1
*.samples ring 100 20000 50
*.processes ok
*.process_times now
*.mig 0
"""


def gpus8(bench: Workbench) -> Iterator[Row]:
    """A driver whose lists of processes are slow, as long as a run without options reads it."""
    library = cargo_build("release", "-p", "fake-nvml", quiet=True)["fake_nvml"]
    driver = bench.temporary / "driver"
    for directory in ("held", "account"):
        (driver / directory).mkdir(parents=True)
    uuids = "".join(f"{number}.uuid GPU-fake-{number}\n" for number in range(GPUS))
    (driver / "script").write_text(SCRIPT.format(count=GPUS) + uuids, encoding="ascii")
    # The driver writes the names of its calls to this file, since it exists.
    calls = driver / "calls"
    calls.touch()
    report = driver / "report.json"
    costs = {"FAKE_NVML_DIR": str(driver), "FAKE_NVML_COST_US": f"{OTHER_US} {LISTS}={LIST_US}"}
    command: list[Word] = [bench.tracker, "--nvml-lib", library, "-q", "-o", report, "--", "sleep", bench.pick(20, 8)]
    subprocess.run(words(command), check=True, env={**os.environ, **costs})
    yield gpus8_row(calls.read_text(encoding="ascii").split(), json.loads(report.read_text(encoding="utf-8")))


def gpus8_row(calls: list[str], report: dict[str, Any]) -> Row:
    """The time of the driver is that of its calls, so that other load of the machine does not change it."""
    busy_us = sum(count * (LIST_US if LISTS in name else OTHER_US) for name, count in Counter(calls).items())
    share = busy_us / 1e6 / report["wall_s"]
    interval_s = max(gpu["reading"]["mean_interval_s"] for gpu in report["gpus"])
    return Row(
        f"{GPUS} GPUs, {LIST_US / 1000} ms for a list of processes",
        f"{OTHER_US} us for another call",
        f"15% of the time in the driver, memory read every {INTERVAL_S} s",
        f"{100 * share:.1f}%, every {interval_s:.3f} s",
        share <= 0.15 and interval_s <= INTERVAL_S * 1.1,
    )
