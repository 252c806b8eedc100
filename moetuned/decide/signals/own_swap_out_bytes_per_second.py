"""Bytes of the backend's cgroup that are written to swap, over three seconds.

Where the kernel does not count that by cgroup: how much more is in swap, and how much was read back from it meanwhile.
Sources: memory.stat pswpout, workingset_refault_anon, swap; memory.swap.current.
"""

from __future__ import annotations

from moetuned.decide.counters import own_swap_in_pages
from moetuned.decide.window import Moment, Window, last_seconds, rate, trend

UNIT = "bytes/s"

SECONDS = 3.0


def compute(window: Window) -> float | None:
    """Bytes a second; None when unknown."""
    moments = last_seconds(window, SECONDS)
    pages = rate(moments, _out)
    if pages is not None:
        return pages * window.facts.page_bytes
    grown, back = trend(moments, _swapped), rate(moments, own_swap_in_pages)
    return None if grown is None or back is None else max(0.0, grown + back * window.facts.page_bytes)


def _out(moment: Moment) -> int | None:
    cgroup = moment.backend.cgroup
    return None if cgroup is None else cgroup.swap_out_pages


def _swapped(moment: Moment) -> int | None:
    cgroup = moment.backend.cgroup
    return None if cgroup is None else cgroup.swap_bytes
