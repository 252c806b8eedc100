"""Share of time in which at least one task of the whole machine waited for its disks.

It belongs to everybody: a neighbour's thrash shows here beside a healthy backend. Never a verdict's reason. Source:
/proc/pressure/io.
"""

from __future__ import annotations

from moetuned.decide.window import Moment, Window, stall_ratio

UNIT = "ratio"


def compute(window: Window) -> float | None:
    """0 to 1; None when unknown (no PSI)."""
    return stall_ratio(window, _total)


def _total(moment: Moment) -> int | None:
    pressure = moment.machine.pressure_io
    return None if pressure is None else pressure.some_total_us
