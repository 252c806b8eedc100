"""Seconds until a limit is reached if memory goes on growing as it does.

Known while it grows steadily (over five seconds, in most of them, and still in the last two; the slower of the two rates is
taken), while it grows so fast that waiting for that would be too late, or while it grows in steps with pauses between them
(at least three that stay). One large allocation (a KV cache at start) is no trend, nor is a limit that somebody lowers, nor
page cache. Of the cgroup's limit, those above it and the machine's RAM the one that is reached first counts.
Sources: as for `headroom_bytes`.
"""

from __future__ import annotations

from moetuned.decide.memory_forecast import forecast
from moetuned.decide.window import Window, once

UNIT = "seconds"


def compute(window: Window) -> float | None:
    """Seconds; None when memory does not grow towards a limit or headroom is unknown."""
    found = once(window, forecast)
    return None if found is None else found.seconds
