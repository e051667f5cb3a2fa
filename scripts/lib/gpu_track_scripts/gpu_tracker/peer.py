"""gpu_tracker itself, in a virtual environment of the user's cache directory.

    python3 -m gpu_track_scripts.gpu_tracker.peer

installs it if that is necessary, and prints the path of its program.
"""

from __future__ import annotations

import os
import pathlib
import sys

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


if __name__ == "__main__":
    try:
        print(program())
    except Unavailable as reason:
        sys.exit(str(reason))
