"""Who else reads and grows now, for `moetunectl top`: looks of its own at all processes, every few seconds, while somebody watches.

The daemon asks that seldom, and only when an event wants a name. Without root only one's own processes can be seen to read.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping

from moetuned.host.process_looks import Who, proc_directory
from moetuned.host.top_growers import Growers
from moetuned.host.top_readers import Reader, Readers
from moetuned.schema.units import format_bytes, format_duration, format_rate

EVERY_SECONDS = 3.0
GROWTH_SECONDS = 60.0
LEAST_GROWTH_BYTES = 64 << 20
MOST = 2
"""Of each, those that read most and those that grew most."""

_Sizes = Mapping[tuple[int, int], tuple[Who, int]]


class Others:
    """Remembers the looks of the last minute. Used by one thread."""

    def __init__(self, root: str = "/", monotonic: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._monotonic = monotonic
        self._readers = Readers()
        self._growers = Growers()
        self._looked_at: float | None = None
        self._sizes: deque[tuple[float, _Sizes]] = deque()
        self._said: tuple[str, ...] = ()

    def look(self, without: Collection[int]) -> tuple[str, ...]:
        """A clause each, but for the pids in `without` and their children. What the last look found while it is new."""
        now = self._monotonic()
        if self._looked_at is not None and now - self._looked_at < EVERY_SECONDS:
            return self._said
        since, self._looked_at = self._looked_at, now
        try:
            with proc_directory(self._root) as proc:
                pids = proc.pids()
                read = self._readers.look(proc, pids, now)
                held = self._growers.look(proc, pids)
        except OSError as error:
            self._said = (f"cannot be seen: {error.strerror}",)
            return self._said
        self._sizes.append((now, {(one.who.pid, one.who.start_ticks): (one.who, one.anonymous_bytes) for one in held}))
        while now - self._sizes[0][0] > GROWTH_SECONDS:
            self._sizes.popleft()
        reads = [] if since is None else _reads(read, without, now - since)
        if not reads and self._readers.unseen and os.geteuid() != 0:
            reads = ["who reads can only be seen by root"]
        self._said = (*reads, *_growth(self._sizes, without))
        return self._said


def _reads(read: tuple[Reader, ...], without: Collection[int], seconds: float) -> list[str]:
    found = []
    for one in read:
        if one.who is None or not _is_other(one.who, without):
            continue
        found.append(f"{_shown(one.who)} reads {format_rate(one.read_bytes / seconds)}")
    return found[:MOST]


def _growth(sizes: deque[tuple[float, _Sizes]], without: Collection[int]) -> list[str]:
    """Who is larger than at the first look of the last minute that saw it."""
    last_at, last = sizes[-1]
    grown = []
    for key, (who, size) in last.items():
        first_at, first = next((at, look[key][1]) for at, look in sizes if key in look)
        if size - first >= LEAST_GROWTH_BYTES and _is_other(who, without):
            grown.append(
                (
                    size - first,
                    f"{_shown(who)} grew {format_bytes(size - first)} in {format_duration(last_at - first_at)}",
                )
            )
    return [text for _, text in sorted(grown, reverse=True)[:MOST]]


def _is_other(who: Who, without: Collection[int]) -> bool:
    return who.pid not in without and who.parent not in without


def _shown(who: Who) -> str:
    return f"{who.name} (pid {who.pid}" + (f", {who.unit})" if who.unit else ")")
