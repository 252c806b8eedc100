"""How often a second the backend's cgroup, or one above it, goes over its `memory.high` and is slowed down to reclaim.

At `memory.high` nothing is killed: whoever allocates is made to free memory first and sleeps, so that reads and answers become slow
as at a limit. Source: memory.events high (cgroup v2; it counts cgroups below, too).
"""

from __future__ import annotations

from functools import partial

from moetuned.decide.window import Moment, Window, last_seconds, rate

UNIT = "1/s"


def compute(window: Window) -> float | None:
    """Times a second over three seconds; None on v1 and where it cannot be read."""
    moments = last_seconds(window, 3.0)
    places = range(len(window.now.backend.above) + 1)
    rates = [rate(moments, partial(_passed, place=place)) for place in places]
    return max((one for one in rates if one is not None), default=None)


def _passed(moment: Moment, place: int) -> int | None:
    """Of its own cgroup (0) or of one above."""
    if place == 0:
        return None if moment.backend.cgroup is None else moment.backend.cgroup.high_passed
    above = moment.backend.above
    return above[place - 1].memory.high_passed if place <= len(above) else None
