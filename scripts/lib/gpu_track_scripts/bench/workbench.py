"""What all benchmarks share: the built programs and where to find other tools."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shutil
from collections.abc import Sequence
from typing import TypeVar

from gpu_track_scripts.commands import Word, cargo_build, compile_c
from gpu_track_scripts.paths import ROOT

Choice = TypeVar("Choice")


# Compared by identity, so that results can be cached by workbench.
@dataclasses.dataclass(frozen=True, eq=False)
class Workbench:
    """The programs that the benchmarks run."""

    quick: bool
    # Directories in which peers are looked up, in the form of PATH.
    path: str
    temporary: pathlib.Path
    tracker: pathlib.Path
    ring: pathlib.Path
    births: pathlib.Path
    work: pathlib.Path
    touch: pathlib.Path
    # What a tracked process maps of the segment.
    mapped_bytes: int
    # Preloaded libraries that do less than the shim, by the name of their side.
    preloads: dict[str, pathlib.Path]

    def pick(self, full: Choice, quick: Choice) -> Choice:
        """The first value, or the second one with --quick."""
        return quick if self.quick else full

    def track(self, *options: Word) -> list[Word]:
        """The front of a command line that tracks the command behind it."""
        return [self.tracker, "-o", "/dev/null", *options, "--"]

    def tool(self, name: str) -> str | None:
        """The path of a program that may not be installed."""
        return shutil.which(name, path=self.path)


def defined(header: str, name: str) -> int:
    """The value of a number that a C header defines."""
    found = re.search(rf"^#define {name}\s+\(?(\d+)", header, re.MULTILINE)
    if found is None:
        raise ValueError(f"{name} is not defined")
    return int(found[1])


def mapped_bytes(header: str) -> int:
    """The size of header and event ring, by gpu_track_abi.h. A record's words have 8 bytes."""
    records = defined(header, "GPU_TRACK_RING_CAPACITY") * defined(header, "GPU_TRACK_RECORD_WORDS")
    return defined(header, "GPU_TRACK_HEADER_SIZE") + records * 8


def prepare(
    quick: bool, directories: Sequence[str], tracker: pathlib.Path | None, temporary: pathlib.Path
) -> Workbench:
    """Builds all programs, gpu-track-run where `tracker` is None; those in C are built in the temporary directory."""
    if tracker is None:
        tracker = cargo_build("release", "-p", "gpu-track-run", quiet=True)["gpu-track-run"]
    # As an installation does. The page cache has a file that a linker wrote in small pieces, which costs a run an
    # eighth more CPU time.
    tracker = pathlib.Path(shutil.copy2(tracker, temporary / "gpu-track-run"))
    ring = cargo_build("release", "-p", "gpu-track-abi", "--example", "ring", quiet=True)["ring"]
    size = mapped_bytes((ROOT / "include" / "gpu_track_abi.h").read_text(encoding="utf-8"))
    sources = ROOT / "tests" / "bench"

    library = ["-shared", "-fPIC", f"-DTRACKED_SIZE={size}"]
    return Workbench(
        quick=quick,
        path=os.pathsep.join([*directories, os.environ.get("PATH", "")]),
        temporary=temporary,
        tracker=tracker,
        ring=ring,
        births=compile_c(temporary / "births", sources / "births.c"),
        work=compile_c(temporary / "work", sources / "work.c"),
        touch=compile_c(temporary / "touch", ROOT / "tests" / "programs" / "touch.c"),
        mapped_bytes=size,
        preloads={
            "empty": compile_c(temporary / "libempty.so", sources / "empty_preload.c", *library),
            "least": compile_c(temporary / "libleast.so", sources / "empty_preload.c", *library, "-DRECORDS"),
        },
    )
