"""A root directory with an old C library, in which a released program must start.

It has a few packages of the oldest Debian that the machine's own package sources still offer.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from gpu_track_scripts.commands import output
from gpu_track_scripts.debian import private_apt
from gpu_track_scripts.tools import Unavailable, cache, checked

# Releases since the one that has glibc 2.17 or a little more, oldest first. Mirrors drop them in this order.
RELEASES = ("jessie", "stretch", "buster", "bullseye")
PACKAGES = ("libc6", "dash", "coreutils")
# A sandbox needs mount points, and gpu-track-run a directory for the shim.
DIRECTORIES = ("dev", "proc", "tmp", "var/cache")


def old_root() -> pathlib.Path:
    """The root directory, which must not be changed. Raises `Unavailable` where there is none."""
    for tool in ("apt-get", "dpkg-deb", "bwrap"):
        if not shutil.which(tool):
            raise Unavailable(f"needs {tool}")
    checked(["bwrap", "--ro-bind", "/", "/", "true"])
    for release in RELEASES:
        place = cache() / f"root-{release}"
        if place.is_dir():
            return place
    reasons = [f"no package source of Debian ({', '.join(RELEASES)})"]
    for source in sources():
        for release in RELEASES:
            try:
                return fetched(source, release)
            except Unavailable as reason:
                reasons.append(f"{release}: {reason}")
    raise Unavailable(reasons[-1])


def sources() -> list[str]:
    """The addresses of Debian's main archive in this machine's configuration of apt."""
    about = output(["apt-get", "indextargets", "--format", "$(LABEL) $(COMPONENT) $(REPO_URI)", "Created-By: Packages"])
    return sorted({line.split()[2] for line in about.splitlines() if line.startswith("Debian main ")})


def fetched(source: str, release: str) -> pathlib.Path:
    """Fetches the packages of a release and unpacks them. Raises `Unavailable`."""
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    with tempfile.TemporaryDirectory(prefix="root.", dir=cache()) as name:
        work, root = pathlib.Path(name), pathlib.Path(name, "root")
        for directory in DIRECTORIES:
            (root / directory).mkdir(parents=True)
        apt = private_apt(work, {"old.list": f"deb [signed-by={keyring}] {source} {release} main\n"})
        checked([*apt, "update"])
        checked([*apt, "download", *PACKAGES], work)
        for file in work.glob("*.deb"):
            checked(["dpkg-deb", "-x", file, root])
        place = cache() / f"root-{release}"
        root.rename(place)
    return place


@dataclass(frozen=True)
class System:
    """A root directory to install packages into."""

    root: pathlib.Path
    # Whether it has a C library of its own. If not, programs in it run on this machine's system.
    is_whole: bool

    @property
    def name(self) -> str:
        """Which system it is."""
        if not self.is_whole:
            return "this machine's system"
        # Before glibc 2.34, the library is a link to a file that has the version in its name.
        library = next(self.root.glob("lib/*-linux-gnu*/libc.so.6"))
        return f"a Debian with {pathlib.Path(os.readlink(library)).stem.replace('libc-', 'glibc ')}"

    def command(self, program: pathlib.PurePath) -> list[str]:
        """How to call a program that lies in the root directory, whose path is relative to it."""
        if not self.is_whole:
            return [os.fspath(self.root / program)]
        sandbox = ["bwrap", "--bind", os.fspath(self.root), "/", "--dev", "/dev", "--proc", "/proc", "--unshare-pid"]
        return [*sandbox, "--clearenv", "--setenv", "PATH", "/usr/bin:/bin", f"/{program}"]


@contextlib.contextmanager
def clean_system(old: pathlib.Path | None) -> Iterator[System]:
    """A copy of an old root directory; without one, an empty one."""
    with tempfile.TemporaryDirectory(prefix="gpu-track-release.") as name:
        root = pathlib.Path(name, "root")
        if old:
            shutil.copytree(old, root, symlinks=True)
        else:
            root.mkdir()
        yield System(root, is_whole=old is not None)
