"""Share of time in which at least one task of the whole machine waited for its disks.

It belongs to everybody: a neighbour's thrash shows here beside a healthy backend. Never a verdict's reason. Source:
/proc/pressure/io.
"""

from __future__ import annotations

from moetuned.decide.window import Moment, Window, tick_rate

UNIT = "ratio"


def compute(window: Window) -> float | None:
    """0 to 1; None when unknown (no PSI)."""
    stalled = tick_rate(window, _total)
    return None if stalled is None else min(1.0, stalled / 1e6)


def _total(moment: Moment) -> int | None:
    pressure = moment.machine.pressure_io
    return None if pressure is None else pressure.some_total_us
