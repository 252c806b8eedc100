"""Share of what every token needs (all but the routed experts) that is not in memory while it generates and reads: it is read again
for every token.

Zero while nothing is read or nothing is missing. Sources: cachestat(2) by the ranges of the model's layout (at most 30 s old),
/proc/<pid>/io, /slots.
"""

from __future__ import annotations

from moetuned.decide.decode_progress import decode_progress
from moetuned.decide.signals import other_resident_ratio, process_read_bytes_per_second
from moetuned.decide.window import Window, once

UNIT = "ratio"

SECONDS = 3.0
NOTHING_READ_BYTES_PER_SECOND = 1e6


def compute(window: Window) -> float | None:
    """0 to 1; None without a scan by layout, while it does not generate, or when its reads are unknown."""
    resident = once(window, other_resident_ratio.compute)
    read = once(window, process_read_bytes_per_second.compute)
    progress = decode_progress(window, SECONDS)
    if resident is None or read is None or progress is None or not progress.tokens:
        return None
    return 0.0 if read < NOTHING_READ_BYTES_PER_SECOND else 1.0 - resident
