"""gpu_tracker itself, in a virtual environment of the user's cache directory.

    python3 -m gpu_track_scripts.gpu_tracker.peer [--data]

installs it if that is necessary, and prints the path of its program. With --data, that is the path of its own test data
of `sub-track`.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
import tempfile

from gpu_track_scripts.commands import Word
from gpu_track_scripts.tools import Unavailable, cache, checked

# The version whose command line and reports ours are compared with.
VERSION = "5.0.1"


def program() -> pathlib.Path:
    """Its program. The script names the directory of the installation, so it is made in its place."""
    place = cache() / f"gpu_tracker-{VERSION}"
    found = place / "bin" / "gpu-tracker"
    if not os.access(found, os.X_OK):
        checked([sys.executable, "-m", "venv", place])
        checked([place / "bin" / "pip", "install", "--quiet", f"gpu-tracker=={VERSION}"])
    return found


def data() -> pathlib.Path:
    """The directory with the test data of its `sub-track`, which its source package has."""
    place = cache() / f"gpu_tracker-{VERSION}-source"
    found = place / "tests" / "data" / "sub-tracking-results"
    if not found.is_dir():
        with tempfile.TemporaryDirectory(prefix="gpu_tracker.", dir=cache()) as directory:
            pip: list[Word] = [program().with_name("pip"), "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
            checked([*pip, "--dest", directory, f"gpu-tracker=={VERSION}"])
            shutil.unpack_archive(pathlib.Path(directory, f"gpu_tracker-{VERSION}.tar.gz"), directory)
            # What is there was interrupted before it was whole.
            shutil.rmtree(place, ignore_errors=True)
            pathlib.Path(directory, f"gpu_tracker-{VERSION}").rename(place)
    return found


if __name__ == "__main__":
    try:
        print(data() if sys.argv[1:] == ["--data"] else program())
    except Unavailable as reason:
        sys.exit(str(reason))
