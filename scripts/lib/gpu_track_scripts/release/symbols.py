"""What a file needs of the C library, as readelf prints it."""

from __future__ import annotations

import pathlib
import re

from gpu_track_scripts.commands import output

# The libraries of glibc itself: whoever has it has them all.
GLIBC_LIBRARIES = re.compile(
    r"(libc|libm)\.so\.6|libpthread\.so\.0|libdl\.so\.2|librt\.so\.1|ld-linux-[\w-]+\.so\.[0-9]"
)

Version = tuple[int, ...]


def parsed(version: str) -> Version:
    """`2.17` as numbers, so that it can be compared."""
    return tuple(int(part) for part in version.split("."))


def needed_versions(version_info: str) -> list[Version]:
    """The versions of glibc in the output of `readelf --version-info`, oldest first."""
    return sorted({parsed(version) for version in re.findall(r"Name: GLIBC_([0-9.]+)\s", version_info)})


def needed_libraries(dynamic: str) -> list[str]:
    """The libraries in the output of `readelf --dynamic`."""
    return re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)


def faults(file: pathlib.Path, newest: str) -> list[str]:
    """What keeps a program from starting where glibc is as old as `newest`."""
    versions = needed_versions(output(["readelf", "--version-info", "--wide", file]))
    if not versions:
        return ["it names no version of glibc"]
    found = [".".join(map(str, version)) for version in versions if version > parsed(newest)]
    libraries = needed_libraries(output(["readelf", "--dynamic", "--wide", file]))
    others = [library for library in libraries if not GLIBC_LIBRARIES.fullmatch(library)]
    return [f"it needs GLIBC_{version}" for version in found] + [f"it needs {library}" for library in others]
