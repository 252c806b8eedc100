"""Bytes read for one major fault over the last three seconds: how large the window around a fault is.

Far above the size of an expert's slice means read-ahead fetches what nobody asked for. Unknown below 10 faults. Sources:
/proc/<pid>/io and stat.
"""

from __future__ import annotations

from moetuned.decide.counters import major_faults, process_read_bytes
from moetuned.decide.window import Window, increase, last_seconds

UNIT = "bytes"

MIN_FAULTS = 10


def compute(window: Window) -> float | None:
    """Bytes a fault; None when unknown or with too few faults to tell."""
    moments = last_seconds(window, 3.0)
    read, faults = increase(moments, process_read_bytes), increase(moments, major_faults)
    return None if read is None or faults is None or faults < MIN_FAULTS else read / faults
