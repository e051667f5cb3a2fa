"""Tests of what the Python programs compute. They build nothing, and need neither root nor a GPU."""

import pathlib
import sys

# As scripts/truth does.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tests" / "truth"))
