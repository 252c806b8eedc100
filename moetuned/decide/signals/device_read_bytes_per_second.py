"""Bytes all the disks under the model read, for everybody on the machine.

Compare with `process_read_bytes_per_second`: the rest is somebody else's. Source: /sys/block/<dev>/stat.
"""

from __future__ import annotations

from moetuned.decide.counters import device_read_bytes
from moetuned.decide.window import Window, tick_rate

UNIT = "bytes/s"


def compute(window: Window) -> float | None:
    """Bytes a second since the sample before; None when a disk under the model is unknown."""
    disks = window.facts.disks
    return tick_rate(window, lambda moment: device_read_bytes(moment, disks))
