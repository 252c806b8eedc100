"""The backend's own memory that no file backs, in RAM and in swap: KV cache, prompt cache, buffers, repacked weights.

RSS alone deceives: a large part may be in swap. Source: /proc/<pid>/status RssAnon + VmSwap.
"""

from __future__ import annotations

from moetuned.decide.counters import anonymous_bytes
from moetuned.decide.window import Window

UNIT = "bytes"


def compute(window: Window) -> float | None:
    """Bytes now; None when unknown."""
    return anonymous_bytes(window.now)
