"""Requests that were in the disks under the model at a time, on average, for everybody on the machine.

Below 1 the disks had pauses; what a single thread waits for is about 1. Of several disks the sum. Source: /sys/block/<dev>/stat (the
time that requests spent, weighted by their number).
"""

from __future__ import annotations

from moetuned.decide.counters import disk_total, queue_ms
from moetuned.decide.window import Window, tick_rate

UNIT = "requests"


def compute(window: Window) -> float | None:
    """Requests; None when a disk under the model is unknown."""
    disks = window.facts.disks
    ms_per_second = tick_rate(window, lambda moment: disk_total(moment, disks, queue_ms))
    return None if ms_per_second is None else ms_per_second / 1000
