"""How much the page cache grew for each byte the backend read, over three seconds.

Near 1: reads fill it (cold, warming, loading again after an eviction), whatever refaults say. Near 0 or below: each page read
pushes another one out. Unknown while it reads less than 1 MB/s. The cache of the backend's cgroup; without one the machine's.
Sources: memory.stat file, /proc/meminfo Cached, /proc/<pid>/io.
"""

from __future__ import annotations

from moetuned.decide.counters import cache_bytes, process_read_bytes
from moetuned.decide.window import Window, last_seconds, rate, trend

UNIT = "ratio"

MIN_READ_BYTES_PER_SECOND = 1e6


def compute(window: Window) -> float | None:
    """About -1 to 1, beyond when others use the same cache; None when unknown or when hardly anything is read."""
    moments = last_seconds(window, 3.0)
    growth, read = trend(moments, cache_bytes), rate(moments, process_read_bytes)
    if growth is None or read is None or read < MIN_READ_BYTES_PER_SECOND:
        return None
    return growth / read
