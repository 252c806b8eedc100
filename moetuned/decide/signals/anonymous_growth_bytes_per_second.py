"""How fast the backend's own anonymous memory grows (negative: shrinks), over five seconds.

Source: /proc/<pid>/status RssAnon + VmSwap.
"""

from __future__ import annotations

from moetuned.decide.counters import anonymous_bytes
from moetuned.decide.window import Window, last_seconds, trend

UNIT = "bytes/s"


def compute(window: Window) -> float | None:
    """Bytes a second; None when unknown."""
    return trend(last_seconds(window, 5.0), anonymous_bytes)
