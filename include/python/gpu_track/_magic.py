"""The magics of notebooks: `%%gpu_track` for a cell, `%gpu_track watch` and `stop` for what runs in later cells.

`%%gpu_track` is replaced by a call in the first line of its cell. So the cell runs as any other: its line numbers,
errors, result and `await` are its own. The end of the cell comes as an event of IPython, also after an error.
"""

from __future__ import annotations

import argparse
import re
import shlex
from typing import Any, NoReturn

from IPython.core.error import UsageError
from IPython.display import display

from gpu_track._tracked import Tracked
from gpu_track._watch import Watch

_NAME = "gpu_track"
_FIRST_LINE = re.compile(rf"%%{_NAME}(\s.*)?\n?\Z")
# What stands in the place of `%%gpu_track` is this command of `%gpu_track`.
_CELL = "cell"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}")


def _parser() -> _Parser:
    """The options of a cell."""
    parser = _Parser(prog=f"%%{_NAME}", add_help=False, allow_abbrev=False)
    parser.add_argument("--st", type=float, default=0.1)
    parser.add_argument("--tf")
    parser.add_argument("--overwrite", action="store_true")
    parser.add_argument("--to")
    return parser


class _Magics:
    """What a shell of IPython has of this module."""

    def __init__(self, shell: Any) -> None:  # noqa: ANN401 (IPython)
        self._shell = shell
        # How many cells run: one runs others, as `%run notebook.ipynb` does.
        self._depth = 0
        # Those that are tracked, with the depth of each.
        self._cells: list[tuple[int, Tracked]] = []
        self._watch: Watch | None = None

    def register(self) -> None:
        self._shell.register_magic_function(self.magic, "line_cell", _NAME)
        self._shell.input_transformers_cleanup.append(_with_call)
        self._shell.events.register("pre_run_cell", self._note_begin)
        self._shell.events.register("post_run_cell", self._note_end)

    def unregister(self) -> None:
        self._shell.events.unregister("pre_run_cell", self._note_begin)
        self._shell.events.unregister("post_run_cell", self._note_end)
        self._shell.input_transformers_cleanup.remove(_with_call)
        for kind in ("line", "cell"):
            self._shell.magics_manager.magics[kind].pop(_NAME, None)
        if self._watch is not None:
            self._stop()

    def magic(self, line: str, cell: str | None = None) -> None:
        """What a cell, or a training loop in later cells, uses of RAM, CPU and GPUs.

        %%gpu_track [--st S] [--tf FILE [--overwrite]] [--to NAME]
            The cell runs as any other. Below it is a line with what it used, also after an error.
            --st S: seconds between two samples, 0.1 without it. --tf FILE: a tracking file (docs/GUIDE.md).
            --to NAME: the cell's gpu_track.Tracker gets this name in the notebook, so NAME.reports has all figures.
        %gpu_track watch
            Shows here what the notebook uses, again and again while later cells run.
        %gpu_track stop
            Ends that, and shows there what was used from watch to stop.
        """
        if cell is not None:
            raise UsageError(f"%%{_NAME} has to be the first line of a cell")
        command, *arguments = shlex.split(line) or [""]
        if command == _CELL:
            self._begin_cell(arguments)
        elif command == "watch" and not arguments:
            self._start()
        elif command == "stop" and not arguments:
            self._stop()
        else:
            raise UsageError(f"%{_NAME} watch, %{_NAME} stop, or %%{_NAME} as the first line of a cell")

    def _begin_cell(self, arguments: list[str]) -> None:
        options = _parser().parse_args(arguments)
        if options.to is not None and not options.to.isidentifier():
            raise UsageError(f"--to {options.to}: that is no name of a variable")
        try:
            cell = Tracked(options.st, options.tf, options.overwrite)
        except (ValueError, FileExistsError) as problem:
            raise UsageError(str(problem)) from None
        if options.to is not None:
            cell.is_kept = True
            self._shell.user_ns[options.to] = cell.tracker
        self._cells.append((self._depth, cell))

    def _note_begin(self, _info: object) -> None:
        self._depth += 1

    def _note_end(self, _result: object) -> None:
        while self._cells and self._cells[-1][0] >= self._depth:
            display(self._cells.pop()[1].end())
        # The cell that loaded the extension had begun before.
        self._depth = max(self._depth - 1, 0)

    def _start(self) -> None:
        if self._watch is not None:
            raise UsageError(f"%{_NAME} watch: it watches already; `%{_NAME} stop` ends it")
        if getattr(self._shell, "kernel", None) is None:
            raise UsageError(f"%{_NAME} watch needs a notebook; in a terminal, run `gpu-track watch` in another one")
        self._watch = Watch(self._shell.display_pub)

    def _stop(self) -> None:
        if self._watch is None:
            raise UsageError(f"%{_NAME} stop: nothing is watched; `%{_NAME} watch` begins")
        watch, self._watch = self._watch, None
        watch.stop()


def _with_call(lines: list[str]) -> list[str]:
    """Puts a call in the place of `%%gpu_track`."""
    from IPython.core.inputtransformer2 import cell_magic  # noqa: PLC0415

    found = _FIRST_LINE.match(lines[0]) if lines else None
    if found is None:
        return lines
    command = f"{_CELL} {(found[1] or '').strip()}"
    # Another magic of cells can follow, such as %%bash.
    return [f"get_ipython().run_line_magic({_NAME!r}, {command!r})\n", *cell_magic(lines[1:])]


_loaded: dict[int, _Magics] = {}


def load(shell: Any) -> None:  # noqa: ANN401 (IPython)
    """Gives a shell the magics. `%load_ext gpu_track` calls it."""
    if id(shell) not in _loaded:
        magics = _loaded[id(shell)] = _Magics(shell)
        magics.register()


def unload(shell: Any) -> None:  # noqa: ANN401 (IPython)
    """Takes them away, and ends what is watched."""
    magics = _loaded.pop(id(shell), None)
    if magics is not None:
        magics.unregister()
