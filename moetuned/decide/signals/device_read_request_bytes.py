"""How large the read requests of the disks under the model were, on average, for everybody on the machine.

Read-ahead makes them larger; a disk that is cut off from its larger requests gives far fewer bytes a second. Source:
/sys/block/<dev>/stat.
"""

from __future__ import annotations

from moetuned.decide.counters import disk_total, read_bytes, read_ios
from moetuned.decide.window import Window, increase

UNIT = "bytes"


def compute(window: Window) -> float | None:
    """Bytes since the sample before; None when nothing was read or a disk under the model is unknown."""
    disks, pair = window.facts.disks, window.moments[-2:]
    total = increase(pair, lambda moment: disk_total(moment, disks, read_bytes))
    ios = increase(pair, lambda moment: disk_total(moment, disks, read_ios))
    return None if total is None or not ios else total / ios
