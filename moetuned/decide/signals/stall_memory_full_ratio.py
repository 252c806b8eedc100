"""Share of time in which every task of the backend's own cgroup waited for memory.

From the total, over the time between samples (the kernel's averages lag). It stays small in a dead thrash (below 9 %), so
it is never the only reason. Unknown without a v2 cgroup of its own. Source: memory.pressure.
"""

from __future__ import annotations

from moetuned.decide.window import Moment, Window, stall_ratio

UNIT = "ratio"


def compute(window: Window) -> float | None:
    """0 to 1; None when unknown."""
    return stall_ratio(window, _total)


def _total(moment: Moment) -> int | None:
    cgroup = moment.backend.cgroup
    return None if cgroup is None or cgroup.pressure is None else cgroup.pressure.full_total_us
