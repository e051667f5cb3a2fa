"""Programs that the scripts install for themselves: packages of PyPI and crates, in the user's cache directory.

    python3 -m gpu_track_scripts.tools PACKAGE==VERSION...

installs packages into a virtual environment, which it makes only once, and prints the path of its Python.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from gpu_track_scripts.commands import Word, words


class Unavailable(Exception):
    """Something can't be had or done on this machine; the message says why."""


def cache() -> pathlib.Path:
    """The directory for what the scripts fetch; it is made if it isn't there."""
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path(os.environ.get("HOME", "/tmp"), ".cache")
    directory = pathlib.Path(base, "gpu-track-tests")
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def checked(command: Sequence[Word], cwd: pathlib.Path | None = None) -> None:
    """Runs a command that must succeed; else `Unavailable` has the last line of its output."""
    try:
        done = subprocess.run(words(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=cwd)
    except FileNotFoundError as error:
        raise Unavailable(f"{command[0]}: {error.strerror}") from error
    if done.returncode:
        lines = done.stdout.strip().splitlines() or [f"status {done.returncode}"]
        raise Unavailable(f"{pathlib.Path(words(command)[0]).name}: {lines[-1]}")


def python_with(*packages: str) -> pathlib.Path:
    """The Python of a virtual environment that has these packages (`NAME==VERSION`).

    An installation that is interrupted must leave nothing behind, so it is made beside its place. The scripts in its
    bin/ name the directory of the installation, so programs are to be called as modules.
    """
    version = ".".join(map(str, sys.version_info[:2]))
    place = cache() / "-".join([f"python-{version}", *packages])
    python = place / "bin" / "python"
    if not os.access(python, os.X_OK):
        new = pathlib.Path(tempfile.mkdtemp(prefix="python.", dir=cache()))
        try:
            checked([sys.executable, "-m", "venv", new])
            pip: list[Word] = [new / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            checked([*pip, "--retries", "1", *packages])
            if not os.access(python, os.X_OK):
                # What is there is broken, for example because its Python was removed.
                shutil.rmtree(place, ignore_errors=True)
                new.rename(place)
        finally:
            # The new directory is still there if something failed, or if another run was faster.
            shutil.rmtree(new, ignore_errors=True)
    return python


def crate_program(crate: str, version: str) -> pathlib.Path:
    """The program of this name that a crate contains."""
    place = cache() / f"{crate}-{version}"
    program = place / "bin" / crate
    if not program.exists():
        # Packing a few megabytes needs no optimized program, which would take twice as long to build.
        install: list[Word] = ["cargo", "install", "--quiet", "--debug", "--locked", "--root", place]
        with tempfile.TemporaryDirectory(prefix="build.", dir=cache()) as build:
            checked([*install, "--target-dir", build, "--version", version, crate])
    return program


if __name__ == "__main__":
    try:
        print(python_with(*sys.argv[1:]))
    except Unavailable as reason:
        sys.exit(str(reason))
