"""Share of what the backend reads that it had in memory before.

Near 0: first reads (cold, warming). Near 1: the page cache is too small for what it uses, or it was evicted. Over three seconds,
unknown while it reads less than 1 MB/s. Sources: as for `refault_bytes_per_second` and `process_read_bytes_per_second`.
"""

from __future__ import annotations

from moetuned.decide.counters import process_read_bytes
from moetuned.decide.refaults import refault_rate
from moetuned.decide.window import Window, last_seconds, rate

UNIT = "ratio"

MIN_READ_BYTES_PER_SECOND = 1e6


def compute(window: Window) -> float | None:
    """0 to 1; None when unknown or when hardly anything is read."""
    read, refaults = rate(last_seconds(window, 3.0), process_read_bytes), refault_rate(window, 3.0)
    if read is None or refaults is None or read < MIN_READ_BYTES_PER_SECOND:
        return None
    return min(1.0, refaults / read)
