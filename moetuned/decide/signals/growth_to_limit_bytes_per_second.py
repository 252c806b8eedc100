"""How fast memory that cannot be reclaimed grows towards the limit that is reached first.

The growth from which `seconds_to_limit` is taken, of everybody below that limit; growth in steps is averaged over their pauses.
Sources: as for `headroom_bytes`.
"""

from __future__ import annotations

from moetuned.decide.memory_forecast import forecast
from moetuned.decide.window import Window, once

UNIT = "bytes/s"


def compute(window: Window) -> float | None:
    """Bytes a second; None when memory does not grow towards a limit or headroom is unknown."""
    found = once(window, forecast)
    return None if found is None else found.growth_bytes_per_second
