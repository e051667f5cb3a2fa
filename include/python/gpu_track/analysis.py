"""What code blocks used, by a tracking file and a sub-tracking file: gpu_tracker 5.0.1's analysis.

`gpu-track sub-track` does the work.
Figures are plain JSON inside. pandas is needed only for the attributes and methods that give its objects.
"""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpu_track._marks import COLUMNS, extension
from gpu_track._open import open_file
from gpu_track._program import ask, ask_json, file_argument
from gpu_track._trusted import temporary_directory

if TYPE_CHECKING:
    import pandas as pd


class CodeBlockResults:
    """What a code block used."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self.name: str = entry["name"]
        self.num_timepoints: int = entry["num_timepoints"]
        self.num_calls: int = entry["num_calls"]
        self.num_non_empty_calls: int = entry["num_non_empty_calls"]
        self._compute_time: dict[str, float | None] = entry["compute_time"]
        self._resource_usage: dict[str, dict[str, float | None]] = entry["resource_usage"]

    @property
    def compute_time(self) -> pd.Series:
        """Seconds that its calls took: min, max, mean, std and total. Needs pandas."""
        return _series(self._compute_time)

    @property
    def resource_usage(self) -> pd.DataFrame:
        """Min, max, mean and std of each column, of the samples in its calls. Needs pandas."""
        return _frame(self._resource_usage)

    def to_json(self) -> dict[str, Any]:
        """The same as dictionaries. What is not known is None."""
        return {
            "name": self.name,
            "num_timepoints": self.num_timepoints,
            "num_calls": self.num_calls,
            "num_non_empty_calls": self.num_non_empty_calls,
            "compute_time": dict(self._compute_time),
            "resource_usage": {name: dict(figures) for name, figures in self._resource_usage.items()},
        }

    def __getstate__(self) -> dict[str, Any]:
        return self.to_json()

    def __setstate__(self, state: dict[str, Any]) -> None:
        # gpu_tracker's state has objects of pandas.
        plain: dict[str, Callable[[Any], Any]] = {"compute_time": _of_series, "resource_usage": _of_frame}
        made = CodeBlockResults({name: plain.get(name, _as_it_is)(value) for name, value in state.items()})
        self.__dict__.update(made.__dict__)


class SubTrackingResults:
    """What a run and its code blocks used."""

    def __init__(self, analysis: Mapping[str, Any]) -> None:
        self._overall: dict[str, dict[str, float | None]] = analysis["overall"]
        self._static_data: dict[str, Any] = analysis["static_data"]
        self.code_block_results = [CodeBlockResults(entry) for entry in analysis["code_block_results"]]

    @property
    def overall(self) -> pd.DataFrame:
        """Min, max, mean and std of each quantity over the whole run. Needs pandas."""
        return _frame(self._overall)

    @property
    def static_data(self) -> pd.Series:
        """What does not change: units, capacities and cores. Needs pandas."""
        return _object_series(self._static_data)

    def to_json(self) -> dict[str, Any]:
        """The same as dictionaries. What is not known is None."""
        return {
            "overall": {name: dict(figures) for name, figures in self._overall.items()},
            "static_data": dict(self._static_data),
            "code_block_results": [block.to_json() for block in self.code_block_results],
        }

    def __str__(self) -> str:
        with JsonFiles() as files:
            text = ask(["sub-track", "show", files.add(self.to_json()), "-f", "text"])[:-1]
            # gpu_tracker's text begins behind the table of all blocks.
            return text.partition("\n\n")[2]

    def __getstate__(self) -> dict[str, Any]:
        return self.to_json()

    def __setstate__(self, state: dict[str, Any]) -> None:
        blocks = [
            block.to_json() if isinstance(block, CodeBlockResults) else block for block in state["code_block_results"]
        ]
        overall, fixed = _of_frame(state["overall"]), _of_series(state["static_data"])
        made = SubTrackingResults({"overall": overall, "static_data": fixed, "code_block_results": blocks})
        self.__dict__.update(made.__dict__)


class SubTrackingAnalyzer:
    """Gives the samples of `tracking_file` to the code blocks of `sub_tracking_file`. Each is .csv or .sqlite."""

    def __init__(self, tracking_file: str | None, sub_tracking_file: str) -> None:
        if tracking_file is not None:
            extension(tracking_file)
        extension(sub_tracking_file)
        self._tracking_file = tracking_file
        self._sub_tracking_file = sub_tracking_file

    def read_static_data(self) -> pd.Series:
        """Units, capacities and cores of the tracking file. Needs pandas."""
        return _object_series(self._analyze(without_blocks=True)["static_data"])

    def load_code_block_names(self) -> list[str]:
        """The names of the code blocks, sorted."""
        return list(self._calls())

    def combine_sub_tracking_files(self, files: Sequence[str]) -> None:
        """Joins sub-tracking files of several processes, in this order, to the new one of this object.

        Raises ValueError if it exists, or if a file has another form or can't be read.
        """
        target = self._sub_tracking_file
        if os.path.exists(target):
            raise ValueError(f"Cannot create sub-tracking file {target}. File already exists.")
        wanted = extension(target)
        for file in files:
            if not file.endswith(wanted):
                problem = f'File {file} does not end with the same extension as {target}. Must end in "{wanted}".'
                raise ValueError(problem)
        parts = [argument for file in files for argument in ("-p", file_argument(file))]
        ask(["sub-track", "combine", "--stf", file_argument(target), *parts])

    def load_timestamp_pairs(self, code_block_name: str) -> list[tuple[float, float]]:
        """Start and stop of each call of a block, seconds since the epoch, by their starts.

        Raises ValueError if the file has a stop without a start.
        """
        return [(start, stop) for start, stop in self._calls().get(code_block_name, [])]

    def load_timepoints(self, timestamp_pairs: Sequence[tuple[float, float]]) -> pd.DataFrame:
        """The samples that were taken within these times, with all columns of the tracking file. Needs pandas."""
        import pandas as pd  # noqa: PLC0415

        path = self._tracking()
        if extension(path) == ".csv":
            with open(open_file(path, os.O_RDONLY), "rb") as file:
                samples = pd.read_csv(file, skiprows=2)
        else:
            samples = pd.read_csv(io.StringIO(samples_of_database(path)), float_precision="round_trip")
        selected = samples.timestamp != samples.timestamp
        for start, stop in timestamp_pairs:
            selected |= (samples.timestamp >= start) & (samples.timestamp <= stop)
        # As with gpu_tracker, the index is the row of the file, or that of the answer of the database.
        return samples[selected] if extension(path) == ".csv" else samples[selected].reset_index(drop=True)

    def overall_timepoint_results(self) -> pd.DataFrame:
        """Min, max, mean and std of each quantity over the whole run. Needs pandas."""
        return _frame(self._analyze(without_blocks=True)["overall"])

    def sub_tracking_results(self) -> SubTrackingResults:
        """What the run and each code block used. Raises ValueError if a file has another form."""
        return SubTrackingResults(self._analyze())

    def _tracking(self) -> str:
        if self._tracking_file is None:
            raise ValueError("there is no tracking file: give SubTrackingAnalyzer its path")
        # FileNotFoundError, where there is none.
        os.stat(self._tracking_file)
        return self._tracking_file

    def _calls(self) -> dict[str, list[tuple[float, float]]]:
        os.stat(self._sub_tracking_file)
        calls: dict[str, list[tuple[float, float]]] = ask_json(
            ["sub-track", "calls", "--stf", file_argument(self._sub_tracking_file)]
        )
        return calls

    def _analyze(self, *, without_blocks: bool = False) -> dict[str, Any]:
        tracking_file = file_argument(self._tracking())
        with temporary_directory() as directory:
            marks = self._sub_tracking_file
            if without_blocks:
                marks = os.path.join(directory, "none.csv")
                with open(marks, "w", encoding="utf-8") as file:
                    file.write(f"{COLUMNS}\n")
            os.stat(marks)
            files = ["--tf", tracking_file, "--stf", file_argument(marks)]
            analysis: dict[str, Any] = ask_json(["sub-track", "analyze", *files])
            return analysis


def samples_of_database(path: str) -> str:
    """The samples of a tracking file in .sqlite, as CSV. Python's sqlite3 would do what a journal beside it says."""
    return ask(["sub-track", "samples", "--tf", file_argument(path)])


