"""Brings what the workloads need: upstream sources, and Debian packages."""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence

from gpu_track_scripts.debian import private_apt
from gpu_track_scripts.tools import Unavailable, cache

# Archives in Debian's pool, with the checksums of its source index.
SOURCES = {
    "hello": ("hello_2.10.orig.tar.gz", "31e066137a962676e89f69d1b65382de95a7ef7d914b8cb956f41ea72e0f516b"),
    "lua5.4": ("lua5.4_5.4.4.orig.tar.gz", "164c7849653b80ae67bec4b7473b884bf5cc8d2dca05653475ec2ed27b9ebf61"),
}


def unpacked(package: str) -> Callable[[pathlib.Path], None]:
    """A function that unpacks the source of a package into a directory."""

    def unpack(directory: pathlib.Path) -> None:
        subprocess.run(["tar", "xf", archive(package), "--strip-components=1"], cwd=directory, check=True)

    return unpack


def archive(package: str) -> pathlib.Path:
    """The archive of a source that was fetched before."""
    name, sha256 = SOURCES[package]
    path = cache() / name
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
        raise Unavailable(f"the source of {package} is not there: scripts/truth --install fetches it")
    return path


def install(packages: Sequence[str]) -> None:
    """Installs Debian packages, and fetches all sources."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    apt = ["apt-get", "-q", "-y"]
    if packages:
        subprocess.run([*apt, "update"], env=environment, check=True)
        subprocess.run([*apt, "install", "--no-install-recommends", *packages], env=environment, check=True)
    fetch_missing(list(SOURCES))


def source_list(name: str, text: str) -> str | None:
    """An apt list that asks for source packages instead of binary ones; None if the file is no apt list."""
    if name.endswith(".list"):
        lines = [line for line in text.splitlines() if line.startswith("deb ")]
        return "".join("deb-src" + line[len("deb") :] + "\n" for line in lines)
    if name.endswith(".sources"):
        lines = ["Types: deb-src" if line.startswith("Types:") else line for line in text.splitlines()]
        return "".join(line + "\n" for line in lines)
    return None


def fetch_missing(packages: Sequence[str]) -> None:
    """Fetches the sources that are not there, from the machine's package sources."""
    missing = []
    for package in packages:
        try:
            archive(package)
        except Unavailable:
            missing.append(package)
    if not missing:
        return
    etc = pathlib.Path("/etc/apt")
    lists = {
        path.name: source_list(path.name, path.read_text(encoding="utf-8"))
        for path in [etc / "sources.list", *(etc / "sources.list.d").glob("*")]
        if path.is_file()
    }
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        apt = private_apt(work, {name: text for name, text in lists.items() if text is not None})
        subprocess.run([*apt, "update"], stdout=sys.stderr, check=True)
        for package in missing:
            name, _ = SOURCES[package]
            subprocess.run([*apt, "source", "--download-only", package], cwd=work, stdout=sys.stderr, check=True)
            if (work / name).is_file():
                shutil.copy(work / name, cache() / name)
            else:
                print(f"apt has another version of {package} than {name}", file=sys.stderr)
