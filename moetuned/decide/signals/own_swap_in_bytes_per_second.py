"""Bytes read back from swap that are the backend's, beside the machine's `swap_in_bytes_per_second`, over three seconds.

From its memory cgroup: where the kernel counts swapped pages by cgroup these, else refaults of anonymous pages, each of which is a
page that was swapped out and is read again. Without a cgroup whose they are is unknown, unless nothing is swapped in at all.
Sources: memory.stat pswpin, workingset_refault_anon; /proc/vmstat pswpin.
"""

from __future__ import annotations

from moetuned.decide.counters import own_swap_in_pages
from moetuned.decide.window import Moment, Window, last_seconds, rate

UNIT = "bytes/s"

SECONDS = 3.0
"""Statistics of a cgroup may be two seconds old (the kernel flushes them that often)."""


def compute(window: Window) -> float | None:
    """Bytes a second; None when unknown."""
    moments = last_seconds(window, SECONDS)
    if window.now.backend.cgroup is not None:
        pages = rate(moments, own_swap_in_pages)
        return None if pages is None else pages * window.facts.page_bytes
    return 0.0 if rate(moments, _machine) == 0 else None


def _machine(moment: Moment) -> int | None:
    vmstat = moment.machine.vmstat
    return None if vmstat is None else vmstat.swap_in_pages
