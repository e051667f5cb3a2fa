"""What is read of the recorder's record and of gpu-track-run's report; both have more keys."""

from __future__ import annotations

from typing import TypedDict


class RecordedProcess(TypedDict):
    """A process as the kernel saw it (`Account` in tests/truth/src/tree.rs)."""

    pid: int
    ppid: int
    # How many programs it executed; 0 if it ended as a copy of its parent.
    execs: int
    comm: str
    # The peak RSS of the last program only.
    hiwater_rss_bytes: int


class Record(TypedDict):
    """What the recorder says of a run (`Record` in tests/truth/src/record.rs)."""

    # Wait status of the command.
    status: int
    wall_s: float
    cpu_at_end_s: float
    cpu_s: float
    left_at_end: int
    # Peak RSS of the first process before it became the command.
    entrance_rss_bytes: int
    # In the order of their starts; the first one is the command.
    processes: list[RecordedProcess]


class ReportedProcess(TypedDict):
    """A process that the report lists singly."""

    pid: int
    ppid: int
    peak_rss_bytes: int | None
    peak_quality: str


class Processes(TypedDict):
    """The report's section on processes."""

    total: int
    heaviest: list[ReportedProcess]


class CpuTime(TypedDict):
    """The report's section on CPU time."""

    total_s: float


class Coverage(TypedDict):
    """The report's section on how its figures came about."""

    processes: int
    exact: int
    static_executables: list[str]


class Report(TypedDict):
    """gpu-track-run's JSON report."""

    processes: Processes
    cpu_time: CpuTime
    coverage: Coverage
