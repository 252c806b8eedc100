"""Who holds the most anonymous memory, in RAM and in swap, from look to look at all processes.

/proc/<pid>/statm is cheap for all (counters, no page table is walked); status is read of the largest few only.
"""

from __future__ import annotations

import heapq
import os

import msgspec

from moetuned.host.process_looks import ProcDirectory, Who
from moetuned.parse.kernel_numbers import line_kilobytes

MOST = 12
_RESIDENT, _SHARED = 1, 2


class Holding(msgspec.Struct, frozen=True):
    """Anonymous memory of one process, in RAM and in swap, bytes."""

    who: Who
    anonymous_bytes: int


class Growers:
    """Remembers who was large: one that is swapped out looks small. Used by one thread at a time."""

    def __init__(self) -> None:
        self._large: frozenset[int] = frozenset()
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    def look(self, proc: ProcDirectory, pids: list[int]) -> tuple[Holding, ...]:
        """The largest, most first."""
        resident = {pid: size for pid in pids if (size := self._resident(proc, pid)) is not None}
        candidates = heapq.nlargest(MOST, resident, key=lambda pid: resident[pid])
        candidates += [pid for pid in self._large if pid in resident and pid not in candidates]
        found = [holding for pid in candidates if (holding := _holding(proc, pid)) is not None]
        largest = sorted(found, key=lambda one: -one.anonymous_bytes)[:MOST]
        self._large = frozenset(one.who.pid for one in largest)
        return tuple(largest)

    def _resident(self, proc: ProcDirectory, pid: int) -> int | None:
        try:
            fields = proc.read(pid, "statm", 256).split()
            return (int(fields[_RESIDENT]) - int(fields[_SHARED])) * self._page_bytes
        except (OSError, ValueError, IndexError):
            return None


def _holding(proc: ProcDirectory, pid: int) -> Holding | None:
    try:
        status = proc.read(pid, "status", 1 << 14)
    except OSError:
        return None
    resident = line_kilobytes(status, "RssAnon")
    who = None if resident is None else proc.who(pid)
    if resident is None or who is None:
        return None
    return Holding(who, resident + (line_kilobytes(status, "VmSwap") or 0))
