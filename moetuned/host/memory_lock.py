"""Keeps ranges of a model locked in memory: starts the locking process in the backend's cgroup and follows it without blocking."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from moetuned.host.cgroup_process import CgroupProcess, start_small, why_ended
from moetuned.host.followed_process import FollowedProcess
from moetuned.schema.model import ByteRange


class _Line(msgspec.Struct):
    """One line of the locking process."""

    locked_bytes: int = 0
    held: bool = False
    rss_bytes: int | None = None
    released: str | None = None
    error: str | None = None


class LockProgress(msgspec.Struct, frozen=True):
    """What is locked. `state`: locking | held | released | failed; `detail` says why it was released or failed, one sentence.

    `rss_bytes` of the process counts what it has locked.
    """

    state: str
    locked_bytes: int
    goal_bytes: int
    rss_bytes: int | None = None
    detail: str = ""

    @property
    def ended(self) -> bool:
        """Whether nothing is locked any more and the process is gone."""
        return self.state in ("released", "failed")


class MemoryLock(FollowedProcess[_Line, LockProgress]):
    """A running locking process. Watch `fileno()` for reading, then call `advance()`."""

    def __init__(self, process: CgroupProcess, goal_bytes: int) -> None:
        """Use `lock_in_cgroup`."""
        super().__init__(process, _Line, LockProgress("locking", 0, goal_bytes))
        self._outcome: LockProgress | None = None

    def _take(self, line: _Line) -> None:
        goal = self.progress.goal_bytes
        if line.error is not None:
            self._outcome = LockProgress("failed", 0, goal, detail=line.error)
        elif line.released is not None:
            self._outcome = LockProgress("released", 0, goal, detail=line.released)
        else:
            state = "held" if line.held else "locking"
            self.progress = LockProgress(state, line.locked_bytes, goal, line.rss_bytes)

    def _end(self, code: int) -> None:
        goal = self.progress.goal_bytes
        if self._outcome is not None:
            self.progress = self._outcome
        elif self._process.stopped:
            self.progress = LockProgress("released", 0, goal, detail="it was told to")
        else:
            self.progress = LockProgress("failed", 0, goal, detail=f"the locking process is gone: {why_ended(code)}")


def lock_in_cgroup(
    paths: Sequence[str],
    part_bytes: Sequence[int],
    ranges: Sequence[ByteRange],
    *,
    budget_bytes: int,
    keep_free_bytes: int,
    keep_free_ratio: float,
    rate_bytes_per_second: int,
    cgroup_directory: str | None,
) -> MemoryLock:
    """Start locking `ranges` (whole pages, as `decide.protection` gives them) of the model's part files.

    It locks nothing when they are more than `budget_bytes` or the whole model, and lets go when less than `keep_free_bytes` or
    `keep_free_ratio` of a limit is left. `cgroup_directory`: the backend's memory cgroup (None: stay where the daemon is, and only the
    machine's RAM limits). Raises StartError.
    """
    plan = msgspec.json.encode(
        {
            "paths": list(paths),
            "sizes": list(part_bytes),
            "ranges": [(one.part, one.offset, one.length) for one in ranges],
            "budget": budget_bytes,
            "keep_free_bytes": keep_free_bytes,
            "keep_free_ratio": keep_free_ratio,
            "rate": rate_bytes_per_second,
            "cgroup": cgroup_directory,
        }
    )
    process = start_small("moetuned.host.memory_lock_process", plan)
    return MemoryLock(process, sum(one.length for one in ranges))
