"""Completes the wheel that maturin made: man page, completions, pages, and README.md as its description."""

from __future__ import annotations

import base64
import hashlib
import pathlib
import zipfile
from collections.abc import Iterable

from gpu_track_scripts.paths import ROOT
from gpu_track_scripts.release.documents import without_links


def complete(wheel: pathlib.Path, files: Iterable[tuple[str, pathlib.Path]]) -> None:
    """Adds files by their places below the environment's directory, and the long description."""
    with zipfile.ZipFile(wheel) as archive:
        members = [(info, archive.read(info)) for info in archive.infolist()]
    (record,) = (info.filename for info, _ in members if info.filename.endswith(".dist-info/RECORD"))
    about = record.rsplit("/", 1)[0]
    data = about.replace(".dist-info", ".data") + "/data"
    content = {info.filename: content for info, content in members if info.filename != record}
    content[f"{about}/METADATA"] = described(content[f"{about}/METADATA"])
    content.update((f"{data}/{place}", file.read_bytes()) for place, file in files)
    content[record] = recorded(content, record)
    # The program's mode is among these.
    known = {info.filename: info for info, _ in members}
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in content.items():
            archive.writestr(known.get(name) or new_member(name, known[record]), text, zipfile.ZIP_DEFLATED)


def described(metadata: bytes) -> bytes:
    """The metadata with README.md as the description (PEP 566: the body of the message)."""
    text = metadata.decode().split("\n\n", 1)[0].rstrip("\n")
    description = without_links((ROOT / "README.md").read_text(encoding="utf-8"))
    return f"{text}\nDescription-Content-Type: text/markdown; charset=UTF-8\n\n{description}".encode()


def recorded(content: dict[str, bytes], record: str) -> bytes:
    """The wheel's list of files with their checksums (PEP 376)."""
    lines = []
    for name, text in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(text)}\n")
    return "".join([*lines, f"{record},,\n"]).encode()


def new_member(name: str, like: zipfile.ZipInfo) -> zipfile.ZipInfo:
    """A file of mode 0644, as old as another one: the same files give the same bytes."""
    member = zipfile.ZipInfo(name, like.date_time)
    member.external_attr = 0o100644 << 16
    return member
