"""Runs other programs, among them cargo."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Union

from gpu_track_scripts.paths import ROOT

# Options of `cargo build` with which the dev profile has what `cargo test --workspace` built. The features of a package
# depend on what is built with it, so with other options nearly everything is compiled again.
AS_TESTS = ("--workspace", "--bins", "--tests")
# A word of a command line; numbers are written in decimal.
Word = Union[str, int, float, "os.PathLike[str]"]


def words(command: Sequence[Word]) -> list[str]:
    """The command line as strings."""
    return [os.fspath(word) if isinstance(word, os.PathLike) else str(word) for word in command]


def output(command: Sequence[Word], *, env: Mapping[str, str] | None = None, cwd: pathlib.Path | None = None) -> str:
    """The standard output of a command, which must end with status 0."""
    return subprocess.run(words(command), stdout=subprocess.PIPE, check=True, text=True, env=env, cwd=cwd).stdout


def first_line(command: Sequence[Word]) -> str:
    """The first line of a command's standard output or standard error, whatever its status."""
    run = subprocess.run(words(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return next(iter(run.stdout.splitlines()), "")


def cargo_build(profile: str, *options: str, quiet: bool = False) -> dict[str, pathlib.Path]:
    """Builds with cargo and gives the executables and C libraries by the names of their targets."""
    command = ["cargo", "build", *(["--quiet"] if quiet else []), "--profile", profile, "--locked", *options]
    command.append("--message-format=json-render-diagnostics")
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return built(done.stdout.splitlines())


def compile_c(program: pathlib.Path, source: pathlib.Path, *options: str) -> pathlib.Path:
    """Compiles a program, or a library, from one file."""
    command: list[Word] = ["cc", "-O2", "-Wall", "-Wextra", "-pthread", *options, "-o", program, source]
    subprocess.run(words(command), check=True)
    return program


def built(messages: Iterable[str]) -> dict[str, pathlib.Path]:
    """The executables and C libraries that cargo's JSON messages name, tests left out."""
    found = {}
    for line in messages:
        message = json.loads(line)
        target = message.get("target", {})
        if target.get("kind") == ["cdylib"] and "filenames" in message:
            found[target["name"]] = pathlib.Path(message["filenames"][0])
        elif message.get("executable") and not message["profile"]["test"]:
            found[target["name"]] = pathlib.Path(message["executable"])
    return found
