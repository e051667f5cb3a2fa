"""Makes the packages of a release of what was built. All contain the same program, byte for byte."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import pathlib
import subprocess
import tarfile
from collections.abc import Iterable, Iterator

from gpu_track_scripts.commands import output
from gpu_track_scripts.paths import ROOT
from gpu_track_scripts.release.build import OLDEST_GLIBC, PROGRAMS, Build, build_gpu_check, metadata
from gpu_track_scripts.release.documents import PLACE, pages
from gpu_track_scripts.tools import crate_program

TEMPLATES = ROOT / "scripts" / "packaging"
LICENSES = ("LICENSE-APACHE", "LICENSE-MIT")


def tarball(built: Build, to: pathlib.Path) -> pathlib.Path:
    """An archive to be unpacked into a prefix, such as ~/.local. The same files give the same bytes."""
    top = f"gpu-track-{built.version}-{built.target}"
    return archive_of(tarball_files(built), {built.program, built.companion}, to, top)


def gpu_check(built: Build, to: pathlib.Path) -> pathlib.Path:
    """An archive with gpu-check and the program beside it, for a machine that has an NVIDIA driver and nothing else."""
    return pack_gpu_check(built, build_gpu_check(built), to)


def pack_gpu_check(built: Build, program: pathlib.Path, to: pathlib.Path) -> pathlib.Path:
    """Packs a gpu-check that was built."""
    files = [("gpu-check", program), ("gpu-track-run", built.program)]
    files += [(name, ROOT / name) for name in LICENSES]
    return archive_of(files, {program, built.program}, to, gpu_check_name(built))


def gpu_check_name(built: Build) -> str:
    """The one directory of gpu-check's archive."""
    return f"gpu-check-{built.machine}"


def archive_of(
    files: Iterable[tuple[str, pathlib.Path]], programs: set[pathlib.Path], to: pathlib.Path, top: str
) -> pathlib.Path:
    """An archive of one directory, `top`, with these files: the place in it, and where each is now."""
    when = int(output(["git", "log", "-1", "--format=%ct"], cwd=ROOT))
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as members:
        for place, file in files:
            member = members.gettarinfo(os.fspath(file), f"{top}/{place}")
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = when
            member.mode = 0o755 if file in programs else 0o644
            with file.open("rb") as content:
                members.addfile(member, content)
    path = to / f"{top}.tar.gz"
    path.write_bytes(gzip.compress(archive.getvalue(), mtime=when))
    return path


def tarball_files(built: Build) -> Iterator[tuple[str, pathlib.Path]]:
    """The files of the tarball: the place below the prefix, and where it is now."""
    yield "bin/gpu-track-run", built.program
    yield "bin/gpu-track", built.companion
    yield from shared_files(built)


def shared_files(built: Build) -> Iterator[tuple[str, pathlib.Path]]:
    """The files beside the program: man page, completions and pages."""
    documents = built.documents
    for called in PROGRAMS:
        yield f"share/man/man1/{called}.1", documents / f"{called}.1"
        yield f"share/bash-completion/completions/{called}", documents / f"{called}.bash"
        yield f"share/zsh/site-functions/_{called}", documents / f"_{called}"
        yield f"share/fish/vendor_completions.d/{called}.fish", documents / f"{called}.fish"
    for name in LICENSES:
        yield f"{PLACE}/{name}", ROOT / name
    for place, file in pages():
        yield f"{PLACE}/{place}", file


def deb(built: Build, to: pathlib.Path) -> pathlib.Path:
    """A package for Debian and its relatives, as launcher/Cargo.toml describes it. Raises `Unavailable`."""
    program = crate_program("cargo-deb", "3.8.0")
    options = ["--quiet", "--no-build", "--no-strip", "--package", "gpu-track-run"]
    return run_packer(built, to, "deb", [os.fspath(program), *options])


def rpm(built: Build, to: pathlib.Path) -> pathlib.Path:
    """A package for Red Hat, SUSE and their relatives, as launcher/Cargo.toml describes it. Raises `Unavailable`."""
    program = crate_program("cargo-generate-rpm", "0.21.1")
    # CentOS 7's rpm does not know zstd, which is the default. launcher/Cargo.toml says what the package requires.
    options = ["--package", "launcher", "--payload-compress", "xz", "--auto-req", "no"]
    return run_packer(built, to, "rpm", [os.fspath(program), "generate-rpm", *options])


def run_packer(built: Build, to: pathlib.Path, kind: str, command: list[str]) -> pathlib.Path:
    """Runs a program that packs what cargo built, and gives the package that it wrote."""
    variables = {**os.environ, "CARGO_TARGET_DIR": os.fspath(built.target_directory)}
    command += ["--target", built.target, "--profile", built.profile, "--output", f"{to}/"]
    subprocess.run(command, cwd=ROOT, env=variables, check=True, stdout=subprocess.DEVNULL)
    (package,) = to.glob(f"*.{kind}")
    return package


def recipes(built: Build, archive: pathlib.Path, to: pathlib.Path) -> list[pathlib.Path]:
    """The Spack package and the EasyBuild easyconfig that install the tarball."""
    values = {
        "VERSION": built.version,
        "TARBALL": archive.name,
        "SHA256": sha256(archive),
        "GLIBC": OLDEST_GLIBC,
        "MACHINE": built.machine,
        "DESCRIPTION": next(p["description"] for p in metadata()["packages"] if p["name"] == "gpu-track-run"),
    }
    easyconfig = to / f"gpu-track-{built.version}.eb"
    spack = to / "spack" / "packages" / "gpu_track" / "package.py"
    spack.parent.mkdir(parents=True, exist_ok=True)
    easyconfig.write_text(filled((TEMPLATES / "gpu-track.eb.in").read_text(), values))
    spack.write_text(filled((TEMPLATES / "package.py.in").read_text(), values))
    return [easyconfig, spack]


def filled(template: str, values: dict[str, str]) -> str:
    """A template with a value in the place of each `@NAME@`."""
    for name, value in values.items():
        template = template.replace(f"@{name}@", value)
    return template


def sha256(file: pathlib.Path) -> str:
    """The checksum of a file, as `sha256sum` prints it."""
    return hashlib.sha256(file.read_bytes()).hexdigest()
