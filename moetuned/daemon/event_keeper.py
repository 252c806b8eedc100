"""Keeps events on disk, so that the next daemon knows them: written by a thread, read once at the start. A disk that is full harms nothing."""

from __future__ import annotations

import logging
from collections import deque

from moetuned.daemon.event_log import CAPACITY, EventLog
from moetuned.daemon.workers import Lane, Workers
from moetuned.schema.event import Event
from moetuned.state import event_store

log = logging.getLogger(__name__)

MOST_UNWRITTEN = 256
"""Events that could not be written and are tried again with the next; more are only in memory."""


class EventKeeper:
    """Belongs to the loop's thread."""

    def __init__(self, workers: Workers, directory: str) -> None:
        self._workers = workers
        self._directory = directory
        self._file = event_store.event_file(directory)
        self._unwritten: deque[Event] = deque(maxlen=MOST_UNWRITTEN)
        self._told: str | None = None

    def open_log(self, started_wall_seconds: float) -> EventLog:
        """The log of a daemon that was started then, with the newest events that earlier ones left."""
        earlier: list[Event] = []
        try:
            earlier = event_store.last(CAPACITY, self._directory)
        except OSError as error:
            log.warning("events of earlier runs cannot be read from %s: %s", self._file, error.strerror)
        return EventLog(started_wall_seconds, CAPACITY, earlier, self.keep, self._file)

    def keep(self, event: Event) -> None:
        """Write it, off the loop."""
        self._unwritten.append(event)
        self._write()

    def _write(self) -> None:
        if not self._unwritten:
            return
        events = tuple(self._unwritten)

        def done(_nothing: object, error: BaseException | None) -> None:
            if error is not None:
                why = getattr(error, "strerror", None) or str(error)
                if why != self._told:
                    log.warning("events cannot be kept in %s: %s; they are in memory", self._file, why)
                self._told = why
                # in front of what came meanwhile; the oldest give way
                self._unwritten = deque((*events, *self._unwritten), maxlen=MOST_UNWRITTEN)
                return
            self._told = None
            self._write()

        if self._workers.submit(Lane.KEEP, "keeping events", lambda: event_store.append(events, self._directory), done):
            self._unwritten.clear()
