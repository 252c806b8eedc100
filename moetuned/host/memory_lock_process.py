"""A small process that keeps ranges of a model locked in memory: `python -m moetuned.host.memory_lock_process`.

It works inside the backend's memory cgroup, so that what it reads in is charged there. It gets a plan (one line of JSON), maps
and locks, says how far it is, and holds on until its standard input closes, until a limit of memory is near, or until the
file is another one. Its end releases everything, however it ends; the OOM killer takes it before anything else. It locks nothing where
the kernel would then end the backend too (memory.oom.group).
"""

from __future__ import annotations

import os
import stat
import sys
import time

from moetuned.host import inside_cgroup
from moetuned.host.locked_pages import PAGE_BYTES, LockedRange, LockError, allow_locking
from moetuned.host.room_left import dies_together, rooms
from moetuned.schema.units import format_bytes

PIECE_BYTES = 2 << 20
LOOK_EVERY_SECONDS = 0.5
REPORT_EVERY_SECONDS = 0.25


class Plan:
    """What to lock, and how much memory is to stay free. A plain class: msgspec alone would double this process's memory."""

    def __init__(self, plan: dict[str, object]) -> None:
        """Raises KeyError, TypeError or ValueError when something is missing or of another kind."""
        self.paths = [str(path) for path in inside_cgroup.as_list(plan["paths"])]
        self.sizes = [int(str(size)) for size in inside_cgroup.as_list(plan["sizes"])]
        self.ranges = [self._range(each) for each in inside_cgroup.as_list(plan["ranges"])]
        self.budget_bytes = int(str(plan["budget"]))
        self.keep_free_bytes = int(str(plan["keep_free_bytes"]))
        self.keep_free_ratio = float(str(plan["keep_free_ratio"]))
        self.rate_bytes_per_second = int(str(plan["rate"]))
        self.cgroup = None if plan["cgroup"] is None else str(plan["cgroup"])
        self.goal_bytes = sum(length for _, _, length in self.ranges)
        if len(self.sizes) != len(self.paths) or self.rate_bytes_per_second <= 0:
            raise ValueError("sizes or rate are wrong")
        if self.goal_bytes > self.budget_bytes or self.goal_bytes >= sum(self.sizes):
            raise ValueError("it is to lock more than its budget, or the whole model")

    def _range(self, value: object) -> tuple[int, int, int]:
        part, offset, length = (int(str(number)) for number in inside_cgroup.as_list(value))
        if not (0 <= part < len(self.paths) and offset >= 0 and length > 0 and offset % PAGE_BYTES == 0):
            raise ValueError(f"there is no range {value}")
        if length % PAGE_BYTES and offset + length != self.sizes[part]:
            raise ValueError(f"the range {value} is not of whole pages")
        return part, offset, length


class ReleaseError(Exception):
    """Everything is to be released now; the text is why, one sentence."""


