"""Says what happened: keeps the event, logs it, and gives it to the alert sinks."""

from __future__ import annotations

import logging

from moetuned.daemon.alerting import Alerting
from moetuned.daemon.event_log import EventLog
from moetuned.host.clock import Clock
from moetuned.schema.alert_view import AlertTestAnswer
from moetuned.schema.event import Event, EventName
from moetuned.schema.verdict import Reason

log = logging.getLogger(__name__)

_GOOD_NEWS = frozenset(
    {EventName.THRASH_END, EventName.MEMORY_RECOVERED, EventName.BACKEND_RECOVERED, EventName.BACKEND_RESTARTED}
)


class Announcer:
    """Belongs to the loop's thread."""

    def __init__(self, events: EventLog, alerting: Alerting, clock: Clock) -> None:
        self._events = events
        self._alerting = alerting
        self._clock = clock

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
            )
        )
        log.log(logging.INFO if name in _GOOD_NEWS else logging.WARNING, "%s: %s", name, message)
        self._alerting.hear(event)

    def answer_test(self, sink: str | None) -> tuple[int, object]:
        """Somebody tries the sink of this name, or all (None): the answer to that, with its HTTP status."""
        event = Event(
            id=self._events.new_id(),
            name=EventName.TEST,
            wall_seconds=self._clock.wall(),
            at_seconds=self._clock.monotonic(),
            backend=None,
            message="This is a test of moetuned's alerts; nothing is wrong.",
        )
        try:
            names = self._alerting.test(event, sink)
        except LookupError as error:
            return 404, {"error": str(error)}
        log.info("somebody tries the alert sinks: %s", ", ".join(names) or "there is none")
        return 202, AlertTestAnswer(event.id, names)
