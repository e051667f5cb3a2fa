"""Builds the program once, for all packages, and what it generates of itself: man page and shell completions.

gpu-check, which has a package of its own, is built only for that.
"""

from __future__ import annotations

import json
import os
import pathlib
import platform
import subprocess
import tempfile
from dataclasses import dataclass
from typing import Any

from gpu_track_scripts.commands import cargo_build, output
from gpu_track_scripts.paths import ROOT
from gpu_track_scripts.release.documents import compressed, debian_changelog
from gpu_track_scripts.tools import Unavailable, python_with

# zig links against the symbols of any glibc. maturin runs it, by what it has of cargo-zigbuild.
BUILD_TOOLS = ("maturin==1.16.0", "ziglang==0.17.1")
# The glibc of CentOS 7, and the oldest one that Rust's standard library supports.
OLDEST_GLIBC = "2.17"
# The programs of a release.
PROGRAMS = ("gpu-track-run", "gpu-track")
# The files that each of them prints, and the option that prints each; {} stands for its name.
DOCUMENTS = {
    "{}.1": "--man",
    "{}.bash": "--completions=bash",
    "_{}": "--completions=zsh",
    "{}.fish": "--completions=fish",
}


class BuildFailed(Exception):
    """The program does not build; the message is the compiler's output."""


@dataclass(frozen=True)
class Build:
    """A program that was built for a target, and what goes into its packages."""

    version: str
    target: str
    # Where cargo puts what it builds, for all targets.
    target_directory: pathlib.Path
    wheel: pathlib.Path
    # The profile of cargo.
    profile: str = "release"

    @property
    def directory(self) -> pathlib.Path:
        """Where cargo puts what it builds for this target."""
        return self.target_directory / self.target / self.profile

    @property
    def program(self) -> pathlib.Path:
        """The program that does all of it."""
        return self.directory / "gpu-track-run"

    @property
    def companion(self) -> pathlib.Path:
        """The program that executes it under the name gpu-track."""
        return self.directory / "gpu-track"

    @property
    def documents(self) -> pathlib.Path:
        """The directory of `DOCUMENTS`. launcher/Cargo.toml names it, too."""
        return self.directory / "documents"

    @property
    def machine(self) -> str:
        """The target's kind of CPU, as `uname -m` names it."""
        return self.target.split("-")[0]

    @property
    def runs_here(self) -> bool:
        """Whether this machine can run the program."""
        return self.machine == platform.machine()

    def shim(self) -> pathlib.Path:
        """The shim that the program contains. Builds of before can have left others."""
        contained = self.program.read_bytes()
        found = self.directory.glob("build/gpu-track-run-*/out/shim/*/shim/libgpu_track_shim.so")
        return next(file for file in found if file.read_bytes() in contained)


def metadata() -> dict[str, Any]:
    """What cargo knows of the workspace."""
    found: dict[str, Any] = json.loads(
        output(["cargo", "metadata", "--format-version=1", "--no-deps", "--locked"], cwd=ROOT)
    )
    return found


def build(target: str, quick: bool, to: pathlib.Path) -> Build:
    """Builds the wheel, and with it the program, and writes the documents. Raises `Unavailable` and `BuildFailed`."""
    libraries = pathlib.Path(output(["rustc", "--print", "target-libdir", "--target", target]).strip())
    if not libraries.is_dir():
        raise Unavailable(f"no standard library for {target}: rustup target add {target}")
    about = metadata()
    version = next(package["version"] for package in about["packages"] if package["name"] == "gpu-track-run")
    # Not where other builds for this target go: they are linked otherwise, and cargo does not see the difference.
    target_directory = pathlib.Path(about["target_directory"], "packages")
    profile = "quick" if quick else "release"
    variables = environment(python_with(*BUILD_TOOLS), target, target_directory)
    run_maturin(target, profile, variables, ROOT, ["--out", os.fspath(to)])
    (wheel,) = to.glob("*.whl")
    built = Build(version, target, target_directory, wheel, profile)
    write_documents(built)
    return built


def build_gpu_check(built: Build) -> pathlib.Path:
    """Builds tests/gpu-check for the same machines as the program. Raises `BuildFailed`."""
    variables = environment(python_with(*BUILD_TOOLS), built.target, built.target_directory)
    with tempfile.TemporaryDirectory(prefix="gpu-track-release.") as wheel:
        # Not from the top: pyproject.toml there is about the program.
        options = ["--bindings", "bin", "--out", wheel]
        run_maturin(built.target, built.profile, variables, ROOT / "tests" / "gpu-check", options)
    return built.directory / "gpu-check"


def run_maturin(target: str, profile: str, variables: dict[str, str], cwd: pathlib.Path, options: list[str]) -> None:
    """Lets maturin build a program against the oldest glibc. Raises `BuildFailed`."""
    command = ["build", "--quiet", "--profile", profile, "--locked", "--target", target, "--zig"]
    command += ["--compatibility", "manylinux_" + OLDEST_GLIBC.replace(".", "_"), *options]
    done = subprocess.run(
        [os.fspath(python_with(*BUILD_TOOLS)), "-m", "maturin", *command],
        cwd=cwd,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise BuildFailed(done.stdout)


def environment(python: pathlib.Path, target: str, target_directory: pathlib.Path) -> dict[str, str]:
    """The variables of the build."""
    variables = {
        **os.environ,
        # maturin looks for `python3 -m ziglang`.
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "CARGO_TARGET_DIR": os.fspath(target_directory),
        # No path of this machine is in the file.
        "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(f"--remap-path-prefix={old}={new}" for old, new in renamed_paths()),
    }
    if target.split("-", maxsplit=1)[0] != platform.machine():
        # zig can't link the shim (launcher/build.rs).
        variables.setdefault("GPU_TRACK_SHIM_LINKER", target.replace("-unknown", "") + "-gcc")
    return variables


def renamed_paths() -> list[tuple[str, str]]:
    """The directories of the source code, and what they are called in the built file."""
    cargo = os.environ.get("CARGO_HOME") or os.path.join(os.path.expanduser("~"), ".cargo")
    return [(cargo, "/cargo"), (os.fspath(ROOT), "/gpu-track")]


def write_documents(built: Build) -> None:
    """Lets the program write its man page and completions; for another kind of machine, this machine's program. Writes
    the changelog of the package for Debian."""
    program = built.program if built.runs_here else cargo_build("dev", quiet=True)["gpu-track-run"]
    built.documents.mkdir(exist_ok=True)
    for called in PROGRAMS:
        for name, option in DOCUMENTS.items():
            text = output([program.with_name(called), option])
            (built.documents / name.format(called)).write_text(text)
        # Debian and its relatives want these compressed.
        page = built.documents / f"{called}.1"
        page.with_name(page.name + ".gz").write_bytes(compressed(page.read_bytes()))
    about = next(package for package in metadata()["packages"] if package["name"] == "gpu-track-run")
    when = output(["git", "log", "-1", "--format=%cD"], cwd=ROOT).strip()
    changelog = debian_changelog(built.version, about["metadata"]["deb"]["maintainer"], when)
    (built.documents / "changelog.Debian.gz").write_bytes(changelog)
