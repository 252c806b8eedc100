"""How a backend is while it runs well, kept across daemons: without it, one that starts during a thrash takes it for normal."""

from __future__ import annotations

import math

from moetuned.daemon.watched import Watched
from moetuned.decide import detector
from moetuned.decide.paging_evidence import Best
from moetuned.decide.supervision import Stage
from moetuned.state.backend_record import WarmBaseline, WarmSpeed

SAVE_SECONDS = 60.0
"""It is written no more often than this."""
CHANGED_RATIO = 0.05
"""A smaller change of a figure is not worth writing."""
STANDS_IN_SECONDS = 60.0
"""A remembered cache is compared with for this long after it was restored, as long as the signals look back."""


def restore(watched: Watched, warm: WarmBaseline, now: float) -> None:
    """Begin with what is recorded of this very process (`now`: monotonic seconds). Figures that cannot be are left out."""
    best = tuple(
        Best(one.busy_slots, one.tokens_per_second, one.bytes_per_token, one.missing_bytes_per_token)
        for one in warm.speeds
        if one.busy_slots > 0 and _sound(one)
    )
    watched.detector = detector.initial(watched.name, best)
    watched.cache_when_calm_bytes = _size(warm.cache_bytes)
    watched.cache_stands_in_until = now + STANDS_IN_SECONDS
    watched.cache_when_steady_bytes = _size(warm.resident_bytes)


def keep(watched: Watched, now: float) -> None:
    """Record it when it has changed, while the process runs well: what a thrash shows is no baseline."""
    supervisor = watched.supervisor
    if supervisor is None or not watched.calm or supervisor.state.stage != Stage.READY:
        return
    if watched.warm_kept_at is not None and now - watched.warm_kept_at < SAVE_SECONDS:
        return
    warm = _baseline(watched)
    if not changed(supervisor.warm, warm):
        return
    if not warm.speeds and (watched.ready_at is None or now - watched.ready_at < SAVE_SECONDS):
        return  # Its first answers tell more, and the next time would be a minute away.
    watched.warm_kept_at = now
    supervisor.keep_warm(warm)


def changed(before: WarmBaseline | None, now: WarmBaseline) -> bool:
    """Whether a figure is new, gone, or another one by more than `CHANGED_RATIO`."""
    if before is None:
        return now != WarmBaseline()
    speeds = {one.busy_slots: one for one in before.speeds}
    if speeds.keys() != {one.busy_slots for one in now.speeds}:
        return True
    pairs: list[tuple[float | None, float | None]] = [
        (before.cache_bytes, now.cache_bytes),
        (before.resident_bytes, now.resident_bytes),
    ]
    for one in now.speeds:
        old = speeds[one.busy_slots]
        pairs.append((old.tokens_per_second, one.tokens_per_second))
        pairs.append((old.bytes_per_token, one.bytes_per_token))
        pairs.append((old.missing_bytes_per_token, one.missing_bytes_per_token))
    return any(_differs(old, new) for old, new in pairs)


def _differs(old: float | None, new: float | None) -> bool:
    if old is None or new is None:
        return old is not new
    return abs(new - old) > CHANGED_RATIO * max(abs(old), abs(new))


def _baseline(watched: Watched) -> WarmBaseline:
    best = watched.detector.paging.best
    speeds = (
        WarmSpeed(one.busy_slots, one.tokens_per_second, one.bytes_per_token, one.missing_bytes_per_token)
        for one in best
    )
    return WarmBaseline(
        # JSON has no infinity: a record with one could not be read again.
        speeds=tuple(one for one in speeds if _sound(one)),
        cache_bytes=watched.cache_when_calm_bytes,
        resident_bytes=watched.cache_when_steady_bytes,
    )


def _sound(speed: WarmSpeed) -> bool:
    figures = [speed.tokens_per_second, speed.bytes_per_token]
    if speed.missing_bytes_per_token is not None:
        figures.append(speed.missing_bytes_per_token)
    return all(math.isfinite(figure) and figure >= 0 for figure in figures)


def _size(value: int | None) -> int | None:
    return value if value is not None and value >= 0 else None
