"""The last events, in memory, each with an id that no other event ever has, also not after a restart."""

from __future__ import annotations

from collections import deque

import msgspec

from moetuned.schema.event import Event

CAPACITY = 256


class EventLog:
    """A bounded ring of events, oldest dropped first. Belongs to the loop's thread.

    Ids are "<start>-<number>": the daemon's start in microseconds of Unix time and a counter, both in hexadecimal of
    fixed width, so that they also sort by time as text as long as the wall clock is not set back.
    """

    def __init__(self, started_wall_seconds: float, capacity: int = CAPACITY) -> None:
        self._prefix = f"{int(started_wall_seconds * 1e6):014x}"
        self._number = 0
        self._events: deque[Event] = deque(maxlen=capacity)
        self.counts: dict[str, int] = {}
        """How many of each name there were since the daemon started."""

    def new_id(self) -> str:
        """An id for the next event."""
        self._number += 1
        return f"{self._prefix}-{self._number:06x}"

    def add(self, event: Event) -> Event:
        """Keep the event, with a new id where it has none (""), and return what was kept."""
        if not event.id:
            event = msgspec.structs.replace(event, id=self.new_id())
        self._events.append(event)
        self.counts[event.name.value] = self.counts.get(event.name.value, 0) + 1
        return event

    def since(self, event_id: str | None) -> list[Event]:
        """Events after the one with this id, oldest first.

        All that are kept when `event_id` is None, is older than the oldest kept, or was given by an earlier daemon: a
        reader may see an event twice then, but misses none that is still known.
        """
        if event_id is None:
            return list(self._events)
        prefix, _, text = event_id.partition("-")
        number = _number(text)
        if prefix != self._prefix or number is None:
            return list(self._events)
        return [event for event in self._events if _after(event.id, self._prefix, number)]

    def last(self, count: int) -> tuple[Event, ...]:
        """The newest `count` events, oldest first."""
        return tuple(self._events)[-count:] if count > 0 else ()


def _number(text: str) -> int | None:
    try:
        return int(text, 16)
    except ValueError:
        return None


def _after(event_id: str, prefix: str, number: int) -> bool:
    own_prefix, _, text = event_id.partition("-")
    own = _number(text)
    return own_prefix == prefix and own is not None and own > number
