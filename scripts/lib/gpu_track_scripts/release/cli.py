"""The command line of scripts/release."""

from __future__ import annotations

import argparse
import pathlib
import platform
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import partial

from gpu_track_scripts.paths import ROOT
from gpu_track_scripts.release import checks, wheel
from gpu_track_scripts.release.build import OLDEST_GLIBC, Build, BuildFailed, build
from gpu_track_scripts.release.old_system import old_root
from gpu_track_scripts.release.packages import deb, gpu_check, recipes, rpm, sha256, shared_files, tarball
from gpu_track_scripts.tools import Unavailable

DESCRIPTION = f"""\
Builds the packages of a release and checks them.

The program is built once, against glibc {OLDEST_GLIBC}, and all packages contain the same bytes: a wheel, a tarball, a
.deb, a .rpm, and gpu-check-MACHINE.tar.gz, which checks the GPU figures on a machine with an NVIDIA driver and nothing
else. With them come an EasyBuild easyconfig and a Spack package for the tarball, and SHA256SUMS.

Each package is installed into a clean root directory of an old Debian, the wheel into a new virtual environment, and
tracks a command there. All links in its documents are followed. Then it is removed, and nothing of it is left. lintian
judges the .deb, and twine the wheel. What can't be had on this machine is skipped, with the reason.

The tools come from PyPI and crates.io, in pinned versions, into the user's cache directory. Also needs readelf, nm and
objdump, and pip.

The status is 0 if all packages are there and right, 1 if a check failed, and 77 if nothing could be built.
"""
CANT_BUILD = 77
Packer = Callable[[Build, pathlib.Path], pathlib.Path]
PACKAGES: dict[str, Packer] = {"tarball": tarball, "deb": deb, "rpm": rpm, "gpu-check": gpu_check}


class Progress:
    """Prints a line for each step, and counts failures."""

    def __init__(self) -> None:
        self.failed = False

    def step(self, name: str, take: Callable[[], object]) -> None:
        """Takes a step and says how it ended."""
        try:
            print(f"ok      {name}: {take()}", flush=True)
        except (checks.Wrong, BuildFailed) as found:
            print(f"FAILED  {name}: {found}", flush=True)
            self.failed = True
        except Unavailable as reason:
            print(f"SKIPPED {name}: {reason}", flush=True)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line; ends with status 2 where it is wrong."""
    parser = argparse.ArgumentParser(
        prog="release", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "packages",
        nargs="*",
        metavar="PACKAGE",
        help="tarball, deb, rpm or gpu-check; without one, all. The wheel is always built",
    )
    add("--target", default=f"{platform.machine()}-unknown-linux-gnu", help="rustc's name for the machine to build for")
    add("--quick", action="store_true", help="build without optimization, to check the packages only")
    add(
        "--output",
        type=pathlib.Path,
        metavar="DIR",
        help="where to put the packages; it must not exist or be empty (default: target/dist, which is replaced)",
    )
    options = parser.parse_args(arguments)
    for name in options.packages:
        if name not in PACKAGES:
            parser.error(f"no package is called '{name}'; choose from {', '.join(PACKAGES)}")
    if options.quick and options.output:
        parser.error("a build with --quick is to be checked only: leave out --output")
    if options.output and options.output.exists() and any(options.output.iterdir()):
        parser.error(f"--output {options.output} is not empty")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Builds, checks, and puts what is right into the output directory."""
    options = parse_arguments(arguments)
    print(f"building the program: {'about 2' if options.quick else 'about 6'} minutes on two cores", flush=True)
    with tempfile.TemporaryDirectory(prefix="gpu-track-release.") as name:
        made = pathlib.Path(name, "packages")
        made.mkdir()
        try:
            built = build(options.target, options.quick, made)
            wheel.complete(built.wheel, shared_files(built))
        except Unavailable as reason:
            print(f"SKIPPED scripts/release: {reason}")
            return CANT_BUILD
        except BuildFailed as output:
            print(f"FAILED  scripts/release:\n{output}")
            return 1
        progress = Progress()
        check_build(progress, built)
        make_packages(progress, built, options.packages or list(PACKAGES), made)
        if progress.failed:
            return 1
        if not options.quick:
            write_checksums(made)
            directory = options.output or default_output()
            shutil.copytree(made, directory, dirs_exist_ok=True)
            print(f"the packages are in {directory}")
    return 0


def default_output() -> pathlib.Path:
    """The directory of the packages where none is named, without those of an earlier build."""
    output = ROOT / "target" / "dist"
    shutil.rmtree(output, ignore_errors=True)
    return output


def check_build(progress: Progress, built: Build) -> None:
    """Checks the program and the wheel."""
    progress.step("program", partial(checks.check_symbols, built))
    # A quick build is larger.
    if built.profile == "release":
        progress.step("size", partial(checks.check_size, built))
    progress.step("shim", partial(checks.check_shim, built))
    progress.step("paths", partial(checks.check_paths, built))
    progress.step("wheel", partial(checks.check_wheel, built))
    progress.step("metadata", partial(checks.check_metadata, built))


def make_packages(progress: Progress, built: Build, names: Sequence[str], to: pathlib.Path) -> None:
    """Makes the other packages and checks each in an old system."""
    old: pathlib.Path | None = None
    try:
        old = old_root()
    except Unavailable as reason:
        print(f"SKIPPED old system: {reason}")
    for name in names:
        progress.step(name, partial(make_package, PACKAGES[name], built, to, old))
    for package in to.glob("*.deb"):
        progress.step("lintian", partial(checks.check_lintian, package))
    for archive in to.glob("gpu-track-*.tar.gz"):
        recipes(built, archive, to)


def make_package(make: Packer, built: Build, to: pathlib.Path, old: pathlib.Path | None) -> str:
    """Makes a package and checks it."""
    return checks.check_package(built, make(built, to), old)


def write_checksums(directory: pathlib.Path) -> None:
    """Writes the checksums of the packages, for `sha256sum --check`."""
    files = sorted(file for file in directory.iterdir() if file.is_file())
    (directory / "SHA256SUMS").write_text("".join(f"{sha256(file)}  {file.name}\n" for file in files))
