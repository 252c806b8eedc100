"""How much of the page cache was lost since its largest in the window, as a share of the model.

A cache that shrank while the backend works is being squeezed: by anonymous memory of others, by a smaller limit. What the backend
itself allocated meanwhile (buffers of a first request, its prompt cache) is no squeeze. The cache of the backend's cgroup; without one the machine's, and then only as far as the memory did not become free (a deleted file is no squeeze) and
while hardly any is free (with free memory nobody is squeezed). Cache of other files counts into it: no more than the whole model is lost,
and in a cgroup nothing of it that is resident.
The time in which the backend loads does not count: loading fills the cache and then takes room for its buffers; where
it does not answer, its first five minutes. What an earlier observer saw of the same cgroup stands in for moments that are
not in the window. Sources: memory.stat file; /proc/meminfo Cached, MemFree; /proc/<pid>/stat and status.
"""

from __future__ import annotations

from moetuned.decide.counters import anonymous_bytes, cache_bytes
from moetuned.decide.resident import resident_share
from moetuned.decide.window import Moment, Window

UNIT = "ratio"

LOADING_SECONDS = 300.0
MUCH_FREE = 0.1


def compute(window: Window) -> float | None:
    """0 or more; None when the cache or the model's size is unknown."""
    now, size = cache_bytes(window.now), window.facts.model_bytes
    if now is None or not size:
        return None
    largest, at = now, window.now
    for moment in window.moments:
        cache = moment.cache_bytes
        if cache is not None and cache > largest and not _loads(moment, window.facts.clock_ticks):
            largest, at = cache, moment
    if window.now.backend.cgroup is not None:
        largest = max(largest, window.facts.earlier_cache_bytes or 0)
    lost = largest - now - _allocated(at, window.now)
    if window.now.backend.cgroup is None:
        lost = 0 if _much_is_free(window.now) else lost - max(0, _free(window.now) - _free(at))
    most = 1.0 if window.now.backend.cgroup is None else 1.0 - (resident_share(window) or 0.0)
    return max(0.0, min(lost / size, most))


def _allocated(earlier: Moment, later: Moment) -> int:
    """What the backend allocated between these moments; nothing where that is unknown."""
    before, after = anonymous_bytes(earlier), anonymous_bytes(later)
    return 0 if before is None or after is None else max(0, after - before)


def _free(moment: Moment) -> int:
    meminfo = moment.machine.meminfo
    return 0 if meminfo is None or meminfo.free_bytes is None else meminfo.free_bytes


def _much_is_free(moment: Moment) -> bool:
    meminfo = moment.machine.meminfo
    return meminfo is not None and meminfo.total_bytes is not None and _free(moment) > MUCH_FREE * meminfo.total_bytes


def _loads(moment: Moment, clock_ticks: int) -> bool:
    http, process = moment.backend.http, moment.backend.process
    if http is not None and http.health != "unreachable":
        return http.health == "loading"
    if process is None or process.start_ticks is None:
        return True
    return moment.at_seconds - process.start_ticks / clock_ticks < LOADING_SECONDS
