"""Share of what every token needs (all but the routed experts) in page cache, from the last scan (at most 30 s old).

The kernel keeps it at 1 even in a small cache; below it, every token re-reads. Source: cachestat(2) by the ranges of the model's layout.
"""

from __future__ import annotations

from moetuned.decide.resident import scanned_share
from moetuned.decide.window import Moment, Window

UNIT = "ratio"


def compute(window: Window) -> float | None:
    """0 to 1; None without a scan by layout or without any such bytes."""
    layout = window.facts.layout
    return None if layout is None else scanned_share(window, layout.other_bytes, _resident)


def _resident(moment: Moment) -> int | None:
    residency = moment.backend.residency
    return None if residency is None else residency.other_bytes