class Lock:
    """The files and what is locked of them."""

    def __init__(self, plan: Plan) -> None:
        """Opens nothing yet."""
        self._plan = plan
        self._files: dict[int, tuple[int, os.stat_result]] = {}
        self._ranges: list[LockedRange] = []
        self._said = 0.0
        self.locked_bytes = 0

    def take(self) -> None:
        """Lock all of it, piece by piece. Raises LockError, ReleaseError, OSError."""
        allow_locking(self._plan.goal_bytes + PIECE_BYTES)
        began = time.monotonic()
        for part, offset, length in self._plan.ranges:
            # What is resident is locked at once by LockedRange: there must be room for all of a range that is tried.
            for start in range(offset, offset + length, PIECE_BYTES):
                piece = min(PIECE_BYTES, offset + length - start)
                self.look(piece)
                locked = LockedRange(self._open(part), start, piece)
                self._ranges.append(locked)
                locked.populate(0, piece)
                self.locked_bytes += piece
                self._report()
                early = began + self.locked_bytes / self._plan.rate_bytes_per_second - time.monotonic()
                if inside_cgroup.input_closed(max(0.0, early)):
                    raise ReleaseError("it was told to")

    def look(self, more_bytes: int = 0) -> None:
        """Whether all may stay locked, and `more_bytes` besides. Raises ReleaseError."""
        try:
            found = rooms(self._plan.cgroup)
        except (OSError, ValueError, KeyError) as error:
            raise ReleaseError(f"how much memory is left cannot be read: {error}") from error
        for room in found:
            keep = max(self._plan.keep_free_bytes, int(self._plan.keep_free_ratio * room.limit_bytes))
            keep = min(keep, room.limit_bytes)
            if room.headroom_bytes - more_bytes < keep:
                raise ReleaseError(
                    f"memory nears its limit: {format_bytes(room.headroom_bytes)} of {format_bytes(room.limit_bytes)} are left "
                    f"({room.name})"
                )
        for part, (_, opened) in self._files.items():
            path = self._plan.paths[part]
            try:
                now = os.stat(path)
            except OSError as error:
                raise ReleaseError(f"{path} is gone: {error.strerror}") from error
            if (now.st_dev, now.st_ino) != (opened.st_dev, opened.st_ino):
                raise ReleaseError(f"{path} was replaced by another file")
            if now.st_size != opened.st_size or now.st_mtime_ns != opened.st_mtime_ns:
                raise ReleaseError(f"{path} was written")

    def release(self) -> None:
        """Let everything go; the end of the process would do the same."""
        for each in self._ranges:
            each.close()
        for descriptor, _ in self._files.values():
            os.close(descriptor)
        self._ranges, self._files, self.locked_bytes = [], {}, 0

    def _open(self, part: int) -> int:
        known = self._files.get(part)
        if known is not None:
            return known[0]
        path = self._plan.paths[part]
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise LockError(f"cannot open {path}: {error.strerror}") from error
        status = os.fstat(descriptor)
        self._files[part] = descriptor, status
        if not stat.S_ISREG(status.st_mode):
            raise LockError(f"{path} is no regular file")
        if status.st_size != self._plan.sizes[part]:
            raise LockError(f"{path} has {status.st_size} bytes and not {self._plan.sizes[part]}: it was replaced")
        return descriptor

    def _report(self) -> None:
        now = time.monotonic()
        if now - self._said >= REPORT_EVERY_SECONDS:
            self._said = now
            inside_cgroup.say({"locked_bytes": self.locked_bytes})


def main() -> int:
    """Lock as the plan says and hold; 0 told to end, 1 failed, 3 released by itself."""
    inside_cgroup.begin()
    try:
        plan = Plan(inside_cgroup.read_plan())
    except (ValueError, KeyError, TypeError) as error:
        inside_cgroup.say({"error": f"the plan is wrong: {error!r}"})
        return 1
    together = dies_together(plan.cgroup)
    if together is not None:
        why = f"the kernel ends all of {together} when memory runs out (memory.oom.group, OOMPolicy=kill), this process first"
        inside_cgroup.say({"error": why})
        return 1
    lock = Lock(plan)
    try:
        if plan.cgroup is not None:
            inside_cgroup.join(plan.cgroup)
        lock.take()
        inside_cgroup.say(
            {"locked_bytes": lock.locked_bytes, "held": True, "rss_bytes": inside_cgroup.resident_bytes()}
        )
        while not inside_cgroup.input_closed(LOOK_EVERY_SECONDS):
            lock.look()
    except ReleaseError as why:
        lock.release()
        inside_cgroup.say({"locked_bytes": 0, "released": str(why)})
        return 3
    except LockError as error:
        lock.release()
        inside_cgroup.say({"error": str(error)})
        return 1
    except OSError as error:
        lock.release()
        inside_cgroup.say({"error": f"cannot lock the model from inside the backend's cgroup: {error}"})
        return 1
    lock.release()
    inside_cgroup.say({"locked_bytes": 0, "released": "it was told to"})
    return 0


if __name__ == "__main__":
    sys.exit(main())
