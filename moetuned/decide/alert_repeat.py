"""What has begun and not ended, for a sink that forgets what it is not told again and again. A state machine; one `Repeats` a sink.

Nothing of it is kept over a restart of the daemon: a new one says anew what is still so, and what it does not say may be over.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from moetuned.schema.event import ENDS, Event, begun_by, has_end

MOST_GOING_ON = 64


class Repeats(msgspec.Struct, frozen=True):
    """`going_on`: begins that were delivered and have not ended. `waiting`: those of them that are to be told again now, first first.

    `due_at`: when they are to be told again next, on the clock that `now` is of; None: nothing goes on.
    """

    going_on: tuple[Event, ...] = ()
    waiting: tuple[Event, ...] = ()
    due_at: float | None = None


def delivered(repeats: Repeats, event: Event, now: float, every_seconds: float) -> Repeats:
    """The sink was told the event."""
    others = tuple(each for each in repeats.going_on if not _is_over(each, event))
    waiting = tuple(each for each in repeats.waiting if not _is_over(each, event))
    if event.name not in ENDS and has_end(event.name):
        others = (*others, event)[-MOST_GOING_ON:]
    due_at = (repeats.due_at if repeats.due_at is not None else now + every_seconds) if others else None
    return Repeats(others, waiting, due_at)


def tick(repeats: Repeats, backends: Collection[str], now: float, every_seconds: float) -> Repeats:
    """Time has gone by. What is about a backend that nobody watches any more has no end, and is told no more."""
    if repeats.due_at is None or now < repeats.due_at:
        return repeats
    going_on = tuple(each for each in repeats.going_on if each.backend is None or each.backend in backends)
    return Repeats(going_on, going_on, now + every_seconds if going_on else None)


def take(repeats: Repeats) -> tuple[Repeats, Event | None]:
    """The next that is to be told again; None: nothing is."""
    if not repeats.waiting:
        return repeats, None
    return msgspec.structs.replace(repeats, waiting=repeats.waiting[1:]), repeats.waiting[0]


def _is_over(begun: Event, event: Event) -> bool:
    """Whether the event ends what began, or tells it anew."""
    over = {*begun_by(event.name), *event.closes}
    return begun.backend == event.backend and bool(set(begun_by(begun.name)) & over)
