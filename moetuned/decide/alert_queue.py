"""What waits to be delivered to one sink: in order, bounded, tried again later and later. One `Outbox` a sink.

What is dropped because too much waits, or because it could not be delivered for days, is counted, and the count is told with the next.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from moetuned.decide.alert_gate import Told
from moetuned.schema.event import ENDS, Event, begun_by

MOST_WAITING = 200
MOST_BYTES = 128 << 10
MOST_AGE_SECONDS = 3 * 86400.0
"""What could not be delivered for so long makes room for what comes after it."""
FIRST_DELAY_SECONDS = 2.0
MOST_DELAY_SECONDS = 300.0


class Outcome(StrEnum):
    """How a try ended."""

    DELIVERED = "delivered"
    AGAIN = "again"
    """Not now; the same may go well later."""
    REFUSED = "refused"
    """Not ever."""


class Waiting(msgspec.Struct, frozen=True):
    """One delivery. `since_wall_seconds`: when it was put in (Unix time)."""

    told: Told
    since_wall_seconds: float
    size_bytes: int


class Outbox(msgspec.Struct, frozen=True):
    """`tries`: how often the first of those that wait was tried in vain. `dropped`: to be told with the next; `telling`: of these, what is
    being told now. `dropped_total`, `refused_total`: since the sink is there.
    """

    waiting: tuple[Waiting, ...] = ()
    tries: int = 0
    dropped: int = 0
    telling: int = 0
    dropped_total: int = 0
    refused_total: int = 0


def put(outbox: Outbox, told: Told, now_wall_seconds: float, *, sending: bool) -> tuple[Outbox, tuple[Told, ...]]:
    """Put one at the end. `sending`: the first is on its way and stays. Also returns what had to go for it: the oldest, and with a begin
    that was never told, its end.
    """
    size = len(msgspec.json.encode(told.event))
    waiting = (*outbox.waiting, Waiting(told, now_wall_seconds, size))
    gone: list[Waiting] = []
    first = 1 if sending else 0
    while len(waiting) > MOST_WAITING or sum(each.size_bytes for each in waiting) > MOST_BYTES:
        if len(waiting) <= first:
            break
        oldest = waiting[first]
        ends = () if oldest.told.again else tuple(each for each in waiting[first + 1 :] if _is_end_of(each, oldest))[:1]
        gone += (oldest, *ends)
        waiting = tuple(each for each in waiting if each is not oldest and each not in ends)
    tries = outbox.tries if sending or not gone else 0
    return _dropped(msgspec.structs.replace(outbox, waiting=waiting, tries=tries), len(gone)), tuple(
        each.told for each in gone
    )


def begin(outbox: Outbox) -> tuple[Outbox, Event]:
    """The first that waits, as it is to be told; there must be one."""
    told = outbox.waiting[0].told
    message = f"{told.event.message}{_count_text(told.held_back, outbox.dropped)}"
    event = told.event if message == told.event.message else msgspec.structs.replace(told.event, message=message)
    return msgspec.structs.replace(outbox, telling=outbox.dropped), event


def settle(outbox: Outbox, outcome: Outcome, now_wall_seconds: float) -> tuple[Outbox, Told | None]:
    """The outbox after a try of its first. Also returns what is given up: it was refused, or is too old; None: nothing is."""
    first, rest = outbox.waiting[0], outbox.waiting[1:]
    if outcome is Outcome.DELIVERED:
        left = outbox.dropped - outbox.telling
        return msgspec.structs.replace(outbox, waiting=rest, tries=0, dropped=left, telling=0), None
    if outcome is Outcome.REFUSED:
        refused = outbox.refused_total + 1
        return msgspec.structs.replace(outbox, waiting=rest, tries=0, telling=0, refused_total=refused), first.told
    if now_wall_seconds - first.since_wall_seconds > MOST_AGE_SECONDS:
        return _dropped(msgspec.structs.replace(outbox, waiting=rest, tries=0, telling=0), 1), first.told
    return msgspec.structs.replace(outbox, tries=outbox.tries + 1, telling=0), None


def delay_seconds(tries: int, chance: float, asked_seconds: float | None = None) -> float:
    """How long to wait after so many tries in vain: doubled each time up to 5 min, of that half to all, by `chance` (0 to 1), so that not
    all who lost the same server come back at once; `asked_seconds`: no less than the other side asks for.
    """
    longest = min(MOST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0 ** min(max(0, tries - 1), 30))
    return max(longest * (0.5 + 0.5 * chance), asked_seconds or 0.0)


def _dropped(outbox: Outbox, more: int) -> Outbox:
    if not more:
        return outbox
    return msgspec.structs.replace(outbox, dropped=outbox.dropped + more, dropped_total=outbox.dropped_total + more)


def _is_end_of(one: Waiting, begun: Waiting) -> bool:
    end, event = one.told.event, begun.told.event
    same = end.backend == event.backend and bool(set(begun_by(end.name)) & set(begun_by(event.name)))
    return same and end.name in ENDS and event.name not in ENDS


def _count_text(held_back: int, dropped: int) -> str:
    parts = []
    if held_back:
        parts.append(f"{_alerts(held_back)} held back before this one, in quiet hours or by the rate limit")
    if dropped:
        parts.append(f"{_alerts(dropped)} dropped, as they could not be delivered")
    return f" ({'; '.join(parts)}; see moetunectl events)" if parts else ""


def _alerts(count: int) -> str:
    return "1 alert was" if count == 1 else f"{count} alerts were"
