"""Who makes the disks read, from look to look at /proc/<pid>/io of all processes.

A process that has ended is not there any more, but its parent, once it has collected it, has its counts added to its own
(kernel/exit.c, wait_task_zombie; measured: a shell has read what its `dd` read). What init has collected belongs to processes that have
ended, whoever they were. Files that a kernel thread reads for somebody else (kworker, loop devices) are that somebody's.
"""

from __future__ import annotations

import msgspec

from moetuned.host.process_looks import ProcDirectory, Who
from moetuned.parse.kernel_numbers import line_number

LEAST_BYTES_PER_SECOND = 1e6
LEAST_BYTES = 4 << 20
_KERNEL_PARENT = 2
_INIT = 1
_FOR_OTHERS = ("kworker/", "loop")


class Reader(msgspec.Struct, frozen=True):
    """What one process read since the look before. `who` None: processes that have ended since."""

    who: Who | None
    read_bytes: int


class Readers:
    """The counters of the last look. Used by one thread at a time."""

    def __init__(self) -> None:
        self._last: dict[int, int] = {}
        self._parents: dict[int, int] = {}
        """Of processes that read much."""
        self._at: float | None = None
        self.unseen = 0
        """Processes of the last look whose counters may not be read."""

    def look(self, proc: ProcDirectory, pids: list[int], now: float) -> tuple[Reader, ...]:
        """Who read more than 1 MB/s since the look before, most first; () at the first look. `now`: monotonic seconds."""
        counters: dict[int, int] = {}
        self.unseen = 0
        for pid in pids:
            try:
                count = line_number(proc.read(pid, "io"), "read_bytes", ": ")
            except PermissionError:
                self.unseen += 1
            except OSError:
                pass
            else:
                if count is not None:
                    counters[pid] = count
        before, earlier = self._last, self._at
        self._last, self._at = counters, now
        if earlier is None:
            return ()
        counted_before = self._ended(before, counters)
        least = max(LEAST_BYTES, LEAST_BYTES_PER_SECOND * (now - earlier))
        found: list[Reader] = []
        for pid, count in counters.items():
            # A pid that is new, or whose counter went back, is another process: all it read was read since.
            known = before.get(pid, 0)
            read = (count - known if known <= count else count) - counted_before.get(pid, 0)
            if read >= least and (reader := self._reader(proc, pid, read)) is not None:
                found.append(reader)
        return tuple(sorted(found, key=lambda one: -one.read_bytes))

    def _ended(self, before: dict[int, int], counters: dict[int, int]) -> dict[int, int]:
        """By parent: what was told as an ended child's and is in the parent's count now."""
        told: dict[int, int] = {}
        for pid in [pid for pid in self._parents if pid not in counters]:
            parent = self._parents.pop(pid)
            told[parent] = told.get(parent, 0) + before.get(pid, 0)
        return told

    def _reader(self, proc: ProcDirectory, pid: int, read: int) -> Reader | None:
        if pid == _INIT:
            return Reader(None, read)
        who = proc.who(pid)
        if who is None:
            return Reader(None, read)
        if who.parent == _KERNEL_PARENT and who.name.startswith(_FOR_OTHERS):
            return None
        self._parents[pid] = who.parent
        return Reader(who, read)
