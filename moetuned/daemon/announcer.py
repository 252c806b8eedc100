"""Says what happened: keeps the event, logs it, and gives it to the alert sinks."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from moetuned.alerts.journal import Journal
from moetuned.daemon.alerting import Alerting
from moetuned.daemon.event_log import EventLog
from moetuned.decide import left_open
from moetuned.host.clock import Clock
from moetuned.schema.event import ENDS, Event, EventName, begun_by, general, has_end, may_close
from moetuned.schema.severity import SEVERITY, Severity
from moetuned.schema.verdict import Reason

log = logging.getLogger(__name__)

_LEVELS = {Severity.CRITICAL: logging.ERROR, Severity.WARNING: logging.WARNING, Severity.INFO: logging.INFO}
_MOST_BEGUN = 64


class Announcer:
    """Belongs to the loop's thread."""

    def __init__(self, events: EventLog, alerting: Alerting, clock: Clock, journal: Journal | None = None) -> None:
        """`journal` None: there is the log only."""
        self._events = events
        self._alerting = alerting
        self._clock = clock
        self._journal = journal
        self._begun: dict[tuple[str | None, EventName], str] = {}
        """The id of the last event that began something which has not ended."""
        for event in events.since(None):
            self._ended(event.name, event.backend)
            self._begun = {about: begun for about, begun in self._begun.items() if begun not in event.ended}
            self._note_begin(event)
        self.left_open: set[tuple[str | None, EventName]] = set(self._begun)
        """What was told to have begun before a backend was watched by whoever watches it now (by an earlier daemon, or under another
        entry of the config), and nobody has told anything of since."""

    def say(
        self,
        name: EventName,
        backend: str | None,
        message: str,
        reasons: tuple[Reason, ...] = (),
        *,
        restarting: bool = True,
    ) -> None:
        """Something happened to `backend` (None: to the machine). `message` is one sentence; it gets the backend's name
        in front where it does not hold it. `restarting` False: none is under way any more, so that one whose failure this tells is over.
        """
        if backend is not None and backend not in message:
            message = f"{backend}: {message}"
        closed = () if restarting else may_close(name)
        self.left_open.difference_update((backend, begun) for begun in (*begun_by(name), *closed))
        event = self._events.add(
            Event(
                id="",
                name=name,
                wall_seconds=self._clock.wall(),
                at_seconds=self._clock.monotonic(),
                backend=backend,
                message=message,
                reasons=reasons,
                ended=self._ended(name, backend, closed),
            )
        )
        self._note_begin(event)
        if self._journal is None or not self._journal.tell(event):
            log.log(_LEVELS[SEVERITY[name]], "%s: %s", name, message)
        self._alerting.hear(event)

    def leave_open(self, backend: str) -> None:
        """`backend` is watched no more, or anew: what was told of it to have begun is known to nobody else now."""
        self.left_open.update(about for about in self._begun if about[0] == backend)

    def retire(self, backends: Iterable[str]) -> None:
        """These were taken out of the configuration: what they were told to have begun ends."""
        for backend in sorted(backends):
            for name, message in left_open.retired([begun for who, begun in self._begun if who == backend]).items():
                self.say(name, backend, message, restarting=False)

    def _ended(self, name: EventName, backend: str | None, closed: tuple[EventName, ...] = ()) -> tuple[str, ...]:
        over = ENDS.get(name, closed)
        found = (self._begun.pop((backend, begun), None) for begun in over)
        return tuple(event_id for event_id in found if event_id is not None)

    def _note_begin(self, event: Event) -> None:
        if has_end(event.name):
            self._begun[event.backend, general(event.name)] = event.id
            if len(self._begun) > _MOST_BEGUN:
                del self._begun[next(iter(self._begun))]

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
        from moetuned.schema.alert_view import AlertTestAnswer

        try:
            names = self._alerting.test(event, sink)
        except LookupError as error:
            return 404, {"error": str(error)}
        log.info("somebody tries the alert sinks: %s", ", ".join(names) or "there is none")
        return 202, AlertTestAnswer(event.id, names)
