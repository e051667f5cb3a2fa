"""A span of this process with a tracker. What keeps the tracker from working costs figures, and is their reason."""

from __future__ import annotations

from gpu_track._cell import CellFigures, Span
from gpu_track._cell_metrics import CellMetrics
from gpu_track.tracker import Tracker


class Tracked:
    """A span that has begun, with its `tracker`."""

    def __init__(self, sleep_time: float, tracking_file: str | None = None, overwrite: bool = False) -> None:
        """Begins to track. Raises ValueError or FileExistsError if an argument is wrong."""
        self.tracker = Tracker(
            sleep_time, "bytes", "bytes", "seconds", disable_logs=True, tracking_file=tracking_file, overwrite=overwrite
        )
        # Why there are no figures of a tracker.
        self.reason: str | None = None
        try:
            self.tracker.start()
        except (RuntimeError, OSError) as problem:
            self.reason = f"not tracked: {problem}"
        # Whether the program has the tracker after the end.
        self.is_kept = False
        self._span = Span()

    def end(self) -> CellFigures:
        """Ends it."""
        self._span.end()
        metrics = None
        if self.reason is None:
            try:
                self.tracker.stop()
            except RuntimeError as problem:
                self.reason = f"not tracked: {problem}"
            metrics = CellMetrics.of(self.tracker, self._span.wall_s)
            if not self.is_kept:
                self.tracker._forget_metrics()
        report = self.tracker.reports[0] if self.tracker.reports else None
        if report is not None and report["stage"] != "final":
            self.reason = f"gpu-track-run was ended: tracked for the first {report['wall_s']:.1f} s only"
        return CellFigures(self._span, report, self.reason, metrics)
