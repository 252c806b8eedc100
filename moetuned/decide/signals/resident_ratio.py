"""Share of the model in page cache, from the last scan (at most 30 s old).

Source: cachestat(2) or mincore(2) over the model's files.
"""

from __future__ import annotations

from moetuned.decide.counters import resident_bytes
from moetuned.decide.window import Window, latest

UNIT = "ratio"

MAX_AGE_SECONDS = 30.0


def compute(window: Window) -> float | None:
    """0 to 1; None without a scan."""
    resident, size = latest(window, MAX_AGE_SECONDS, resident_bytes), window.facts.model_bytes
    return None if resident is None or not size else min(1.0, resident / size)
