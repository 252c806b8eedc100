"""Share of the model in page cache, from the last scan (at most 30 s old).

Source: cachestat(2) or mincore(2) over the model's files.
"""

from __future__ import annotations

from moetuned.decide.counters import resident_bytes
from moetuned.decide.resident import scanned_share
from moetuned.decide.window import Window

UNIT = "ratio"


def compute(window: Window) -> float | None:
    """0 to 1; None without a scan."""
    return scanned_share(window, window.facts.model_bytes, resident_bytes)
