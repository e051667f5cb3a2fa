"""scripts/gpu-check: compares gpu-track-run's figures of a real NVIDIA GPU with the driver's own.

It is made for machines without this repository's tools: it needs nothing but Python's standard library, and runs from
a copy of the folder scripts/ (of it, gpu-check and lib/).
"""
