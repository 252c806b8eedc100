"""Share of time in which the busiest disk under the model had something to do, for everybody on the machine.

Its utilisation as iostat shows it. A disk that does many requests at once is busy long before it is at its limit; one that is not busy
is not what anybody waits for. Of several disks the busiest: a stripe waits for the slowest of them. Source: /sys/block/<dev>/stat.
"""

from __future__ import annotations

from moetuned.decide.window import Moment, Window, tick_rate

UNIT = "ratio"


def compute(window: Window) -> float | None:
    """0 to 1; None when a disk under the model is unknown."""
    busiest: float | None = None
    for disk in window.facts.disks:
        busy_ms_per_second = tick_rate(window, lambda moment, disk=disk: _busy_ms(moment, disk))  # type: ignore[misc]
        if busy_ms_per_second is None:
            return None
        busiest = max(busiest or 0.0, min(1.0, busy_ms_per_second / 1000))
    return busiest


def _busy_ms(moment: Moment, disk: str) -> int | None:
    counters = moment.machine.disks.get(disk)
    return None if counters is None else counters.busy_ms