class JsonFiles:
    """Files of JSON for a program, which are removed at the end of a `with`."""

    def __init__(self) -> None:
        self._directory = temporary_directory()
        self._count = 0

    def __enter__(self) -> JsonFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self._directory.cleanup()

    def add(self, value: object) -> str:
        """Writes a value, and gives the path of its file."""
        self._count += 1
        path = os.path.join(self._directory.name, f"{self._count}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(value, file)
        return path


def _as_it_is(value: Any) -> Any:  # noqa: ANN401
    return value


def _frame(rows: Mapping[str, Mapping[str, float | None]]) -> pd.DataFrame:
    """A table with a row for each quantity. What is not known is NaN."""
    import pandas as pd  # noqa: PLC0415

    return pd.DataFrame.from_dict(rows, orient="index", dtype=float)


def _series(figures: Mapping[str, float | None]) -> pd.Series:
    import pandas as pd  # noqa: PLC0415

    return pd.Series(figures, dtype=float)


def _object_series(values: Mapping[str, Any]) -> pd.Series:
    import pandas as pd  # noqa: PLC0415

    return pd.Series(values, dtype=object)


def _plain(value: Any) -> Any:  # noqa: ANN401
    """A number of pandas as Python's own. NaN is None."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and math.isnan(value) else value


def _of_series(values: Any) -> dict[str, Any]:  # noqa: ANN401
    return {str(name): _plain(value) for name, value in values.items()}


def _of_frame(table: Any) -> dict[str, dict[str, Any]]:  # noqa: ANN401
    rows = table.to_dict("index") if hasattr(table, "to_dict") else table
    return {str(name): _of_series(row) for name, row in rows.items()}
