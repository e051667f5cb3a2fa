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

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "gpu-track-tests"

# Archives in Debian's pool, with the checksums of its source index.
SOURCES = {
    "hello": ("hello_2.10.orig.tar.gz", "31e066137a962676e89f69d1b65382de95a7ef7d914b8cb956f41ea72e0f516b"),
    "lua5.4": ("lua5.4_5.4.4.orig.tar.gz", "164c7849653b80ae67bec4b7473b884bf5cc8d2dca05653475ec2ed27b9ebf61"),
}


class Missing(Exception):
    """A workload that can't run here; the message is the reason."""


def unpacked(package: str) -> Callable[[pathlib.Path], None]:
    """A function that unpacks the source of a package into a directory."""

    def unpack(directory: pathlib.Path) -> None:
        subprocess.run(["tar", "xf", archive(package), "--strip-components=1"], cwd=directory, check=True)

    return unpack


def archive(package: str) -> pathlib.Path:
    """The archive of a source that was fetched before."""
    name, sha256 = SOURCES[package]
    path = CACHE / name
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
        raise Missing(f"the source of {package} is not there: scripts/truth --install fetches it")
    return path


def install(packages: Sequence[str]) -> None:
    """Installs Debian packages, and fetches all sources."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    apt = ["apt-get", "-q", "-y"]
    subprocess.run([*apt, "update"], env=environment, check=True)
    if packages:
        subprocess.run([*apt, "install", "--no-install-recommends", *packages], env=environment, check=True)
    with tempfile.TemporaryDirectory() as temporary:
        fetch(pathlib.Path(temporary))


def source_list(name: str, text: str) -> str | None:
    """An apt list that asks for source packages instead of binary ones; None if the file is no apt list."""
    if name.endswith(".list"):
        lines = [line for line in text.splitlines() if line.startswith("deb ")]
        return "".join("deb-src" + line[len("deb") :] + "\n" for line in lines)
    if name.endswith(".sources"):
        lines = ["Types: deb-src" if line.startswith("Types:") else line for line in text.splitlines()]
        return "".join(line + "\n" for line in lines)
    return None


def fetch(work: pathlib.Path) -> None:
    """Fetches the sources from the machine's package sources, with lists in a directory of our own."""
    (work / "parts").mkdir()
    (work / "lists" / "partial").mkdir(parents=True)
    etc = pathlib.Path("/etc/apt")
    for path in [etc / "sources.list", *(etc / "sources.list.d").glob("*")]:
        text = source_list(path.name, path.read_text(encoding="utf-8")) if path.is_file() else None
        if text is not None:
            (work / "parts" / path.name).write_text(text, encoding="utf-8")
    options = [
        f"Dir::Etc::sourceparts={work}/parts",
        "Dir::Etc::sourcelist=/dev/null",
        f"Dir::State::lists={work}/lists",
        f"Dir::Cache={work}",
        "APT::Sandbox::User=root",
    ]
    apt = ["apt-get", "-q", *(word for option in options for word in ("-o", option))]
    CACHE.mkdir(parents=True, exist_ok=True)
    subprocess.run([*apt, "update"], check=True)
    for package, (name, _) in SOURCES.items():
        subprocess.run([*apt, "source", "--download-only", package], cwd=work, check=True)
        if (work / name).is_file():
            shutil.copy(work / name, CACHE / name)
        else:
            print(f"scripts/truth: apt has another version of {package} than {name}", file=sys.stderr)
