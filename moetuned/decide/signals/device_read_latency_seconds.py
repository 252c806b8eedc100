"""How long a read request took in the disks under the model, on average, for everybody on the machine.

From when the kernel gave it to the disk's queue until it was done. Larger requests and longer queues make it longer. Source:
/sys/block/<dev>/stat.
"""

from __future__ import annotations

from moetuned.decide.counters import disk_total, read_ios, read_ms
from moetuned.decide.window import Window, increase

UNIT = "seconds"


def compute(window: Window) -> float | None:
    """Seconds since the sample before; None when nothing was read or a disk under the model is unknown."""
    disks, pair = window.facts.disks, window.moments[-2:]
    total = increase(pair, lambda moment: disk_total(moment, disks, read_ms))
    ios = increase(pair, lambda moment: disk_total(moment, disks, read_ios))
    return None if total is None or not ios else total / ios / 1000
