"""How fast the page cache the backend lives in grows (negative: shrinks), over three seconds.

Reads that make it grow fill it; reads that do not, push out something else. The cache of the backend's cgroup; without one the
machine's. Sources: memory.stat file; /proc/meminfo Cached.
"""

from __future__ import annotations

from moetuned.decide.counters import cache_bytes
from moetuned.decide.window import Window, last_seconds, trend

UNIT = "bytes/s"


def compute(window: Window) -> float | None:
    """Bytes a second; None when unknown."""
    return trend(last_seconds(window, 3.0), cache_bytes)
