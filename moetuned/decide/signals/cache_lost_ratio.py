"""How much of the page cache was lost since its largest in the window, as a share of the model.

A cache that shrank while the backend works is being squeezed: by anonymous memory, by a smaller limit, by somebody else's files.
The time in which the backend loads does not count: loading fills the cache and then takes room for its buffers.
Sources: memory.stat file; /proc/meminfo Cached.
"""

from __future__ import annotations

from moetuned.decide.counters import cache_bytes
from moetuned.decide.window import Moment, Window

UNIT = "ratio"


def compute(window: Window) -> float | None:
    """0 or more; None when the cache or the model's size is unknown."""
    now, size = cache_bytes(window.now), window.facts.model_bytes
    if now is None or not size:
        return None
    ready = (cache_bytes(moment) for moment in window.moments if not _loads(moment))
    return max(0.0, (max((value for value in ready if value is not None), default=now) - now) / size)


def _loads(moment: Moment) -> bool:
    http = moment.backend.http
    return http is not None and http.health == "loading"
