"""Bytes read a token over the bytes the missing experts need: 1 is what it should cost.

Much more means that each miss fetches too much (read-ahead), or that what was just read is evicted before it is used again.
Unknown while hardly anything is missing: below one expert slice a layer. Sources: `bytes_per_token`, `missing_bytes_per_token`.
"""

from __future__ import annotations

from moetuned.decide.signals import bytes_per_token, missing_bytes_per_token
from moetuned.decide.window import Window, once

UNIT = "ratio"


def compute(window: Window) -> float | None:
    """Ratio; None when one of its parts is unknown."""
    layout = window.facts.layout
    if layout is None:
        return None
    read, missing = once(window, bytes_per_token.compute), once(window, missing_bytes_per_token.compute)
    if read is None or missing is None:
        return None
    return read / max(missing, float(layout.expert_slice_bytes), 1.0)
