"""Bytes read back from swap, on the whole machine.

Source: /proc/vmstat pswpin.
"""

from __future__ import annotations

from moetuned.decide.window import Moment, Window, tick_rate

UNIT = "bytes/s"


def compute(window: Window) -> float | None:
    """Bytes a second since the sample before; None when unknown."""
    pages = tick_rate(window, _pages)
    return None if pages is None else pages * window.facts.page_bytes


def _pages(moment: Moment) -> int | None:
    vmstat = moment.machine.vmstat
    return None if vmstat is None else vmstat.swap_in_pages
