"""Seconds until the limit is reached if memory goes on growing as it does.

Known only while it grows steadily: over five seconds, in most of them, and still in the last two; the slower of the two
rates is taken, so that one large allocation (a KV cache at start) is no trend. A limit that somebody lowers is none
either: what counts is growth of what cannot be reclaimed. Sources: as for `headroom_bytes`.
"""

from __future__ import annotations

import itertools

from moetuned.decide.memory_headroom import tightest_room
from moetuned.decide.window import Window, last_seconds

UNIT = "seconds"

LONG_SECONDS = 5.0
SHORT_SECONDS = 2.0
STEP_BYTES = 256 << 10
MIN_STEPS = 3
STEADY_SHARE = 0.7
MIN_GROWTH_BYTES_PER_SECOND = 1e6


def compute(window: Window) -> float | None:
    """Seconds; None when memory does not grow steadily or headroom is unknown."""
    rooms = [
        (moment.at_seconds, room)
        for moment in last_seconds(window, LONG_SECONDS)
        if (room := tightest_room(moment.machine, moment.backend)) is not None
    ]
    now = window.now.at_seconds
    if not rooms or rooms[-1][0] != now or now - rooms[0][0] < 0.9 * LONG_SECONDS:
        return None
    if any(room.scope != rooms[-1][1].scope for _, room in rooms):
        return None
    used = [(at, room.unreclaimable_bytes + room.swapped_bytes) for at, room in rooms]
    grew = [later > earlier + STEP_BYTES for (_, earlier), (_, later) in itertools.pairwise(used)]
    if len(grew) < MIN_STEPS or sum(grew) < STEADY_SHARE * len(grew):
        return None
    recent = next(one for one in reversed(used) if one[0] <= now - 0.95 * SHORT_SECONDS)
    growth = min(_growth(used[0], used[-1]), _growth(recent, used[-1]))
    return max(0.0, rooms[-1][1].headroom_bytes / growth) if growth > MIN_GROWTH_BYTES_PER_SECOND else None


def _growth(earlier: tuple[float, int], later: tuple[float, int]) -> float:
    return (later[1] - earlier[1]) / (later[0] - earlier[0])
