"""The last events, in memory, each with an id that no other event ever has, also not after a restart."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from moetuned.schema.event import Event, KeptEvents

CAPACITY = 256
_decoder = msgspec.json.Decoder(Event)


class _Kept(msgspec.Struct, frozen=True):
    """An event as JSON: less than half as large as one that is taken apart, and few are ever looked at."""

    id: str
    wall_seconds: float
    json: bytes


class EventLog:
    """A bounded ring of events, oldest dropped first. Belongs to the loop's thread.

    Ids are "<start>-<number>": the daemon's start in microseconds of Unix time and a counter, both in hexadecimal of
    fixed width, so that they also sort by time as text as long as the wall clock is not set back.
    """

    def __init__(
        self,
        started_wall_seconds: float,
        capacity: int = CAPACITY,
        earlier: Sequence[Event] = (),
        keep: Callable[[Event], None] | None = None,
        file: str | None = None,
    ) -> None:
        """`earlier`: events of earlier daemons, oldest first; `keep` is called with each that is added; `file`: where it keeps them."""
        self._prefix = f"{int(started_wall_seconds * 1e6):014x}"
        self._number = 0
        self._keep = keep
        self._file = file
        self._events: deque[_Kept] = deque((_kept(event) for event in earlier), maxlen=capacity)
        self._lost_wall: float | None = None if len(earlier) < capacity else earlier[0].wall_seconds
        """When the last that is not here any more was, or one that may be missing (Unix time); None: all are here."""
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
        if len(self._events) == self._events.maxlen:
            self._lost_wall = self._events[0].wall_seconds
        self._events.append(_kept(event))
        self.counts[event.name.value] = self.counts.get(event.name.value, 0) + 1
        if self._keep is not None:
            self._keep(event)
        return event

    def since(self, since: str | float | None) -> list[Event]:
        """Events after the one with this id, or after this Unix time, oldest first.

        All that are kept when `since` is None, or an id that is older than the oldest kept: a reader may see an event twice then, but
        misses none that is still known.
        """
        return [_decoder.decode(kept.json) for kept in self._after(since)]

    def answer(self, since: str | float | None) -> KeptEvents:
        """The same, with whether that is all there ever was."""
        lost = self._lost_wall
        complete = lost is None or (isinstance(since, float) and lost <= since) or self._knows(since)
        return KeptEvents(tuple(self.since(since)), complete, self._file)

    def last(self, count: int) -> tuple[Event, ...]:
        """The newest `count` events, oldest first."""
        first = max(0, len(self._events) - count)
        return tuple(_decoder.decode(self._events[index].json) for index in range(first, len(self._events)))

    def _after(self, since: str | float | None) -> list[_Kept]:
        kept = list(self._events)
        if since is None:
            return kept
        if isinstance(since, float):
            return [each for each in kept if each.wall_seconds > since]
        for index, each in enumerate(kept):
            if each.id == since:
                return kept[index + 1 :]
        prefix, _, text = since.partition("-")
        number = _number(text)
        if prefix != self._prefix or number is None:
            return kept
        return [each for each in kept if not _before(each.id, self._prefix, number)]

    def _knows(self, since: str | float | None) -> bool:
        return isinstance(since, str) and any(each.id == since for each in self._events)


def _kept(event: Event) -> _Kept:
    return _Kept(event.id, event.wall_seconds, msgspec.json.encode(event))


def _number(text: str) -> int | None:
    try:
        return int(text, 16)
    except ValueError:
        return None


def _before(event_id: str, prefix: str, number: int) -> bool:
    """Whether it is of this daemon and no newer than `number`."""
    own_prefix, _, text = event_id.partition("-")
    own = _number(text)
    return own_prefix == prefix and own is not None and own <= number
