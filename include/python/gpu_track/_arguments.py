"""The arguments of gpu_tracker 5.0.1's `Tracker`, checked as there, and the options of gpu-track-run that they are."""

from __future__ import annotations

import os
from collections.abc import Sequence, Set

from gpu_track._program import gpu_listing

_LEAST_SLEEP_TIME_S = 0.1
_RAM_UNITS = ("bytes", "gigabytes", "kilobytes", "megabytes", "terabytes")
_TIME_UNITS = ("days", "hours", "minutes", "seconds")
_BRANDS = ("nvidia", "amd", "intel")
_TRACKING_FORMS = (".csv", ".sqlite", ".jsonl", ".pftrace")


def options(  # noqa: PLR0913, PLR0917
    sleep_time: float,
    ram_unit: str,
    gpu_ram_unit: str,
    time_unit: str,
    n_expected_cores: float | None,
    gpu_uuids: Set[str] | str | None,
    gpu_brand: str | None,
) -> list[str]:
    """The options. Raises ValueError if an argument is wrong."""
    if not sleep_time >= _LEAST_SLEEP_TIME_S:
        raise ValueError(f"Sleep time of {sleep_time} is invalid. Must be at least {_LEAST_SLEEP_TIME_S} seconds.")
    _check_unit(ram_unit, "RAM", _RAM_UNITS)
    _check_unit(gpu_ram_unit, "GPU RAM", _RAM_UNITS)
    _check_unit(time_unit, "time", _TIME_UNITS)
    found = ["--st", str(float(sleep_time)), "--ru", ram_unit, "--gru", gpu_ram_unit, "--tu", time_unit]
    if n_expected_cores is not None:
        if n_expected_cores < 1:
            raise ValueError(f"n_expected_cores of {n_expected_cores} is invalid. Must be at least 1.")
        if not float(n_expected_cores).is_integer():
            raise ValueError(f"n_expected_cores of {n_expected_cores} is invalid. Must be a whole number.")
        found += ["--nec", str(int(n_expected_cores))]
    if gpu_brand is not None:
        if gpu_brand not in _BRANDS:
            brands = '"nvidia", "amd" and "intel"'
            raise ValueError(f'"{gpu_brand}" is not a valid GPU brand. Supported values are {brands}.')
        found += ["--gb", gpu_brand]
    if isinstance(gpu_uuids, str):
        gpu_uuids = {gpu_uuids}
    if gpu_uuids is not None:
        _check_uuids(gpu_uuids)
        if gpu_uuids:
            found += ["--guuids", ",".join(sorted(gpu_uuids))]
    return found


def check_file(tracking_file: str, overwrite: bool) -> None:
    """Raises ValueError if it has another form, FileExistsError if it exists and is not to be overwritten."""
    if not tracking_file.endswith(_TRACKING_FORMS):
        forms = ", ".join(f'"{form}"' for form in _TRACKING_FORMS)
        raise ValueError(f'Invalid file name: "{tracking_file}". Valid file extensions are {forms}.')
    _check_is_new(tracking_file, overwrite)


def check_metrics_file(metrics_file: str, overwrite: bool) -> None:
    """As `check_file`, for a file of metrics."""
    if not metrics_file.endswith(".csv"):
        raise ValueError(f'Invalid file name: "{metrics_file}". Metrics are written to ".csv".')
    _check_is_new(metrics_file, overwrite)


def _check_is_new(file: str, overwrite: bool) -> None:
    if os.path.isfile(file) and not overwrite:
        raise FileExistsError(f"File {file} already exists. Set overwrite to True to overwrite the existing file.")


def file_name(path: str) -> str:
    """A path as gpu-track-run takes it, which knows patterns such as %p."""
    return path.replace("%", "%%")


def _check_unit(unit: str, kind: str, units: Sequence[str]) -> None:
    if unit not in units:
        raise ValueError(f'"{unit}" is not a valid {kind} unit. Valid values are {", ".join(units)}')


def _check_uuids(uuids: Set[str]) -> None:
    """Raises ValueError if one is no GPU of this machine. Where there are no GPUs, any will do, as with gpu_tracker."""
    known = sorted(gpu["uuid"] for gpu in gpu_listing(warns=False)["gpus"] if gpu["uuid"])
    if not known:
        return
    if not uuids:
        raise ValueError("gpu_uuids is not None but the set is empty. Please provide a set of at least one GPU UUID.")
    for uuid in uuids:
        if uuid not in known:
            raise ValueError(f"GPU UUID of {uuid} is not valid. Available UUIDs are: {', '.join(known)}")
