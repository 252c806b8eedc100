"""Read requests all the disks under the model did, for everybody on the machine.

Requests as the disks saw them, after merging; of a striped device those of all its disks. Source: /sys/block/<dev>/stat.
"""

from __future__ import annotations

from moetuned.decide.counters import disk_total, read_ios
from moetuned.decide.window import Window, tick_rate

UNIT = "requests/s"


def compute(window: Window) -> float | None:
    """Requests a second since the sample before; None when a disk under the model is unknown."""
    disks = window.facts.disks
    return tick_rate(window, lambda moment: disk_total(moment, disks, read_ios))
