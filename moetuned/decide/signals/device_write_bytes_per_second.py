"""Bytes all the disks under the model wrote, for everybody on the machine.

Who writes much makes reads wait. Source: /sys/block/<dev>/stat.
"""

from __future__ import annotations

from moetuned.decide.counters import disk_total, write_bytes
from moetuned.decide.window import Window, tick_rate

UNIT = "bytes/s"


def compute(window: Window) -> float | None:
    """Bytes a second since the sample before; None when a disk under the model is unknown."""
    disks = window.facts.disks
    return tick_rate(window, lambda moment: disk_total(moment, disks, write_bytes))
