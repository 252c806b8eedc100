"""How much of the model is resident, from the scan or, where that is newer or smaller, from the page cache it lives in."""

from __future__ import annotations

from collections.abc import Callable

from moetuned.decide.counters import cache_bytes, resident_bytes
from moetuned.decide.window import Moment, Window, once

MAX_AGE_SECONDS = 30.0


def scanned_share(window: Window, size_bytes: int | None, read: Callable[[Moment], int | None]) -> float | None:
    """Share of `size_bytes`, 0 to 1, that the last scan found resident; None without a recent scan or without such bytes."""
    resident = _newest(window, read)
    return None if resident is None or not size_bytes else min(1.0, resident / size_bytes)


def resident_share(window: Window) -> float | None:
    """Share of the model in page cache, 0 to 1; None when neither source is known.

    The page cache of its cgroup bounds what can be resident, at once, while a scan may be some seconds old: the smaller holds.
    """
    size = window.facts.model_bytes
    if not size:
        return None
    scanned = _newest(window, resident_bytes)
    bound = cache_bytes(window.now) if window.now.backend.cgroup is not None else None
    known = [value for value in (scanned, bound) if value is not None]
    return min(1.0, min(known) / size) if known else None


def _newest(window: Window, read: Callable[[Moment], int | None]) -> int | None:
    for moment in once(window, _recent_scans):
        value = read(moment)
        if value is not None:
            return value
    return None


def _recent_scans(window: Window) -> tuple[Moment, ...]:
    """Newest first."""
    oldest = window.now.at_seconds - MAX_AGE_SECONDS
    return tuple(
        moment
        for moment in reversed(window.moments)
        if moment.resident_bytes is not None and moment.at_seconds >= oldest
    )
