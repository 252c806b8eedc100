"""Ends a supervised backend that hangs, so that it is started again."""

from __future__ import annotations

import logging

from moetuned.daemon.settings import Settings
from moetuned.daemon.watched import Watched
from moetuned.host.frozen import is_frozen
from moetuned.schema.units import format_duration

log = logging.getLogger(__name__)


def end_hung(watched: Watched, settings: Settings) -> None:
    """End it once it has hung for `relief.restart_hung`, if that was told; in observe mode only say so."""
    supervisor, still = watched.supervisor, watched.detector.phase.stillness
    limit = settings.restart_hung_seconds
    if not (watched.hung_told and still.hung) or limit is None or still.still_seconds < limit:
        return
    if supervisor is None or not supervisor.ends_hung or watched.process is None:
        return
    if is_frozen(watched.process.pid) is not False:
        return  # unknown starts nothing
    why = f"it has hung for {format_duration(still.still_seconds)} (limit {format_duration(limit)})"
    if not settings.act:
        watched.would_do = (*watched.would_do, f"end it and start it again: {why}")
        return
    log.warning("%s: ending it to start it again: %s", watched.name, why)
    supervisor.hung()


def is_paused(watched: Watched) -> bool:
    """Whether its process is known to be frozen by its cgroup."""
    return watched.process is not None and is_frozen(watched.process.pid) is True
