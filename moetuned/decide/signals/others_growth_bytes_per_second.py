"""Growth of the backend's cgroup that is not the backend's own, over five seconds: another process in it, or kernel memory.

What cannot be reclaimed there and what of it is in swap, less anonymous memory of the process. Without a cgroup the machine's, which
is everybody else's. Sources: the cgroup's memory files, /proc/meminfo, /proc/<pid>/status RssAnon + VmSwap.
"""

from __future__ import annotations

from moetuned.decide.counters import anonymous_bytes
from moetuned.decide.memory_headroom import growing_bytes_around
from moetuned.decide.window import Moment, Window, last_seconds, trend

UNIT = "bytes/s"


def compute(window: Window) -> float | None:
    """Bytes a second, negative while others give back; None when unknown."""
    return trend(last_seconds(window, 5.0), _others)


def _others(moment: Moment) -> int | None:
    own, around = anonymous_bytes(moment), growing_bytes_around(moment.machine, moment.backend)
    return None if own is None or around is None else around - own
