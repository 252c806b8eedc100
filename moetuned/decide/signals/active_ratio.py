"""Share of the last 30 s (or of the window) in which at least one slot worked on a request.

Source: /slots or /metrics.
"""

from __future__ import annotations

from moetuned.decide.window import Window, last_seconds

UNIT = "ratio"


def compute(window: Window) -> float | None:
    """0 to 1; None when no moment says."""
    known = [moment.busy_slots > 0 for moment in last_seconds(window, 30.0) if moment.busy_slots is not None]
    return sum(known) / len(known) if known else None
