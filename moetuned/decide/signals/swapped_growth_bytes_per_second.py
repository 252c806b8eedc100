"""How fast the backend's own memory moves into swap (negative: comes back), over five seconds.

Zero while as much comes back as goes: `own_swap_in_bytes_per_second` tells that. Source: /proc/<pid>/status VmSwap.
"""

from __future__ import annotations

from moetuned.decide.window import Moment, Window, last_seconds, trend

UNIT = "bytes/s"


def compute(window: Window) -> float | None:
    """Bytes a second; None when unknown."""
    return trend(last_seconds(window, 5.0), _swapped)


def _swapped(moment: Moment) -> int | None:
    process = moment.backend.process
    return None if process is None else process.swap_bytes
