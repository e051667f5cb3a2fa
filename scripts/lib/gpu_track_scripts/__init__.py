"""The Python programs of this repository: scripts/bench, scripts/truth, scripts/release and the checks."""
