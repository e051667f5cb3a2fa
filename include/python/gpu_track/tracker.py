"""Tracks what a process and its descendants use, as gpu_tracker 5.0.1's `Tracker` does. gpu-track-run does the work.

The process itself is sampled. Programs that this interpreter starts afterwards load the shim: their figures are exact.
"""

from __future__ import annotations

import atexit
import contextlib
import enum
import logging
import os
import threading
import weakref
from collections.abc import Callable, Sequence, Set
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from gpu_track._alerts import AlertEvent, Alerts, Called
from gpu_track._arguments import check_file, check_metrics_file, options
from gpu_track._attached import NotTracked
from gpu_track._environment import newest
from gpu_track._metrics import MetricFile, placeless
from gpu_track._program import ask_json, file_argument
from gpu_track._stretch import Stretch
from gpu_track._text import lines
from gpu_track._trusted import new_directory, remove_directory
from gpu_track.analysis import JsonFiles
from gpu_track.resource_usage import (
    ComputeTime,
    CPUUtilization,
    GPUUtilization,
    MaxGPURAM,
    MaxRAM,
    ProcessingUnitPercentages,
    ResourceUsage,
    RSSValues,
    joined,
    unknown_figures,
)

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = [
    "CPUUtilization",
    "ComputeTime",
    "GPUUtilization",
    "MaxGPURAM",
    "MaxRAM",
    "ProcessingUnitPercentages",
    "RSSValues",
    "ResourceUsage",
    "Tracker",
]

_Result = TypeVar("_Result")
LOG = logging.getLogger("gpu_track")
# What has the starts and ends of processes, and what has a run over time.
_EVENT_FORMS = (".jsonl", ".sqlite")
_TIMELINE_FORMS = (".jsonl", ".sqlite", ".csv")
# What `gpu-track report` says of metrics of another stretch, or of the last second of a run that goes on.
_OF_OTHER_TIMES = "of no point, before the first or after the last one"
# How long the end of a program may wait for a tracker that it has not stopped.
_EXIT_TIMEOUT_S = 1.0


