"""Bytes that were in the page cache before, were evicted, and were read again, as far as they are the backend's.

From the backend's own memory cgroup. Without one, from the whole machine, and then only while the backend's own reads explain
them; a neighbour's refaults make it unknown. A refault alone is no trouble: loading again after an eviction shows them too.
Sources: memory.stat workingset_refault_file; /proc/vmstat.
"""

from __future__ import annotations

from moetuned.decide.refaults import refault_rate
from moetuned.decide.window import Window

UNIT = "bytes/s"


def compute(window: Window) -> float | None:
    """Bytes a second over the last two seconds (the kernel flushes cgroup statistics every two)."""
    return refault_rate(window, 2.0)
