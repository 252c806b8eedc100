"""`headroom_bytes` as a share of the limit.

Sources: the cgroup's memory files, /proc/meminfo.
"""

from __future__ import annotations

from moetuned.decide.memory_headroom import tightest
from moetuned.decide.window import Window

UNIT = "ratio"


def compute(window: Window) -> float | None:
    """At most 1; None when unknown."""
    room = tightest(window.now.rooms)
    return None if room is None or room.limit_bytes <= 0 else room.headroom_bytes / room.limit_bytes