class Tracker:
    """Tracks a process, by default this one, and its descendants, from `start()` to `stop()` or in a `with`.

    Arguments, states and errors are those of gpu_tracker 5.0.1. `resource_usage` has its objects after the end.
    `reports` has all that gpu-track knows (docs/REPORT.md), one for each stretch between pauses. `tracking_file` can
    also end in .jsonl or .pftrace. If tracking is interrupted, `resource_usage_file` has the report so far, as JSON.
    `metrics_file` (.csv) keeps what `gpu_track.metric()` tells; `metrics()` and `timeline()` have it in any case.
    `alerts` are rules as those of `--alert`, such as "default" or ["ram>80%", "growth"]. When one goes on or off,
    `on_alert(event)`, or several functions, are called in a thread of their own, one at a time.
    `get_alerts()` has these events.
    """

    class State(enum.Enum):
        """What a tracker does."""

        NEW = 0
        STARTED = 1
        STOPPED = 2

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        sleep_time: float = 1.0,
        ram_unit: str = "gigabytes",
        gpu_ram_unit: str = "gigabytes",
        time_unit: str = "hours",
        n_expected_cores: float | None = None,
        gpu_uuids: Set[str] | str | None = None,
        disable_logs: bool = False,
        process_id: int | None = None,
        resource_usage_file: str | None = None,
        n_join_attempts: int = 5,
        join_timeout: float = 10.0,
        gpu_brand: str | None = None,
        tracking_file: str | None = None,
        overwrite: bool = False,
        *,
        metrics_file: str | None = None,
        alerts: str | Sequence[str] | None = None,
        on_alert: Called | None = None,
    ) -> None:
        self._alerts = Alerts(alerts, on_alert)
        self._options = options(sleep_time, ram_unit, gpu_ram_unit, time_unit, n_expected_cores, gpu_uuids, gpu_brand)
        if tracking_file is not None:
            check_file(tracking_file, overwrite)
        if metrics_file is not None:
            check_metrics_file(metrics_file, overwrite)
        if overwrite:
            self._options.append("--overwrite")
        self.resource_usage: ResourceUsage | None = None
        self.reports: list[dict[str, Any]] = []
        self.n_join_attempts = n_join_attempts
        self.join_timeout = join_timeout
        self.state = Tracker.State.NEW
        self._units = (ram_unit, gpu_ram_unit, time_unit)
        self._is_quiet = disable_logs
        self._process_id = process_id
        self._kept_file = None if resource_usage_file is None else os.path.abspath(resource_usage_file)
        self._tracking_file = None if tracking_file is None else os.path.abspath(tracking_file)
        self._metrics_file = None if metrics_file is None else os.path.abspath(metrics_file)
        self._overwrites = overwrite
        self._metrics: MetricFile | None = None
        # Removes the directory, which is kept for its file of metrics. None: it is not kept.
        self._removal: weakref.finalize[..., Tracker] | None = None
        self._owner = os.getpid()
        self._is_starting = False
        self._directory: str | None = None
        self._stretches: list[Stretch] = []

    def __repr__(self) -> str:
        return f"State: {self.state.name}"

    def __enter__(self) -> Tracker:
        with _changing:
            if self._is_starting or self.state is not Tracker.State.NEW:
                has = "stopped" if self.state is Tracker.State.STOPPED else "started"
                raise RuntimeError(f"Cannot start tracking when tracking has already {has}.")
            self._is_starting = True
        try:
            self._owner = os.getpid()
            self._directory = new_directory()
            if self._metrics_file is None:
                self._metrics = MetricFile(os.path.join(self._directory, "metrics.csv"), is_own=True)
            else:
                self._metrics = MetricFile(self._metrics_file)
                self._metrics.open(self._overwrites)
                # The first value opens it again. A program that tells none needs no descriptor for it.
                self._metrics.close()
            self._metrics.on_torch = self._alerts.note_torch
            self._begin_stretch()
            self.state = Tracker.State.STARTED
            _running.append(self)
        except BaseException:
            self._undo_start()
            raise
        finally:
            self._is_starting = False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        except Exception as problem:
            # The program's own error comes first.
            if error is None:
                raise
            self._warn(str(problem))

    async def __aenter__(self) -> Tracker:
        """Starts without blocking the event loop."""
        import asyncio  # noqa: PLC0415 (importing it takes as long as all of this module)

        started = _in_thread(self.__enter__)
        try:
            return await asyncio.wrap_future(started)
        except BaseException:
            # The task was cancelled. The thread goes on, and nobody would stop what it starts.
            started.add_done_callback(self._stop_unasked)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops without blocking the event loop, also if the task is cancelled meanwhile."""
        import asyncio  # noqa: PLC0415

        stopped = _in_thread(lambda: self.__exit__(kind, error, trace))
        try:
            await asyncio.wrap_future(stopped)
        except asyncio.CancelledError:
            # A thread that runs goes on.
            if stopped.cancelled():
                self.__exit__(kind, error, trace)
            raise

    def start(self) -> None:
        """Begins to track.

        Raises RuntimeError if it has begun before or can't begin, FileNotFoundError if gpu-track-run is not installed.
        """
        self.__enter__()

    def stop(self) -> None:
        """Ends tracking, and sets `resource_usage`. Raises RuntimeError if it does not run, or if there is no report.

        In a forked child it only sets the state: the tracker is the parent's.
        """
        with _changing:
            if self.state is not Tracker.State.STARTED:
                has = "not started yet" if self.state is Tracker.State.NEW else "already stopped"
                raise RuntimeError(f"Cannot stop tracking when tracking has {has}.")
            self.state = Tracker.State.STOPPED
        if self._owner != os.getpid():
            return
        _running.remove(self)
        try:
            if self._stretches[-1].is_running:
                self._end_stretch()
            self._conclude()
        finally:
            self._clean()

    def pause(self) -> None:
        """Ends tracking for a while: what is used until `resume()` is in no figure.

        Raises RuntimeError if it does not run. A tracking file of the next stretch has its number: run.csv, run.2.csv.
        As `stop()` and `resume()`, it has no effect in a forked child.
        """
        if self._is_the_parents:
            return
        if self.state is not Tracker.State.STARTED or self.is_paused:
            raise RuntimeError("Cannot pause tracking when tracking does not run.")
        self._end_stretch()

    def resume(self) -> None:
        """Goes on after `pause()`. Raises RuntimeError if tracking is not paused or can't begin."""
        if self._is_the_parents:
            return
        if not self.is_paused:
            raise RuntimeError("Cannot resume tracking when tracking is not paused.")
        self._begin_stretch()

    @property
    def _is_the_parents(self) -> bool:
        return self.state is Tracker.State.STARTED and self._owner != os.getpid()

    @property
    def is_paused(self) -> bool:
        """Whether `pause()` was called, and neither `resume()` nor `stop()` since."""
        return self.state is Tracker.State.STARTED and not self._stretches[-1].is_running

    def events(
        self,
        type: str | Sequence[str] | None = None,  # noqa: A002
        last_n: int | None = None,
        since: float | None = None,
    ) -> list[dict[str, Any]]:
        """What happened: starts and ends of processes, and the RAM peak. `since`: seconds after the start.

        Types are start, exit, killed, still_running, peak and revision. Keys are those of `gpu-track report
        --list-events`. While it runs, processes are listed that have ended. Raises RuntimeError without a tracking file
        in .jsonl or .sqlite, and ValueError for another type.
        """
        arguments = ["--list-events"]
        if type is not None:
            arguments += ["--type", type if isinstance(type, str) else ",".join(type)]
        found = self._over_time(arguments, ("at_s",), _EVENT_FORMS)
        found = found if since is None else [event for event in found if event["at_s"] >= since]
        return found if last_n is None else found[max(len(found) - last_n, 0) :]

    def timeline(self, interval: float) -> list[dict[str, Any]]:
        """The run over time, with a point for each `interval` seconds. Keys are those of `gpu-track report --every`.

        A metric of `gpu_track.metric()` has a key, such as `metric_loss`: its last value at the end of the point, or
        None before the first one. If several processes tell it, each has a key, such as `metric_pid4711_loss`.

        While it runs, that needs a tracking file in .jsonl, .sqlite or .csv, and lacks the last second. Else it raises
        RuntimeError.
        """
        arguments = ["--every", str(interval)]
        if self._metrics is not None and self._metrics.has_values():
            arguments += ["--metrics", file_argument(self._metrics.path)]
        return self._over_time(arguments, ("start_s", "end_s"), _TIMELINE_FORMS)

    def metrics(self) -> list[dict[str, Any]]:
        """What `gpu_track.metric()` told, for each process and name: keys are those of `gpu-track metrics`.

        Figures are of all values until now: count, last, min, max and mean. `not_finite` is how many of them are NaN or
        infinite, which min, max and mean leave out.
        """
        if self._metrics is None or not self._metrics.has_values():
            return []
        answer = ask_json(["metrics", file_argument(self._metrics.path)], warns=not self._is_quiet)
        found: list[dict[str, Any]] = answer["metrics"]
        return found

    def set_threshold(self, name: str, value: str | None) -> None:
        """Sets the alert of ram, gpu_ram, cpu, disk, gpu_idle or fragmentation to a value such as "90%" or "8G".

        It replaces all rules of that name by this one, or by none for None. Raises ValueError for another name or a
        value that is refused, and TypeError for another type; then nothing has changed. Before `start()`, and between
        `pause()` and `resume()`, gpu-track-run looks at the value only when it starts.

        While it tracks, gpu-track-run starts again with the new rules, but for fragmentation: as with `pause()` and
        `resume()`, there is a stretch before and one after, each with a report and a tracking file.
        """
        if self._is_starting:
            raise RuntimeError("Cannot set a threshold while tracking starts.")
        before = self._alerts.rules
        self._alerts.set_threshold(name, value)
        is_running = self.state is Tracker.State.STARTED and not self.is_paused and not self._is_the_parents
        if not is_running or self._alerts.rules == before or not self._alerts.needs_new_run(name):
            return
        self.pause()
        try:
            self.resume()
        except BaseException:
            self._alerts.rules = before
            if self.is_paused:
                self.resume()
            raise

    def get_alerts(self, last_n: int | None = None) -> list[AlertEvent]:
        """What alerts did so far, also after the end: the last `last_n` of their events, or all.

        Keys are those of `events.list[]` in the report (docs/REPORT.md), with times from the first start on.
        """
        found = self._alerts.events()
        return found if last_n is None else found[max(len(found) - last_n, 0) :]

    def get_statistics(self) -> dict[str, Any] | None:
        """The report of the newest stretch (docs/REPORT.md); while it tracks, that so far, some seconds old.

        It is there from some 2 s on, and renewed each 15 s. None: there is none yet. After `stop()`, `reports` has all.
        """
        for stretch in reversed(self._stretches):
            found = stretch.so_far()
            if found is not None:
                return found
        return self.reports[-1] if self.reports else None

    def handle_exception(self, error: BaseException, context: str | None = None, metadata: object = None) -> str | None:
        """Leaves a bundle of evidence if this says that memory was exhausted: its directory. None: it does not.

        It is what `capture_oom` does with an exception, for a program that catches it itself. Nothing is raised.
        """
        from gpu_track._record import handle  # noqa: PLC0415 (few programs need it)

        return handle(error, context, metadata)

    @property
    def alert_errors(self) -> int:
        """How many calls of `on_alert` have raised. The first one is a warning."""
        return self._alerts.errors

    def to_json(self) -> dict[str, Any]:
        """`resource_usage` as dictionaries. What is not known is None. Raises RuntimeError before the end."""
        if self.resource_usage is None:
            raise RuntimeError(
                "Cannot display the tracker in string or JSON format before tracking completes. Exit the content "
                "manager or call the stop() method before calling to_json() or str()"
            )
        return self.resource_usage.to_json()

    def __str__(self) -> str:
        return "\n".join(lines(self.to_json()))

    def _stop_unasked(self, started: Future[Tracker]) -> None:
        if not started.cancelled() and started.exception() is None:
            try:
                self.stop()
            except Exception as problem:
                self._warn(str(problem))

    def _begin_stretch(self) -> None:
        assert self._directory is not None and self._metrics is not None
        number = len(self._stretches) + 1
        file = self._tracking_file
        if file is not None and number > 1:
            # gpu-track-run does not append to a file.
            stem, end = os.path.splitext(file)
            file = f"{stem}.{number}{end}"
        events = os.path.join(self._directory, f"events.{number}.jsonl")
        stretch = Stretch(
            self._directory,
            process_id=self._process_id,
            options=[*self._options, *self._alerts.options(events)],
            tracking_file=file,
            kept_file=self._kept_file,
            metrics=self._metrics,
            warn=self._warn,
        )
        self._stretches.append(stretch)
        try:
            stretch.begin()
            self._alerts.begin(events, stretch.begin_s - self._stretches[0].begin_s)
        except BaseException as problem:
            self._undo_stretch()
            if isinstance(problem, NotTracked) and str(problem).startswith("--alert"):
                raise ValueError(str(problem)) from None
            raise

    def _undo_stretch(self) -> None:
        """Takes back the last stretch, however far it began."""
        self._stretches[-1].abandon(0.0)
        self._alerts.end()
        self._stretches.pop()

    def _undo_start(self) -> None:
        """Takes back a start that failed, or that Ctrl-C has interrupted."""
        if self._stretches:
            self._undo_stretch()
        if self in _running:
            _running.remove(self)
        self.state = Tracker.State.NEW
        self._clean()

    def _end_stretch(self) -> None:
        try:
            self._stretches[-1].end(self.n_join_attempts, self.join_timeout)
        finally:
            # Also after Ctrl-C: their thread must not outlive the stretch.
            self._alerts.end()

    def _conclude(self) -> None:
        """Makes `resource_usage`. Raises RuntimeError if no stretch has a report."""
        tracked = [stretch for stretch in self._stretches if stretch.has_tracked]
        self.reports = [stretch.report for stretch in tracked if stretch.report is not None]
        if len(self.reports) < len(tracked):
            problem = next(stretch.problem for stretch in tracked if stretch.report is None)
            if not self.reports:
                raise RuntimeError(f"{problem} Tracking results cannot be obtained.")
            self._warn(f"{problem} The figures lack a stretch between two pauses.")
        if self.reports:
            self.resource_usage = joined([ResourceUsage.of_report(report) for report in self.reports])
        else:
            self.resource_usage = ResourceUsage.unknown(*self._units)
        for report in self.reports:
            for warning in report["warnings"]:
                self._warn(warning["text"])
        unknown = unknown_figures(self.resource_usage.to_json())
        if unknown:
            self._warn(f"Not known: {', '.join(unknown)}.")
        if self._kept_file is not None:
            with contextlib.suppress(OSError):
                os.remove(self._kept_file)

    def _over_time(self, arguments: list[str], times: Sequence[str], forms: Sequence[str]) -> list[dict[str, Any]]:
        """What `gpu-track report` tells of each stretch. Times count from the first start on."""
        if not self._stretches:
            raise RuntimeError("Nothing is known of the run over time before tracking starts.")
        found: list[dict[str, Any]] = []
        for stretch in self._stretches:
            if not stretch.has_tracked:
                continue
            later_s = stretch.begin_s - self._stretches[0].begin_s
            with JsonFiles() as files:
                if stretch.tracking_file is not None and stretch.tracking_file.endswith(tuple(forms)):
                    source = stretch.tracking_file
                elif stretch.report is not None and forms is _TIMELINE_FORMS:
                    source = files.add(stretch.report)
                else:
                    raise RuntimeError(
                        f"That needs a tracking file in {' or '.join(forms)}: give Tracker its tracking_file."
                    )
                command = ["report", *arguments, file_argument(source)]
                answer = ask_json(command, warns=not self._is_quiet, expected=_OF_OTHER_TIMES)
            for entry in answer["points"] if isinstance(answer, dict) else answer:
                entry.update({name: entry[name] + later_s for name in times})
                found.append(entry)
        return found

    def _forget_metrics(self) -> None:
        """Removes the metrics of a tracker that nobody can ask any more. The end of its life can be long in coming."""
        if self._removal is not None:
            self._removal()

    def _warn(self, message: str) -> None:
        if not self._is_quiet:
            LOG.warning("%s", message)

    def _clean(self) -> None:
        if self._directory is None:
            return
        if self._metrics is not None:
            self._metrics.close()
            if self._metrics_file is None and self.state is Tracker.State.STOPPED and self._metrics.has_values():
                # `metrics()` and `timeline()` need the file as long as there is a tracker.
                self._removal = weakref.finalize(self, _remove, self._directory, self._owner)
                return
            if self._metrics_file is not None and self._metrics.is_open and self.state is Tracker.State.NEW:
                # Tracking did not begin. The next try is to find no file.
                with contextlib.suppress(OSError):
                    os.remove(self._metrics_file)
        remove_directory(self._directory)


