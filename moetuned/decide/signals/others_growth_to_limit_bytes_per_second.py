"""How much of the growth towards the limit that is reached first is not the backend's own: everybody else's below that limit.

All that is in use below the limit from which `seconds_to_limit` is taken, less anonymous memory of the process: another cgroup that
shares the limit counts, which `others_growth_bytes_per_second` does not see. Over five seconds or two, whichever is faster, since a
growth may have begun just now; over a minute where memory grows in steps. Sources: as for `headroom_bytes`, /proc/<pid>/status RssAnon
+ VmSwap.
"""

from __future__ import annotations

from moetuned.decide.counters import anonymous_bytes
from moetuned.decide.memory_forecast import LONG_SECONDS, PATTERN_SECONDS, SHORT_SECONDS, forecast
from moetuned.decide.memory_headroom import room_at
from moetuned.decide.window import Moment, Window, last_seconds, once, trend

UNIT = "bytes/s"


def compute(window: Window) -> float | None:
    """Bytes a second, negative while others give back; None when memory does not grow towards a limit, or the share is unknown."""
    found = once(window, forecast)
    if found is None:
        return None

    def others(moment: Moment) -> int | None:
        own, room = anonymous_bytes(moment), room_at(moment.rooms, found.place)
        return None if own is None or room is None else room.growing_bytes - own

    spans = (PATTERN_SECONDS,) if found.in_steps else (LONG_SECONDS, SHORT_SECONDS)
    known = (trend(last_seconds(window, seconds), others) for seconds in spans)
    return max((rate for rate in known if rate is not None), default=None)
