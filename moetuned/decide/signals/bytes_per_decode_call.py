"""Bytes the backend read for each of its decode calls, over the last two seconds, whatever requests they belonged to.

A decode call makes one token for each busy slot, or takes in a whole batch of a prompt; so a low figure says that tokens cost
nothing to read, also when requests are too short for `bytes_per_token`, while a high one may be a prompt's.
Sources: /proc/<pid>/io, /metrics n_decode_total.
"""

from __future__ import annotations

from moetuned.decide.counters import decode_calls, process_read_bytes
from moetuned.decide.window import Window, increase, last_seconds

UNIT = "bytes"

SECONDS = 2.0
MIN_CALLS = 3.0


def compute(window: Window) -> float | None:
    """Bytes a call; None when there were fewer than three calls or the counters are unknown."""
    moments = last_seconds(window, SECONDS)
    read, calls = increase(moments, process_read_bytes), increase(moments, decode_calls)
    return None if read is None or calls is None or calls < MIN_CALLS else read / calls
