"""Asks backends over HTTP how they are, in the probe lane, and keeps the answers with the process that gave them."""

from __future__ import annotations

import logging
from collections.abc import Callable

from moetuned.daemon.pacing import does_nothing
from moetuned.daemon.watched import Watched
from moetuned.daemon.workers import Lane, Workers
from moetuned.decide.moment import busy_in
from moetuned.decide.supervision import Stage
from moetuned.host.backend_http import Probe
from moetuned.host.clock import Clock
from moetuned.parse.backend_http import parse_backend_http, paths_of

log = logging.getLogger(__name__)

IDLE_SECONDS = 1.9
"""One that does nothing is asked no more often than this."""


class Probing:
    """Belongs to the loop's thread. A `Probe` itself is only ever used in the probe lane, its closing included."""

    def __init__(self, workers: Workers, clock: Clock, on_news: Callable[[], None] = lambda: None) -> None:
        """`on_news` is called in the loop when one that did nothing says something else than before."""
        self._workers = workers
        self._clock = clock
        self._on_news = on_news

    def aim(self, watched: Watched) -> None:
        """Ask at the backend's present address from now on."""
        self.end(watched)
        paths = paths_of(watched.dialect, watched.numbers)
        if watched.url is None or paths is None:
            return
        may_sleep = watched.description is None or watched.description.sleeps_after_seconds is not None
        try:
            watched.probe = Probe(watched.url, may_sleep=may_sleep, paths=paths)
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
        """Ask once more, unless the last time is not over yet, it is being ended, or it does nothing and was asked a moment ago."""
        probe, process = watched.probe, watched.process
        if probe is None or process is None:
            return
        supervisor = watched.supervisor
        if supervisor is not None and supervisor.state.stage is Stage.STOPPING:
            return  # Connections that are made now count as requests that may be cut off.
        idle, asked_at = does_nothing(watched), self._clock.monotonic()
        drains = supervisor is not None and supervisor.draining
        if idle and not drains and watched.http_at is not None and asked_at - watched.http_at < IDLE_SECONDS:
            return

        def done(answers: dict[str, str] | None, error: BaseException | None) -> None:
            if error is not None:
                log.warning("%s: asking it failed: %s", watched.name, error)
            elif answers is not None and watched.probe is probe and watched.process == process:
                # What another process said, e.g. before a restart, says nothing of this one.
                news = idle and answers != watched.http
                watched.http, watched.http_at, watched.http_asked_at = answers, self._clock.monotonic(), asked_at
                _hear(watched, answers, asked_at)
                if news:
                    self._on_news()

        self._workers.submit(
            Lane.PROBE, f"asking {watched.key}", lambda: probe.poll(idle=idle, slots_last=drains), done
        )


def _hear(watched: Watched, answers: dict[str, str], asked_at: float) -> None:
    """A restart that waits for requests to end is not left to the next look: another one may have come by then."""
    supervisor = watched.supervisor
    if supervisor is not None and supervisor.draining:
        http = parse_backend_http(answers, watched.dialect, watched.numbers)
        supervisor.hear(None if http is None else busy_in(http), asked_at)


def _ignore(_result: object, _error: BaseException | None) -> None:
    """A connection that cannot be closed is closed."""
