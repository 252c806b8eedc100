"""What the limit leaves: limit minus everything that cannot be reclaimed minus what is in swap.

The limit is the tighter of the cgroup's and the machine's RAM. The page cache does not count as used and MemAvailable is not
looked at. Sources: the cgroup's memory files, /proc/meminfo.
"""

from __future__ import annotations

from moetuned.decide.memory_headroom import tightest
from moetuned.decide.window import Window

UNIT = "bytes"


def compute(window: Window) -> float | None:
    """Bytes, negative when memory in swap would not fit; None when unknown."""
    room = tightest(window.now.rooms)
    return None if room is None else float(room.headroom_bytes)
