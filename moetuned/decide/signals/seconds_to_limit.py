"""Seconds until the limit is reached if memory goes on growing as it does.

Known only while it grows steadily: over five seconds, in at least four of them, and still in the last two; the slower of the two
rates is taken, so that one large allocation (a KV cache at start) is no trend. Sources: as for `headroom_bytes`.
"""

from __future__ import annotations

import itertools

from moetuned.decide.memory_headroom import tightest_room
from moetuned.decide.window import Moment, Window, last_seconds, trend

UNIT = "seconds"

LONG_SECONDS = 5.0
SHORT_SECONDS = 2.0
STEP_BYTES = 256 << 10
MIN_GROWTH_BYTES_PER_SECOND = 1e6


def compute(window: Window) -> float | None:
    """Seconds; None when memory does not grow steadily or headroom is unknown."""
    moments = last_seconds(window, LONG_SECONDS)
    if len(moments) < 4 or moments[-1].at_seconds - moments[0].at_seconds < LONG_SECONDS * 0.9:
        return None
    long, short = trend(moments, _headroom), trend(last_seconds(window, SHORT_SECONDS), _headroom)
    headroom = _headroom(window.now)
    if long is None or short is None or headroom is None or not _steady(moments):
        return None
    growth = -max(long, short)
    return max(0.0, headroom / growth) if growth > MIN_GROWTH_BYTES_PER_SECOND else None


def _steady(moments: tuple[Moment, ...]) -> bool:
    values = [_headroom(moment) for moment in moments]
    steps = [
        later < earlier - STEP_BYTES
        for earlier, later in itertools.pairwise(values)
        if earlier is not None and later is not None
    ]
    return len(steps) >= 3 and sum(steps) >= 0.7 * len(steps)


def _headroom(moment: Moment) -> float | None:
    room = tightest_room(moment.machine, moment.backend)
    return None if room is None else float(room.headroom_bytes)
