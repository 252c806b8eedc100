"""Bytes the backend read for each token it generated, over at most the last twelve seconds of unbroken decode.

With fewer than three tokens in that time the one in progress is counted too, so the figure is then "at least this much".
Sources: /proc/<pid>/io, /slots.
"""

from __future__ import annotations

from moetuned.decide.counters import process_read_bytes
from moetuned.decide.decode_progress import decode_progress
from moetuned.decide.window import Window, increase

UNIT = "bytes"

MIN_SECONDS = 0.9
FEW_TOKENS = 3


def compute(window: Window) -> float | None:
    """Bytes a token; None when it does not decode or the counters are unknown."""
    progress = decode_progress(window, 12.0)
    if progress is None or progress.seconds < MIN_SECONDS:
        return None
    read = increase(progress.moments, process_read_bytes)
    if read is None:
        return None
    return read / (progress.tokens if progress.tokens >= FEW_TOKENS else progress.tokens + 1)
