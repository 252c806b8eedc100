"""Why the next look must come soon, from what is known of the backends: what `decide.tick_interval` is asked with."""

from __future__ import annotations

from collections.abc import Sequence

from moetuned.daemon.settings import Settings
from moetuned.daemon.watched import Watched
from moetuned.decide import tick_interval
from moetuned.decide.tick_interval import IDLE_CPU_RATIO, Seen, TickInterval
from moetuned.schema.verdict import MemoryState, Paging, Phase

IDLE_READ_BYTES_PER_SECOND = 256e3
"""A log, a certificate; work on a model that is not in memory reads more."""


def seen(backends: Sequence[Watched], *, triggered: bool, waiting: str | None = None) -> Seen:
    """What the last look found. `triggered`: a PSI trigger wakes the loop. `waiting`: what else must not wait, None: nothing."""
    reasons = (found for watched in backends if (found := _busy(watched)) is not None)
    running = [watched for watched in backends if watched.process is not None]
    left = [None if watched.signals is None else watched.signals.get("headroom_bytes") for watched in running]
    known = [one for one in left if one is not None]
    return Seen(
        busy=waiting or next(reasons, None),
        headroom_bytes=min(known) if known and len(known) == len(left) else None,
        backends=bool(running),
        triggered=triggered,
        quick=next((found for watched in backends if (found := _quick(watched)) is not None), None),
    )


def step(
    pace: TickInterval, seen: Seen, since_seconds: float, settings: Settings, watchdog_seconds: float | None
) -> TickInterval:
    """How long until the next look, `since_seconds` after the last one; never so long that systemd's watchdog would bite."""
    interval, idle = settings.interval_seconds, settings.idle_interval_seconds
    if watchdog_seconds is not None:
        interval, idle = (min(one, watchdog_seconds / 3) for one in (interval, idle))
    return tick_interval.step(pace, seen, since_seconds, interval, idle)


def _quick(watched: Watched) -> str | None:
    """Why this one must be looked at at once, one phrase; None: it need not."""
    supervisor = watched.supervisor
    if supervisor is not None and supervisor.held:
        return f"{watched.name} is paused for a second look"
    if supervisor is not None and supervisor.draining:
        return f"{watched.name} waits for its restart"
    if watched.verdict.memory == MemoryState.CRITICAL and watched.relief.looks == 1:
        return f"{watched.name}: memory is critical, and a second look decides"
    return None


def does_nothing(watched: Watched) -> bool:
    """Whether its process uses neither CPU nor disk while no request is known of; unknown is no.

    The phase alone would hold itself, since it is told by what is asked.
    """
    if watched.verdict.phase != Phase.IDLE or watched.signals is None:
        return False
    cpu = watched.signals.get("cpu_ratio")
    read = watched.signals.get("process_read_bytes_per_second")
    return cpu is not None and cpu < IDLE_CPU_RATIO and (read is None or read < IDLE_READ_BYTES_PER_SECOND)


def _busy(watched: Watched) -> str | None:
    """Why this one must be looked at soon, one phrase; None: it need not."""
    name, verdict = watched.name, watched.verdict
    if watched.process is None:
        return f"{name} is to be started" if watched.supervisor is not None else None
    if verdict.phase != Phase.IDLE:
        return f"{name}: {verdict.phase}"
    if verdict.memory != MemoryState.OK:
        return f"{name}: memory {verdict.memory}"
    if verdict.paging == Paging.THRASHING or watched.would_do:
        return f"{name} is in trouble"
    if not does_nothing(watched) or watched.signals is None:
        return f"{name} does something"
    if watched.signals.get("process_read_bytes_per_second") is None:
        return f"{name}: what it reads is unknown"
    cared_for = watched.warm.going_on or watched.warm_wanted is not None
    return f"{name} is being warmed" if cared_for or watched.protect.state == "locking" else None
