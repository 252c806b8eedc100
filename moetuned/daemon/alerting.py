"""All alert sinks: gives each event to each of them, keeps on disk what must outlive the daemon, and tries them by hand."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from moetuned import alerts
from moetuned.daemon.workers import Lane, Workers
from moetuned.host.clock import Clock
from moetuned.schema.alert import JOURNAL, Alert, JournalAlert, kind_of_sink, sink_names
from moetuned.schema.event import Event

if TYPE_CHECKING:  # a daemon without sinks does without what they need
    from moetuned.daemon.alert_sink import AlertSink
    from moetuned.schema.alert_view import AlertsAnswer
    from moetuned.state.alert_store import KeptSink

log = logging.getLogger(__name__)

_KEEP_AGAIN_SECONDS = 60.0
"""What could not be written is tried again after this long."""


class Alerting:
    """Belongs to the loop's thread. Files are read at `configure`, and written by a thread."""

    def __init__(self, workers: Workers, clock: Clock, directory: str, boot_id: str) -> None:
        """`directory`: where what outlives the daemon is kept."""
        self._workers = workers
        self._clock = clock
        self._directory = directory
        self._boot_id = boot_id
        self._sinks: list[AlertSink] = []
        self._journal: AlertSink | None = None
        """Who announces tells it himself; here it can be seen and tried, once somebody does."""
        self._dirty: dict[str, AlertSink] = {}
        self._forget = False
        self._keep_again: float | None = None

    def configure(self, sinks: Sequence[Alert]) -> None:
        """Go on with these sinks; those of the same name and kind keep what waits for them."""
        known = {(sink.name, kind_of_sink(sink.config)): sink for sink in self._sinks}
        self._sinks = []
        for name, config in zip(sink_names(list(sinks)), sinks, strict=True):
            sink = known.pop((name, kind_of_sink(config)), None)
            if sink is None:
                sink = self._made(name, config)
            else:
                sink.reconfigure(config)
            self._sinks.append(sink)
        for sink in known.values():
            sink.leave()
            self._dirty.pop(sink.name, None)
        self._forget = os.path.isdir(self._directory)
        self._keep()

    def _shown(self) -> list[AlertSink]:
        """With the journal, where there is one."""
        if self._journal is None:
            from moetuned.daemon.alert_sink import AlertSink

            journal = alerts.find(JOURNAL)
            if not os.path.exists(journal.target(None)):
                return self._sinks
            self._journal = AlertSink(JOURNAL, JournalAlert(), journal, self._workers, self._clock, lambda _sink: None)
        return [self._journal, *self._sinks]

    def _made(self, name: str, config: Alert) -> AlertSink:
        from moetuned.daemon.alert_sink import AlertSink
        from moetuned.state import alert_store

        problem = None
        try:
            kind = alerts.find(kind_of_sink(config))
        except LookupError as error:
            kind, problem = None, str(error)
        sink = AlertSink(name, config, kind, self._workers, self._clock, self._note_change)
        sink.problem = problem
        kept, note = alert_store.read(name, kind_of_sink(config), self._directory)
        for said in (problem, note):
            if said is not None:
                log.warning("%s", said)
        if kept is not None:
            sink.take_up(kept, self._boot_id)
        return sink

    def hear(self, event: Event) -> None:
        """Something happened: tell whoever wants to know."""
        for sink in self._sinks:
            sink.hear(event)

    def tick(self, backends: Collection[str] = ()) -> None:
        """Time has gone by. `backends`: all that are watched."""
        for sink in self._sinks if self._journal is None else [self._journal, *self._sinks]:
            sink.tick(backends)
        if self._keep_again is not None and self._clock.monotonic() >= self._keep_again:
            self._keep_again = None
            self._keep()

    def test(self, event: Event, name: str | None) -> tuple[str, ...]:
        """Send a test to the sink `name`, or to all (None); the names of those that get it. Raises LookupError."""
        shown = self._shown()
        chosen = [sink for sink in shown if name is None or sink.name == name]
        if name is not None and not chosen:
            known = ", ".join(sink.name for sink in shown) or "none"
            raise LookupError(f"there is no alert sink {name!r}; there are: {known}")
        for sink in chosen:
            sink.test(event)
        return tuple(sink.name for sink in chosen)

    @property
    def pending(self) -> bool:
        """Whether anything is on its way, or waits to be written to the disk."""
        written = not self._dirty or self._keep_again is not None
        return any(sink.pending for sink in self._sinks) or not written or bool(self._workers.waiting(Lane.KEEP))

    def view(self) -> AlertsAnswer:
        """How each is."""
        from moetuned.schema.alert_view import AlertsAnswer

        return AlertsAnswer(tuple(sink.view() for sink in self._shown()))

    def _note_change(self, sink: AlertSink) -> None:
        self._dirty[sink.name] = sink
        if self._keep_again is None:
            self._keep()

    def _keep(self) -> None:
        """Write what has changed, off the loop; what changes meanwhile follows."""
        if not self._dirty and not self._forget:
            return
        changed = {name: sink.kept(self._boot_id) for name, sink in self._dirty.items()}
        names, forget, directory = {sink.name for sink in self._sinks}, self._forget, self._directory

        def work() -> list[str]:
            from moetuned.state import alert_store

            said = alert_store.forget_others(names, directory) if forget else []
            for name, kept in changed.items():
                alert_store.write(name, kept, directory)
            return said

        def done(said: list[str] | None, error: BaseException | None) -> None:
            if error is not None:
                self._forget = self._forget or forget
                self._could_not_keep(changed, error)
                return
            for sink in self._sinks:
                if sink.name in changed and sink.problem is not None and sink.problem.startswith(_UNWRITTEN):
                    sink.problem = None
            for sentence in said or ():
                log.warning("%s", sentence)
            self._keep()

        if self._workers.submit(Lane.KEEP, "keeping alerts", work, done):
            self._dirty, self._forget = {}, False

    def _could_not_keep(self, changed: dict[str, KeptSink], error: BaseException) -> None:
        """They go on in memory."""
        why = getattr(error, "strerror", None) or str(error)
        problem = f"{_UNWRITTEN} {self._directory}: {why}; it is lost when moetuned ends"
        for sink in self._sinks:
            if sink.name in changed:
                self._dirty[sink.name] = sink
                if sink.problem != problem:
                    log.warning("alert sink %s: %s", sink.name, problem)
                    sink.problem = problem
        self._keep_again = self._clock.monotonic() + _KEEP_AGAIN_SECONDS


_UNWRITTEN = "what waits for it cannot be kept in"
