"""Asks backends over HTTP how they are, in the probe lane, and keeps the answers with the process that gave them."""

from __future__ import annotations

import logging

from moetuned.daemon.watched import Watched
from moetuned.daemon.workers import Lane, Workers
from moetuned.host.backend_http import Probe
from moetuned.host.clock import Clock
from moetuned.schema.verdict import Phase

log = logging.getLogger(__name__)

IDLE_CPU_RATIO = 0.02
"""Of one core; a server that waits for requests uses less."""


class Probing:
    """Belongs to the loop's thread. A `Probe` itself is only ever used in the probe lane, its closing included."""

    def __init__(self, workers: Workers, clock: Clock) -> None:
        self._workers = workers
        self._clock = clock

    def aim(self, watched: Watched) -> None:
        """Ask at the backend's present address from now on."""
        self.end(watched)
        if watched.url is None:
            return
        may_sleep = watched.description is None or watched.description.sleeps_after_seconds is not None
        try:
            watched.probe = Probe(watched.url, may_sleep=may_sleep)
        except ValueError as error:
            log.warning("%s: it cannot be asked how it is: %s", watched.name, error)

    def end(self, watched: Watched) -> None:
        """Ask no more."""
        probe, watched.probe = watched.probe, None
        if probe is not None:
            # It may be in use right now; behind that use in the same lane nobody is.
            self._workers.submit(
                Lane.PROBE, f"closing the connection to {watched.key}, {id(probe)}", probe.close, _ignore
            )

    def ask(self, watched: Watched) -> None:
        """Ask once more, unless the last time is not over yet."""
        probe, process = watched.probe, watched.process
        if probe is None or process is None:
            return
        idle = _does_nothing(watched)

        def done(answers: dict[str, str] | None, error: BaseException | None) -> None:
            if error is not None:
                log.warning("%s: asking it failed: %s", watched.name, error)
            elif answers is not None and watched.probe is probe and watched.process == process:
                # What another process said, e.g. before a restart, says nothing of this one.
                watched.http, watched.http_at = answers, self._clock.monotonic()

        self._workers.submit(Lane.PROBE, f"asking {watched.key}", lambda: probe.poll(idle=idle), done)


def _does_nothing(watched: Watched) -> bool:
    """Whether its process uses no CPU; the phase alone would hold itself, since it is told by what is asked."""
    cpu = None if watched.signals is None else watched.signals.get("cpu_ratio")
    return watched.verdict.phase == Phase.IDLE and cpu is not None and cpu < IDLE_CPU_RATIO


def _ignore(_result: object, _error: BaseException | None) -> None:
    """A connection that cannot be closed is closed."""
