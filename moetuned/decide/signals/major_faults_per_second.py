"""Major faults of the backend's process and all its threads.

They count read-ahead windows, not cost: the same work made 80 faults/s at 600 MB/s with 8 MiB of read-ahead and 10,000 faults/s at
41 MB/s without. Read it with `bytes_per_major_fault`. Source: /proc/<pid>/stat.
"""

from __future__ import annotations

from moetuned.decide.counters import major_faults
from moetuned.decide.window import Window, tick_rate

UNIT = "faults/s"


def compute(window: Window) -> float | None:
    """Faults a second since the sample before."""
    return tick_rate(window, major_faults)
