"""Says what happened: keeps the event, logs it, and gives it to the sinks that subscribe to it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from moetuned import alerts
from moetuned.alerts.journal import Journal
from moetuned.daemon.event_log import EventLog
from moetuned.daemon.workers import Lane, Workers
from moetuned.host.clock import Clock
from moetuned.schema.alert import Alert, kind_of_sink
from moetuned.schema.event import ENDS, Event, EventName, begun_by, general, has_end, is_wanted
from moetuned.schema.severity import SEVERITY, Severity
from moetuned.schema.verdict import Reason

log = logging.getLogger(__name__)

_LEVELS = {Severity.CRITICAL: logging.ERROR, Severity.WARNING: logging.WARNING, Severity.INFO: logging.INFO}
_MOST_BEGUN = 64


class Announcer:
    """Belongs to the loop's thread; sinks run in the alert lane. `sinks` may be replaced at any time (reload)."""

    def __init__(self, events: EventLog, workers: Workers, clock: Clock, journal: Journal | None = None) -> None:
        """`journal` None: there is the log only."""
        self.sinks: Sequence[Alert] = ()
        self._events = events
        self._workers = workers
        self._clock = clock
        self._journal = journal
        self._begun: dict[tuple[str | None, EventName], str] = {}
        """The id of the last event that began something which has not ended."""

    def say(self, name: EventName, backend: str | None, message: str, reasons: tuple[Reason, ...] = ()) -> None:
        """Something happened to `backend` (None: to the machine). `message` is one sentence; it gets the backend's name
        in front where it does not hold it.
        """
        if backend is not None and backend not in message:
            message = f"{backend}: {message}"
        event = self._events.add(
            Event(
                id="",
                name=name,
                wall_seconds=self._clock.wall(),
                at_seconds=self._clock.monotonic(),
                backend=backend,
                message=message,
                reasons=reasons,
                ended=self._ended(name, backend),
            )
        )
        if has_end(name):
            self._begun[backend, general(name)] = event.id
            if len(self._begun) > _MOST_BEGUN:
                del self._begun[next(iter(self._begun))]
        if self._journal is None or not self._journal.tell(event):
            log.log(_LEVELS[SEVERITY[name]], "%s: %s", name, message)
        for number, sink in enumerate(self.sinks):
            if is_wanted(name, sink.on):
                self._send(event, sink, number)

    def _ended(self, name: EventName, backend: str | None) -> tuple[str, ...]:
        if name not in ENDS:
            return ()
        found = (self._begun.pop((backend, begun), None) for begun in begun_by(name))
        return tuple(event_id for event_id in found if event_id is not None)

    @property
    def pending(self) -> int:
        """Alerts that no sink has finished with yet."""
        return self._workers.waiting(Lane.ALERT)

    def _send(self, event: Event, sink: Alert, number: int) -> None:
        def done(_results: object, error: BaseException | None) -> None:
            if error is not None:
                log.error("alerts[%d] could not be given %s: %s", number, event.name, error)

        kind = kind_of_sink(sink)
        self._workers.submit(
            Lane.ALERT, f"alert {event.id} {number}", lambda: alerts.find(kind).send(event, sink), done
        )
