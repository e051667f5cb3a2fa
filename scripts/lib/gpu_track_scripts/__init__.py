"""The Python programs of this repository: scripts/bench, scripts/truth and the checks."""
