"""The module beside gpu_tracker 5.0.1 itself, in a Python that has both. tests/e2e starts it.

GPU_TRACK_TEST_GPU_TRACKER_DATA is the directory of gpu_tracker's own test data of sub-tracking.
"""

from __future__ import annotations

import inspect
import math
import os
import pathlib
import pickle
import sqlite3
import unittest
from contextlib import closing
from typing import Any

import gpu_tracker
import gpu_tracker.tracker
import pandas as pd

import gpu_track
from gpu_track import resource_usage
from gpu_track_tests.places import InDirectory

DATA = pathlib.Path(os.environ["GPU_TRACK_TEST_GPU_TRACKER_DATA"])
MODULES = (gpu_tracker, gpu_track)


def forms(function: Any) -> list[tuple[str, object]]:  # noqa: ANN401
    """The names of a function's arguments, and their defaults. Those that have to be named are ours alone."""
    arguments = inspect.signature(function).parameters.values()
    return [(one.name, one.default) for one in arguments if one.kind is not one.KEYWORD_ONLY]


class Api(unittest.TestCase):
    # Requirement: PY-1
    def test_arguments_are_those_of_gpu_tracker(self) -> None:
        for name in ("Tracker", "SubTracker", "sub_track", "SubTrackingAnalyzer", "TrackingComparison"):
            theirs, ours = (getattr(module, name) for module in MODULES)
            self.assertEqual(forms(ours), forms(theirs), name)
            if isinstance(theirs, type):
                for method, function in vars(theirs).items():
                    if not method.startswith("_") and inspect.isfunction(function):
                        self.assertEqual(forms(getattr(ours, method)), forms(function), method)

    # Requirement: PY-2
    def test_objects_have_the_fields_of_gpu_tracker(self) -> None:
        for name, ours in vars(resource_usage).items():
            if isinstance(ours, type) and hasattr(ours, "__dataclass_fields__"):
                theirs = getattr(gpu_tracker.tracker, name)
                self.assertEqual(list(ours.__dataclass_fields__), list(theirs.__dataclass_fields__), name)

    # Requirement: PY-2
    def test_text_is_that_of_gpu_tracker(self) -> None:
        trackers = [module.Tracker(disable_logs=True) for module in MODULES]
        nothing = resource_usage.ResourceUsage.unknown("bytes", "megabytes", "days").to_json()
        for tracker in trackers:
            tracker.resource_usage = resource_usage.ResourceUsage.of_report(filled(nothing))
        self.assertEqual(*map(str, trackers))


def filled(value: Any) -> Any:  # noqa: ANN401
    """Figures in the place of those that are not known."""
    if isinstance(value, dict):
        return {name: filled(entry) for name, entry in value.items()}
    return 12.3456 if value is None else value


class Marks(InDirectory):
    # Requirement: PY-10
    def test_both_write_the_same_marks(self) -> None:
        for form in ("csv", "sqlite"):
            found = []
            for module in MODULES:
                file = f"{module.__name__}.{form}"
                with module.SubTracker('a, "b"', sub_tracking_file=file):
                    pass
                rows, types = read(file)
                self.assertTrue(all(isinstance(time, float) for *_, time in rows), rows)
                found.append(([row[:3] for row in rows], types))
            self.assertEqual(found[0], found[1])

    # Requirement: PY-10
    def test_gpu_tracker_reads_our_marks(self) -> None:
        for form in ("csv", "sqlite"):
            file = f"marks.{form}"
            for _ in range(3):
                with gpu_track.SubTracker("block", sub_tracking_file=file):
                    pass
            theirs = gpu_tracker.SubTrackingAnalyzer(None, file).load_timestamp_pairs("block")
            self.assertEqual(gpu_track.SubTrackingAnalyzer(None, file).load_timestamp_pairs("block"), theirs)
            self.assertEqual(len(theirs), 3)


def read(file: str) -> tuple[list[Any], object]:
    """The rows of a file of marks, and what it says of their types."""
    if file.endswith(".csv"):
        table = pd.read_csv(file)
        return list(table.itertuples(index=False, name=None)), pathlib.Path(file).read_bytes().count(b"\r\n")
    with closing(sqlite3.connect(file)) as connection:
        columns = connection.execute("SELECT name, type FROM pragma_table_info('data')").fetchall()
        return connection.execute("SELECT * FROM data").fetchall(), columns


class Analysis(InDirectory):
    # Requirement: PY-13
    def test_tables_are_those_of_gpu_tracker(self) -> None:
        for form in ("csv", "sqlite"):
            files = [os.fspath(DATA / f"{name}.{form}") for name in ("tracking", "sub-tracking")]
            theirs, ours = (module.SubTrackingAnalyzer(*files) for module in MODULES)
            names = theirs.load_code_block_names()
            self.assertEqual(ours.load_code_block_names(), names)
            for name in names:
                # gpu_tracker sorts by process first.
                pairs = sorted(theirs.load_timestamp_pairs(name))
                self.assertEqual(ours.load_timestamp_pairs(name), pairs)
                pd.testing.assert_frame_equal(ours.load_timepoints(pairs), theirs.load_timepoints(pairs))
            same = {"rtol": 1e-12, "check_dtype": False}
            pd.testing.assert_frame_equal(ours.overall_timepoint_results(), theirs.overall_timepoint_results(), **same)
            pd.testing.assert_series_equal(
                ours.read_static_data(), theirs.read_static_data(), check_names=False, check_dtype=False
            )
            a, b = theirs.sub_tracking_results(), ours.sub_tracking_results()
            pd.testing.assert_frame_equal(b.overall, a.overall, **same)
            for block, other in zip(b.code_block_results, a.code_block_results):
                pd.testing.assert_frame_equal(block.resource_usage, other.resource_usage, **same)
                pd.testing.assert_series_equal(block.compute_time, other.compute_time, check_names=False)
            self.assert_near(b.to_json(), a.to_json())

    # Requirement: PY-14
    def test_pickles_of_gpu_tracker_are_compared_as_it_does(self) -> None:
        files = {name: os.fspath(DATA / f"results-{name}.pkl") for name in "AB"}
        theirs, ours = (module.TrackingComparison(files) for module in MODULES)
        for statistic in ("min", "max", "mean", "std"):
            a, b = theirs.compare(statistic), ours.compare(statistic)
            self.assertEqual(str(b), str(a))
            self.assert_near(b.to_json(), a.to_json())
            for name, series in a.overall_resource_usage.items():
                pd.testing.assert_series_equal(b.overall_resource_usage[name], series, check_dtype=False)
        for name, file in files.items():
            again = pickle.loads(pickle.dumps(ours.results_map[name]))
            with open(file, "rb") as pickled:
                self.assert_near(again.to_json(), pickle.load(pickled).to_json())

    def assert_near(self, a: Any, b: Any) -> None:  # noqa: ANN401
        """Asserts that two values of JSON differ by rounding only. What is None here is NaN there."""
        if isinstance(a, dict):
            self.assertEqual(sorted(a), sorted(b))
            for name, value in a.items():
                self.assert_near(value, b[name])
        elif isinstance(a, list):
            self.assertEqual(len(a), len(b))
            for one, other in zip(a, b):
                self.assert_near(one, other)
        elif a is None:
            self.assertTrue(math.isnan(b))
        elif isinstance(a, float):
            self.assertTrue(math.isclose(a, b, rel_tol=1e-11, abs_tol=1e-11), (a, b))
        else:
            self.assertEqual(a, b)


if __name__ == "__main__":
    unittest.main()
