"""Bytes the backend's own process made the disks read, page faults on its mapped model included.

It belongs to the backend alone, whatever else uses the disk. Source: /proc/<pid>/io read_bytes (needs root or the same user).
"""

from __future__ import annotations

from moetuned.decide.counters import process_read_bytes
from moetuned.decide.window import Window, tick_rate

UNIT = "bytes/s"


def compute(window: Window) -> float | None:
    """Bytes a second since the sample before."""
    return tick_rate(window, process_read_bytes)
