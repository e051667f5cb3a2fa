"""The Python programs of this repository: scripts/bench, scripts/truth and scripts/gpu-check."""
