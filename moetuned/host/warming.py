"""Warms a model: starts the warming process in the backend's memory cgroup and follows it without blocking."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from moetuned.host.cgroup_process import CgroupProcess, start_small, why_ended
from moetuned.host.followed_process import FollowedProcess
from moetuned.host.processes import ProcessIdentity
from moetuned.schema.model import ByteRange


class _Line(msgspec.Struct):
    """One line of the warming process."""

    done_bytes: int = 0
    state: str = "running"
    detail: str | None = None
    rate_bytes_per_second: float | None = None
    eta_seconds: float | None = None
    outside: str | None = None
    unwatched: str | None = None
    finished: bool | None = None
    seconds: float | None = None
    rss_bytes: int | None = None
    error: str | None = None


class WarmProgress(msgspec.Struct, frozen=True):
    """How far warming is. `state`: running | paused | done | stopped | failed; `error` says why it failed, in one sentence.

    `detail`: why it is paused, or why it stopped by itself. `rate_bytes_per_second`: of the last seconds. `eta_seconds`: until all is
    warm at that rate; None while it is unknown. `outside`: one sentence when it warms from outside the backend's cgroup;
    `unwatched`: what of the backend it cannot watch, and why.
    """

    state: str
    done_bytes: int
    goal_bytes: int
    seconds: float | None = None
    rss_bytes: int | None = None
    error: str | None = None
    detail: str | None = None
    rate_bytes_per_second: float | None = None
    eta_seconds: float | None = None
    outside: str | None = None
    unwatched: str | None = None

    @property
    def going_on(self) -> bool:
        """Whether its process still is there: running or paused."""
        return self.state in ("running", "paused")


class Warming(FollowedProcess[_Line, WarmProgress]):
    """A running warming process. Watch `fileno()` for reading, then call `advance()`."""

    def __init__(self, process: CgroupProcess, goal_bytes: int) -> None:
        """Use `warm_in_cgroup`."""
        super().__init__(process, _Line, WarmProgress("running", 0, goal_bytes))
        self._outcome: str | None = None

    def _take(self, line: _Line) -> None:
        if line.error is not None:
            self._outcome = "failed"
        elif line.finished is not None:
            self._outcome = "done" if line.finished else "stopped"
        self.progress = WarmProgress(
            "paused" if line.state == "paused" else "running",
            max(line.done_bytes, self.progress.done_bytes),
            self.progress.goal_bytes,
            line.seconds,
            line.rss_bytes,
            line.error,
            line.detail,
            line.rate_bytes_per_second,
            line.eta_seconds,
            line.outside or self.progress.outside,
            line.unwatched or self.progress.unwatched,
        )

    def _end(self, code: int) -> None:
        stopped, error = self._process.stopped, self.progress.error
        if self._outcome is None:
            self._outcome = "stopped" if stopped else "failed"
            error = None if stopped else f"the warming process is gone: {why_ended(code)}"
        self.progress = msgspec.structs.replace(
            self.progress, state=self._outcome, error=error, rate_bytes_per_second=None, eta_seconds=None
        )


def warm_in_cgroup(
    paths: Sequence[str],
    ranges: Sequence[ByteRange],
    twice: Sequence[ByteRange] = (),
    *,
    cgroup_directory: str | None = None,
    rate_bytes_per_second: int | None = None,
    outside_when_refused: bool = False,
    backend: ProcessIdentity | None = None,
) -> Warming:
    """Start touching `twice` (what must stay) and then `ranges` of the model's part files.

    `cgroup_directory`: the backend's memory cgroup, joined first (None: stay where the daemon is); where that is refused it fails, or with
    `outside_when_refused` goes on and says so. `backend`: the process that comes first: warming pauses by itself while it reads or
    memory is under pressure (state "paused"), and stops when it ends. Raises StartError.
    """
    plan = msgspec.json.encode(
        {
            "paths": list(paths),
            "ranges": [(one.part, one.offset, one.length) for one in ranges],
            "twice": [(one.part, one.offset, one.length) for one in twice],
            "rate": rate_bytes_per_second,
            "cgroup": cgroup_directory,
            "outside": outside_when_refused,
            "backend": None if backend is None else (backend.pid, backend.start_ticks),
        }
    )
    process = start_small("moetuned.host.warming_process", plan, "the warming process")
    return Warming(process, sum(one.length for one in (*ranges, *twice)))
