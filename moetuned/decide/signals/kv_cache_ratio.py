"""Share of the backend's anonymous memory that its KV cache is: its size by context length and model, allocated whole at start.

Sources: the model's header and the context length of the backend; /proc/<pid>/status RssAnon + VmSwap.
"""

from __future__ import annotations

from moetuned.decide.counters import anonymous_bytes
from moetuned.decide.window import Window

UNIT = "ratio"


def compute(window: Window) -> float | None:
    """0 to 1; None when the size of the KV cache is unknown, e.g. because it is on a GPU."""
    size, anonymous = window.facts.kv_cache_bytes, anonymous_bytes(window.now)
    return None if size is None or not anonymous or size > anonymous else size / anonymous
