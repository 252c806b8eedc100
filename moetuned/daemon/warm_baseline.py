"""How a backend is while it runs well, kept across daemons: without it, one that starts during a thrash takes it for normal."""

from __future__ import annotations

import logging
import math
import os

import msgspec

from moetuned.daemon.watched import Watched
from moetuned.decide import detector
from moetuned.decide.paging_evidence import Best
from moetuned.decide.supervision import Stage
from moetuned.host.processes import ProcessIdentity, has_ended
from moetuned.host.spawn import boot_id
from moetuned.schema.verdict import Paging
from moetuned.state import baseline_record
from moetuned.state.backend_record import WarmBaseline, WarmSpeed

log = logging.getLogger(__name__)

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
    begun = warm.thrash_begun_at
    thrash_since = begun if begun is not None and math.isfinite(begun) and begun <= now else None
    watched.detector = detector.initial(watched.name, best, thrash_since)
    watched.cache_when_calm_bytes = _size(warm.cache_bytes)
    watched.cache_stands_in_until = now + STANDS_IN_SECONDS
    watched.cache_when_steady_bytes = _size(warm.resident_bytes)


def keep(watched: Watched, now: float) -> None:
    """Record it when it has changed, while the process runs well: what a thrash shows is no baseline."""
    supervisor = watched.supervisor
    if supervisor is None and watched.record_warm is None:
        return
    if supervisor is not None and supervisor.state.stage != Stage.READY:
        return
    recorded = watched.warm_recorded if supervisor is None else supervisor.warm
    begun, told = _thrash_begun_at(watched), None if recorded is None else recorded.thrash_begun_at
    if (begun is None) is not (told is None):
        # At once: a daemon that is killed in a thrash must not tell its beginning twice, nor forget its end.
        _record(watched, _with_thrash(recorded, _baseline(watched)))
        return
    if not watched.calm:
        return
    if watched.warm_kept_at is not None and now - watched.warm_kept_at < SAVE_SECONDS:
        return
    warm = _baseline(watched)
    if not changed(recorded, warm):
        return
    if not warm.speeds and (watched.ready_at is None or now - watched.ready_at < SAVE_SECONDS):
        return  # Its first answers tell more, and the next time would be a minute away.
    watched.warm_kept_at = now
    _record(watched, warm)


def _with_thrash(recorded: WarmBaseline | None, now: WarmBaseline) -> WarmBaseline:
    """With what was seen before: a cache that shrinks is taken for calm until the thrash is sure."""
    if recorded is None:
        return now
    sizes = [size for size in (recorded.cache_bytes, now.cache_bytes) if size is not None]
    return msgspec.structs.replace(now, cache_bytes=max(sizes, default=None), resident_bytes=recorded.resident_bytes)


def _record(watched: Watched, warm: WarmBaseline) -> None:
    if watched.supervisor is not None:
        watched.supervisor.keep_warm(warm)
    elif watched.record_warm is not None:
        watched.warm_recorded = warm
        watched.record_warm(warm)


def _thrash_begun_at(watched: Watched) -> float | None:
    return watched.verdict.paging_since if watched.verdict.paging is Paging.THRASHING else None


class Records:
    """Where the baselines of backends are kept that nobody supervises. Belongs to the loop's thread."""

    def __init__(self, directory: str) -> None:
        self._directory = os.path.join(directory, "baselines")
        try:
            self._boot_id: str | None = boot_id()
            baseline_record.prune(has_ended, self._directory)
        except OSError as error:
            self._boot_id = None
            log.info("how backends run is not kept in %s: %s", self._directory, error.strerror)

    def follow(self, watched: Watched, now: float) -> None:
        """Another process is this backend, which has no supervisor: take up what is recorded of it, and record it from now on."""
        watched.forget_baseline()
        process, boot = watched.process, self._boot_id
        if process is None or boot is None:
            return
        try:
            warm = baseline_record.read(process, boot, self._directory)
        except OSError as error:
            log.info("%s: cannot read how it ran: %s", watched.name, error.strerror)
            warm = None

        def record(warm: WarmBaseline) -> None:
            try:
                baseline_record.write(process, boot, warm, self._directory)
            except OSError as error:
                log.info("%s: cannot record how fast it is when warm: %s", watched.name, error.strerror)

        watched.record_warm, watched.warm_recorded = record, warm
        # One that was seen running by this daemon is known better than from a record.
        if warm is not None and watched.detector.phase.process is None:
            restore(watched, warm, now)

    def forget(self, process: ProcessIdentity) -> None:
        """The process ended."""
        try:
            baseline_record.remove(process, self._directory)
        except OSError as error:
            log.info("%s: %s", self._directory, error.strerror)


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
        thrash_begun_at=_thrash_begun_at(watched),
    )


def _sound(speed: WarmSpeed) -> bool:
    figures = [speed.tokens_per_second, speed.bytes_per_token]
    if speed.missing_bytes_per_token is not None:
        figures.append(speed.missing_bytes_per_token)
    return all(math.isfinite(figure) and figure >= 0 for figure in figures)


def _size(value: int | None) -> int | None:
    return value if value is not None and value >= 0 else None
