"""Ends a supervised backend that hangs, so that it is started again."""

from __future__ import annotations

import logging

from moetuned.daemon.settings import Settings
from moetuned.daemon.turned_off import cannot
from moetuned.daemon.watched import Watched
from moetuned.host.frozen import is_frozen
from moetuned.schema.capability import Action
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
    refused = cannot(watched, settings, Action.RESTART)
    why = f"it has hung for {format_duration(still.still_seconds)} (limit {format_duration(limit)})"
    if not settings.act:
        watched.would_do = (*watched.would_do, f"end it and start it again: {why}")
        return
    if refused is not None:
        watched.would_do = (*watched.would_do, f"end it and start it again: {why}, but {refused}")
        return
    log.warning("%s: ending it to start it again: %s", watched.name, why)
    supervisor.hung()


def outlook(watched: Watched, settings: Settings) -> str:
    """Whether moetuned restarts one that hangs, or why not: the sentence after "restart it"."""
    supervisor, limit = watched.supervisor, settings.restart_hung_seconds
    if supervisor is None:
        return "moetuned does not: it only watches it"
    if limit is None:
        return "moetuned does not: relief.restart_hung is off"
    if not settings.act:
        return "moetuned does not: relief.mode is observe"
    if (refused := cannot(watched, settings, Action.RESTART)) is not None:
        return f"moetuned does not: {refused}"
    if not supervisor.ends_hung:
        return f"moetuned does not: {supervisor.who} was asked for that already"
    if watched.process is not None and is_frozen(watched.process.pid) is None:
        return "moetuned does not while it is not known whether its cgroup is frozen"
    return f"moetuned does so once it has hung for {format_duration(limit)} (relief.restart_hung)"


def frozen_by_cgroup(watched: Watched) -> bool:
    """Whether its process is known to be frozen by its cgroup."""
    return watched.process is not None and is_frozen(watched.process.pid) is True