def _remove(directory: str, owner: int) -> None:
    """Removes a directory that this process has made. A forked child has the parent's objects, too."""
    if owner == os.getpid():
        remove_directory(directory)


def _in_thread(work: Callable[[], _Result]) -> Future[_Result]:
    """Does something in a thread of its own, which the end of the event loop does not cancel."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 (it takes as long to import as all of this module)

    executor = ThreadPoolExecutor(1)
    try:
        return executor.submit(work)
    finally:
        executor.shutdown(wait=False)


# Is held while a state is looked at and changed.
_changing = threading.Lock()
# Those that have started and not stopped, by this process or a parent of it.
_running: list[Tracker] = []


def _session_of_newest() -> str | None:
    """The segments of the newest tracker of this process that runs. None: none does."""
    own = [tracker for tracker in _running if tracker._owner == os.getpid()]
    return next((session for tracker in reversed(own) if (session := tracker._stretches[-1].session)), None)


def _has_paused() -> bool:
    """Whether a tracker of this process is paused."""
    return any(tracker.is_paused and tracker._owner == os.getpid() for tracker in _running)


def _stop_at_exit() -> None:
    """Ends what the program has not stopped, so that nothing of it is left behind. Nobody reads its report."""
    for tracker in _running:
        if tracker._owner == os.getpid():
            try:
                tracker._stretches[-1].abandon(_EXIT_TIMEOUT_S)
            finally:
                tracker._alerts.end()
                tracker._clean()


def _renew_lock() -> None:
    """A thread that held the lock is not in a forked child."""
    global _changing  # noqa: PLW0603
    _changing = threading.Lock()


placeless.is_paused = _has_paused
newest.session = _session_of_newest
atexit.register(_stop_at_exit)
os.register_at_fork(after_in_child=_renew_lock)
