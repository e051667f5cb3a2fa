"""The documents in the packages: pages that link to each other, and what the program prints of itself."""

from __future__ import annotations

import gzip
import pathlib
import re
from collections.abc import Iterator

from gpu_track_scripts.paths import ROOT

# Where the pages lie below a prefix, and which ones. They keep their paths, so that their links hold.
PLACE = pathlib.PurePath("share/doc/gpu-track")
PAGES = ("*.md", "docs/*.md", "docs/*.png", "docs/*.json", "docs/examples/*", "include/gpu_track_abi.h")
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:)([^)#\s]*)(#[^)\s]*)?\)")


def pages() -> Iterator[tuple[str, pathlib.Path]]:
    """The pages: the place below `PLACE`, and where each is in the repository."""
    for pattern in PAGES:
        for file in sorted(ROOT.glob(pattern)):
            yield file.relative_to(ROOT).as_posix(), file


def faults(directory: pathlib.Path) -> list[str]:
    """The pages that an installed directory lacks, and the links in it that lead nowhere."""
    found = [f"no {place}" for place, _ in pages() if not (directory / place).is_file()]
    for page in sorted(directory.rglob("*.md")):
        for _, _, target, _ in LINK.findall(page.read_text(encoding="utf-8")):
            if target and not (page.parent / target).is_file():
                found.append(f"{page.relative_to(directory)} links to {target}")
    return found


def without_links(page: str) -> str:
    """A page to be read where no other page is, as a package index shows it: a link names the installed file."""
    return LINK.sub(lambda link: f"{link[2]} (`{PLACE / link[3]}`)" if link[3] else link[2], page)


def debian_changelog(version: str, maintainer: str, when: str) -> bytes:
    """Debian's changelog of a package that has no history of its own. `when` is as `date -R` prints it."""
    text = f"gpu-track ({version}-1) unstable; urgency=medium\n\n  * {version}: see CHANGELOG.md.\n\n"
    return compressed(f"{text} -- {maintainer}  {when}\n".encode())


def compressed(content: bytes) -> bytes:
    """As `gzip -9n`, which packages for Debian demand."""
    return gzip.compress(content, compresslevel=9, mtime=0)
