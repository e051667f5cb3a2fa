"""`python3 -m gpu_track ARG...` does what `python3 -m gpu_tracker ARG...` does, by the installed program.

Pickles hold classes of Python, so they are written and read here: those of a run with `-f pickle`, of `sub-track
analyze -f pickle`, and of `sub-track compare`.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import sys
from collections.abc import Sequence
from typing import NoReturn

from gpu_track import _pickled_run
from gpu_track._open import read
from gpu_track._pickle_output import PickleOutput
from gpu_track._program import find
from gpu_track.analysis import SubTrackingAnalyzer, SubTrackingResults
from gpu_track.comparison import ComparisonResults, TrackingComparison

# Most bytes of the file of --cconfig.
_MOST_OF_OPTIONS = 1 << 20


def _parser() -> argparse.ArgumentParser:
    """The options of gpu_tracker's `sub-track analyze` and `compare`."""
    parser = argparse.ArgumentParser(prog="python3 -m gpu_track sub-track", add_help=False)
    add = parser.add_argument
    add("command", choices=["analyze", "compare"])
    add("-o", "--output")
    add("-f", "--format", default="text", choices=["json", "text", "pickle"])
    add("--tf")
    add("--stf")
    add("-m", action="append", default=[], metavar="NAME=FILE")
    add("--cconfig")
    add("--stat")
    return parser


def _compared(options: argparse.Namespace) -> ComparisonResults:
    config = {}
    if options.cconfig is not None:
        config = json.loads(read(options.cconfig, _MOST_OF_OPTIONS))
    files = dict(config.get("file_path_map", {}))
    for mapping in options.m:
        name, equals, file_name = mapping.partition("=")
        if not equals:
            raise ValueError(f'-m "{mapping}" has no "=": give NAME=FILE')
        files[name] = file_name
    if not files:
        need = "through the -m option or a config file."
        raise ValueError(f"A mapping of tracking session name to file path must be provided either {need}")
    return TrackingComparison(files).compare(options.stat or config.get("statistic") or "mean")


def _write_file(path: str, content: bytes) -> None:
    with PickleOutput(path) as file:
        file.write(content)


def _write(results: SubTrackingResults | ComparisonResults, form: str, output: str | None) -> None:
    if form == "pickle":
        if output is None:
            raise ValueError("a pickle is no text: name a file with --output")
        _write_file(output, pickle.dumps(results))
        return
    text = json.dumps(results.to_json(), indent=1) if form == "json" else str(results)
    if output is None:
        print(text)
    else:
        _write_file(output, text.encode())


def _results(options: argparse.Namespace) -> SubTrackingResults | ComparisonResults | None:
    """What is asked for. None: the program itself writes it."""
    if options.command == "compare":
        return _compared(options)
    if options.format == "pickle":
        return SubTrackingAnalyzer(options.tf, options.stf or "").sub_tracking_results()
    return None


def _fail(error: Exception) -> NoReturn:
    """Ends as gpu_tracker does with an error."""
    print(f"ERROR:root:{error}", file=sys.stderr)
    sys.exit(1)


def serve_sub_track(arguments: Sequence[str]) -> bool:
    """Does what gpu_tracker's `sub-track` does with pickles. Says whether it did: the program itself does all else.

    Ends with status 1 if that fails.
    """
    is_help = not {"-h", "--help"}.isdisjoint(arguments)
    if arguments[:1] != ["sub-track"] or arguments[1:2] not in (["analyze"], ["compare"]) or is_help:
        return False
    options = _parser().parse_args(arguments[1:])
    try:
        results = _results(options)
        if results is not None:
            _write(results, options.format, options.output)
    except (ValueError, OSError) as error:
        _fail(error)
    return results is not None


def main(arguments: Sequence[str]) -> None:
    """Does what gpu_tracker does with these arguments, and ends with its exit status."""
    if serve_sub_track(arguments):
        return
    pickled = _pickled_run.options_of(arguments)
    if pickled is not None:
        try:
            sys.exit(_pickled_run.run(pickled))
        except (ValueError, OSError) as error:
            _fail(error)
    os.execv(find("gpu-track-run"), ["gpu-tracker", *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
