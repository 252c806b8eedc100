"""The largest share of the backend's anonymous memory that its prompt cache can be: it may be smaller.

At most `--cache-ram`, and at most what the KV cache leaves. Sources: the backend's command line, and as for `kv_cache_ratio`.
"""

from __future__ import annotations

from moetuned.decide.counters import anonymous_bytes
from moetuned.decide.window import Window

UNIT = "ratio"


def compute(window: Window) -> float | None:
    """0 to 1; None when the prompt cache has no known limit."""
    most, anonymous = window.facts.prompt_cache_bytes, anonymous_bytes(window.now)
    if most is None or not anonymous:
        return None
    kv = window.facts.kv_cache_bytes or 0
    left = anonymous - kv if kv <= anonymous else anonymous
    return min(most, left) / anonymous
