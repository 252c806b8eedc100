"""What can still be allocated, swap included, before the kernel's OOM killer must act.

Sources: the cgroup's memory files, /proc/meminfo.
"""

from __future__ import annotations

from moetuned.decide.memory_headroom import smallest_oom_room_bytes
from moetuned.decide.window import Window

UNIT = "bytes"


def compute(window: Window) -> float | None:
    """Bytes; None when unknown."""
    room = smallest_oom_room_bytes(window.now.rooms)
    return None if room is None else float(room)
