"""Analyses of several runs side by side: gpu_tracker 5.0.1's comparison, done by `gpu-track sub-track compare`."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpu_track._open import read
from gpu_track._program import ask
from gpu_track.analysis import CodeBlockResults, JsonFiles, SubTrackingResults, _series

if TYPE_CHECKING:
    import pandas as pd

STATISTICS = ("min", "max", "mean", "std")
# Most bytes of a file of results.
_MOST_BYTES = 1 << 28

_Figures = dict[str, "float | None"]


class ComparisonResults:
    """Figures of several runs by their names, the smallest first."""

    def __init__(self, comparison: Mapping[str, Any], text: str) -> None:
        self._comparison = comparison
        self._text = text

    @property
    def overall_resource_usage(self) -> dict[str, pd.Series]:
        """For each quantity, that of the whole run. Needs pandas."""
        return _all_series(self._comparison["overall_resource_usage"])

    @property
    def code_block_resource_usage(self) -> dict[str, dict[str, pd.Series]]:
        """For each quantity, that of each code block. Needs pandas."""
        blocks = self._comparison["code_block_resource_usage"]
        return {quantity: _all_series(figures) for quantity, figures in blocks.items()}

    @property
    def code_block_compute_time(self) -> dict[str, pd.Series]:
        """Seconds, for each code block. Needs pandas."""
        return _all_series(self._comparison["code_block_compute_time"])

    def to_json(self) -> dict[str, Any]:
        """The same as dictionaries. What is not known is None."""
        copy: dict[str, Any] = json.loads(json.dumps(self._comparison))
        return copy

    def __str__(self) -> str:
        return self._text


class TrackingComparison:
    """Compares runs, by the files of their `SubTrackingResults`: pickles, or the JSON of `gpu-track sub-track analyze`.

    `results_map` has them by the names in `file_path_map`. Raises ValueError if code blocks of the runs do not match.
    Open only pickles of your own: a pickle can run code.
    """

    def __init__(self, file_path_map: Mapping[str, str]) -> None:
        self.results_map = {name: _results(path) for name, path in file_path_map.items()}
        # gpu_tracker warns of blocks that match by their lines here, and refuses those that do not match.
        self._ask("mean", "json", warns=True)

    def compare(self, statistic: str = "mean") -> ComparisonResults:
        """Compares one statistic: min, max, mean or std. Raises ValueError if it is another."""
        if statistic not in STATISTICS:
            raise ValueError(f"Invalid summary statistic '{statistic}'. Valid values are {' '.join(STATISTICS)}.")
        text = self._ask(statistic, "text")[:-1]
        return ComparisonResults(json.loads(self._ask(statistic, "json")), text)

    def _ask(self, statistic: str, form: str, *, warns: bool = False) -> str:
        with JsonFiles() as files:
            paths = {name: files.add(results.to_json()) for name, results in self.results_map.items()}
            config = files.add({"file_path_map": paths, "statistic": statistic})
            return ask(["sub-track", "compare", "--cconfig", config, "-f", form], warns=warns)


def _plain_name(name: str, _quote: object) -> str:
    """Stands for a name of a column that sqlalchemy has read."""
    return str(name)


class _Unpickler(pickle.Unpickler):
    """Reads results of gpu_tracker and ours, and what their tables are made of."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401
        """A class by its name."""
        package = module.partition(".")[0]
        if package in ("gpu_tracker", "gpu_track"):
            ours = {"SubTrackingResults": SubTrackingResults, "CodeBlockResults": CodeBlockResults}
            if name in ours:
                return ours[name]
        elif (module, name) == ("sqlalchemy.sql.elements", "quoted_name"):
            return _plain_name
        elif package in ("pandas", "numpy") or (module, name) in (("builtins", "slice"), ("_codecs", "encode")):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no part of results of sub-tracking")


def _results(path: str) -> SubTrackingResults:
    """Reads a file of results. Raises ValueError if it has none."""
    content = read(path, _MOST_BYTES)
    try:
        return _parsed(content)
    except ImportError as error:
        raise ValueError(f'"{path}" has tables of pandas, which is needed to read it: {error}') from error
    except (pickle.UnpicklingError, KeyError, TypeError, AttributeError, EOFError, ValueError) as error:
        raise ValueError(f'"{path}" has no results of sub-tracking: {error}') from error


def _parsed(content: bytes) -> SubTrackingResults:
    is_json = content[:1] == b"{"
    results = SubTrackingResults(json.loads(content)) if is_json else _Unpickler(io.BytesIO(content)).load()
    if not isinstance(results, SubTrackingResults):
        raise ValueError(f"it is of the class {type(results).__name__}")
    return results


def _all_series(figures: Mapping[str, _Figures]) -> dict[str, pd.Series]:
    return {name: _series(values) for name, values in figures.items()}
