"""Slots of the backend that work on a request now.

Source: /slots; without it /metrics requests_processing.
"""

from __future__ import annotations

from moetuned.decide.counters import busy_slots
from moetuned.decide.window import Window

UNIT = "slots"


def compute(window: Window) -> float | None:
    """Count; None when unknown."""
    busy = busy_slots(window.now)
    return None if busy is None else float(busy)
