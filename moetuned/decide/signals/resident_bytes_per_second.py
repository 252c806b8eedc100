"""How fast the model's resident bytes grow (negative: shrink), between the last two scans.

Growing while refaults are high is re-warming, not thrashing. Source: cachestat(2) or mincore(2).
"""

from __future__ import annotations

import itertools

from moetuned.decide.counters import resident_bytes
from moetuned.decide.window import Window, trend

UNIT = "bytes/s"


def compute(window: Window) -> float | None:
    """Bytes a second; None with fewer than two scans in the window."""
    found = (moment for moment in reversed(window.moments) if moment.resident_bytes is not None)
    return trend(tuple(itertools.islice(found, 2))[::-1], resident_bytes)
