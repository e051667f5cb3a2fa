"""Packages of Debian from the package sources that this machine uses, without changing its lists of packages."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping


def private_apt(work: pathlib.Path, sources: Mapping[str, str]) -> list[str]:
    """The front of an apt-get command line with these files of sources, whose lists and cache are in `work`."""
    parts = work / "parts"
    parts.mkdir()
    (work / "lists" / "partial").mkdir(parents=True)
    for name, text in sources.items():
        (parts / name).write_text(text, encoding="utf-8")
    options = [
        f"Dir::Etc::sourceparts={parts}",
        "Dir::Etc::sourcelist=/dev/null",
        f"Dir::State::lists={work}/lists",
        # Otherwise apt prefers what is installed.
        "Dir::State::status=/dev/null",
        f"Dir::Cache={work}",
        # apt's own user can't write to `work`.
        "APT::Sandbox::User=root",
        "Acquire::Languages=none",
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
    ]
    return ["apt-get", "-q", *(word for option in options for word in ("-o", option))]
