"""Says once that a metric is not kept, where its user waits for it: under gpu-track-run, and in a notebook.

Nothing is said in a program that runs by itself: a program with metrics is run without gpu-track, too.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable

from gpu_track._environment import segment_of, session

LOG = logging.getLogger("gpu_track")
# The file of metrics of a run, for the programs that the run starts. Users set it for gpu-track-run.
VARIABLE = "GPU_TRACK_METRICS"

_IN_NOTEBOOK = (
    'nothing tracks this cell. Run "%load_ext gpu_track" once, and begin the cell with "%%gpu_track", or track it with '
    "gpu_track.Tracker."
)
_IN_RUN = (
    f'gpu-track-run was started without a file for it. Start "{VARIABLE}=metrics.csv gpu-track-run ...", and then '
    f'"gpu-track metrics metrics.csv" shows it. An empty {VARIABLE} means that none are wanted.'
)
_TOO_LATE = (
    f"{VARIABLE} was set after gpu_track was imported. Set it before the import, or before the program is started."
)


class Placeless:
    """What is to be said of metrics of this process that have no place."""

    def __init__(self, at_import: str | None) -> None:
        """`at_import`: the value that VARIABLE had when this process imported the module."""
        # Whether it is not known yet what there is to say.
        self.is_open = True
        # Whether a tracker of this process is paused: what comes meanwhile is left out on purpose. Trackers set it.
        self.is_paused: Callable[[], bool] = bool
        self._at_import = at_import
        # Is held by the thread that finds it out, and kept.
        self._saying = threading.Lock()

    def note(self, name: object) -> None:
        """A metric of this name has no place."""
        # `metric()` raises no error, whatever a shell of IPython does here.
        with contextlib.suppress(Exception):
            if not self.is_paused() and self._saying.acquire(blocking=False):
                self.is_open = False
                reason = self._reason()
                if reason is not None:
                    LOG.warning("The metric %r is not kept: %s This is said once.", str(name), reason)

    def _reason(self) -> str | None:
        """Why there is no place, and what to do. None: nobody waits for the metric, or knows already."""
        now = os.environ.get(VARIABLE)
        if now and now != self._at_import:
            return _TOO_LATE
        if now is not None:
            # Empty, or refused with a warning at the import.
            return None
        if _is_in_notebook():
            return _IN_NOTEBOOK
        return None if segment_of(session()) is None else _IN_RUN


def _is_in_notebook() -> bool:
    """Whether this process is a shell of IPython. Nothing is imported to find out."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_ipython is not None and get_ipython() is not None
