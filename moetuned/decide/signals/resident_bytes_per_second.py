"""How fast the model's resident bytes grow (negative: shrink), between the last two scans.

Growing while refaults are high is re-warming, not thrashing. Source: cachestat(2) or mincore(2).
"""

from __future__ import annotations

from moetuned.decide.counters import resident_bytes
from moetuned.decide.window import Window, trend

UNIT = "bytes/s"


def compute(window: Window) -> float | None:
    """Bytes a second; None with fewer than two scans in the window."""
    scans = [moment for moment in window.moments if resident_bytes(moment) is not None][-2:]
    return trend(scans, resident_bytes)
