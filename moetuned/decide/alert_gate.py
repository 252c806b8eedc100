"""Which events go to a sink, and when: its filters, its rate limit, its quiet hours. A state machine; one `Gate` a sink.

Begin and end belong together. An end goes only to whom its begin went. A begin that may not go now is held, and goes when it may if it
is still true then; one that is over by then never goes. An end that may not go now is held too, unless it begins again before. What
neither begins nor ends (a setting was changed) is not held. What never goes is counted, and the count goes with the next that does.

What tells how a restart failed is something of its own and, to whom was told that the restart began, the end of that: then it is held as
ends are. Where only the second is wanted, or still true once it may go, it goes as backend_not_restarted, which nothing ends.
"""

from __future__ import annotations

import msgspec

from moetuned.schema.event import ENDS, Event, EventName, begun_by, general, has_end, is_wanted

Pair = tuple[str | None, EventName]
"""What has begun: of which backend (None: the machine), and the general name of the event."""

MOST_HELD = 64
MOST_TOLD = 256


class Rules(msgspec.Struct, frozen=True):
    """What a sink wants. `at_most`: so many in so many seconds; `quiet`: from and to, in minutes of the local day."""

    on: frozenset[EventName] = frozenset()
    ends: bool = True
    backends: frozenset[str] = frozenset()
    at_most: tuple[int, float] | None = None
    quiet: tuple[int, int] | None = None
    loud: frozenset[EventName] = frozenset()


class Moment(msgspec.Struct, frozen=True):
    """Now: Unix time, and the minute of the local day (0 to 1439)."""

    wall_seconds: float
    minute: int


class Gate(msgspec.Struct, frozen=True):
    """`told`: what began and was let through, and has not ended. `held`: what waits until it may go, oldest first.

    `sent`: when the last ones went (Unix time), as far as the rate limit needs it. `held_back`: how many never went since the last that did.
    """

    told: tuple[Pair, ...] = ()
    held: tuple[Event, ...] = ()
    sent: tuple[float, ...] = ()
    held_back: int = 0


class Told(msgspec.Struct, frozen=True):
    """An event that goes to the sink now. `held_back`: how many did not before it; `again`: it had been told that this began."""

    event: Event
    held_back: int = 0
    again: bool = False


def hear(gate: Gate, rules: Rules, event: Event, now: Moment) -> tuple[Gate, list[Told]]:
    """Something happened: what goes to the sink because of it, with what was held and may go now."""
    gate, going = release(gate, rules, now)
    if rules.backends and event.backend not in rules.backends:
        return gate, going
    if event.closes:
        gate, _ = _give_way(gate, _closed(event))
        told, event = event, _as_told(gate, rules, event)
        if not event.closes:
            gate = _without_told(gate, _closed(told))
    if event.name in ENDS and _wants_a_begin(rules, event.name):
        gate, more = _end(gate, rules, event, now)
    elif event.closes and not has_end(event.name):
        gate, more = _go(gate, rules, event, now) if _may_go(gate, rules, event, now) else (_hold(gate, event), [])
    elif not is_wanted(event.name, rules.on):
        return gate, going
    elif has_end(event.name):
        gate, more = _begin(gate, rules, event, now)
    elif _may_go(gate, rules, event, now):
        gate, more = _go(gate, rules, event, now)
    else:
        gate, more = _count(gate, 1), []
    return gate, going + more


def release(gate: Gate, rules: Rules, now: Moment) -> tuple[Gate, list[Told]]:
    """What was held and may go now, oldest first. What the rules (of a new config) do not want any more is dropped."""
    going: list[Told] = []
    for held in gate.held:
        event = _as_told(gate, rules, held)
        if not _wants(rules, event):
            gate = _count(_without_held(gate, (held,)), 1)
        elif _may_go(gate, rules, event, now):
            gate, more = _go(_without_held(gate, (held,)), rules, event, now)
            going += more
    return gate, going


def forget(gate: Gate, event: Event) -> Gate:
    """The gate when a begin that it let through never arrived: its end is not to go either."""
    return _without_told(gate, _pairs(event))


def after_boot(gate: Gate) -> Gate:
    """The gate after the machine was started anew: what was held is not true any more."""
    return _count(msgspec.structs.replace(gate, held=()), len(gate.held))


def is_quiet(quiet: tuple[int, int] | None, minute: int) -> bool:
    """Whether the minute of the day is within quiet hours, which may go over midnight."""
    if quiet is None:
        return False
    begin, end = quiet
    return begin <= minute < end if begin <= end else minute >= begin or minute < end


def _begin(gate: Gate, rules: Rules, event: Event, now: Moment) -> tuple[Gate, list[Told]]:
    gate, goes_on = _give_way(gate, _pairs(event))
    if _may_go(gate, rules, event, now):
        return _go(gate, rules, event, now)
    if goes_on and event.closes:
        return _hold(gate, _as_end(event)), []
    if goes_on:  # It was told that it began, and not that it ended: nothing is different.
        return _count(gate, 1), []
    return _hold(gate, event), []


def _end(gate: Gate, rules: Rules, event: Event, now: Moment) -> tuple[Gate, list[Told]]:
    pairs = _pairs(event)
    gate, _ = _give_way(gate, pairs)
    if not set(pairs) & set(gate.told):
        return gate, []
    if not (rules.ends or is_wanted(event.name, rules.on)):
        return forget(gate, event), []
    if _may_go(gate, rules, event, now):
        return _go(gate, rules, event, now)
    return _hold(gate, event), []


def _give_way(gate: Gate, pairs: tuple[Pair, ...]) -> tuple[Gate, bool]:
    """What is held about these makes way for what is told of them now. Also returns whether it was told that they began, and their end was held."""
    held: list[Event] = []
    ends = False
    for each in gate.held:
        own, closed = set(_pairs(each)) & set(pairs), set(_closed(each)) & set(pairs)
        if own and not closed and each.closes:
            held.append(_as_end(each))
        elif own or closed:
            ends = ends or bool(closed) or each.name in ENDS
            if closed and not own and has_end(each.name):
                held.append(msgspec.structs.replace(each, ended=()))
        else:
            held.append(each)
    return _count(msgspec.structs.replace(gate, held=tuple(held)), len(gate.held) - len(held)), ends


def _as_told(gate: Gate, rules: Rules, event: Event) -> Event:
    """The event as this sink is to get it: of what it was not told, or wants no end of, it is not the end."""
    if not event.closes:
        return event
    if not rules.ends or not set(_closed(event)) & set(gate.told):
        return msgspec.structs.replace(event, ended=())
    return event if is_wanted(event.name, rules.on) else _as_end(event)


def _as_end(event: Event) -> Event:
    """Of what tells how a restart failed only that it did."""
    return msgspec.structs.replace(event, name=EventName.BACKEND_NOT_RESTARTED)


def _go(gate: Gate, rules: Rules, event: Event, now: Moment) -> tuple[Gate, list[Told]]:
    pairs = _pairs(event)
    again = bool(set(pairs) & set(gate.told))
    told = _without_told(gate, (*pairs, *_closed(event))).told
    if event.name not in ENDS and has_end(event.name):
        told = (*told, *pairs)[-MOST_TOLD:]
    count = rules.at_most[0] if rules.at_most is not None else 0
    sent = (*gate.sent, now.wall_seconds)[-count:] if count else ()
    return Gate(told, gate.held, sent), [Told(event, gate.held_back, again)]


def _hold(gate: Gate, event: Event) -> Gate:
    held = (*gate.held, event)
    return _count(msgspec.structs.replace(gate, held=held[-MOST_HELD:]), max(0, len(held) - MOST_HELD))


def _without_held(gate: Gate, events: tuple[Event, ...]) -> Gate:
    return msgspec.structs.replace(gate, held=tuple(each for each in gate.held if each not in events))


def _without_told(gate: Gate, pairs: tuple[Pair, ...]) -> Gate:
    return msgspec.structs.replace(gate, told=tuple(pair for pair in gate.told if pair not in pairs))


def _count(gate: Gate, more: int) -> Gate:
    return msgspec.structs.replace(gate, held_back=gate.held_back + more) if more else gate


def _may_go(gate: Gate, rules: Rules, event: Event, now: Moment) -> bool:
    loud = bool(rules.loud) and any(
        is_wanted(name, rules.loud) for name in (event.name, *begun_by(event.name), *event.closes)
    )
    if is_quiet(rules.quiet, now.minute) and not loud:
        return False
    if rules.at_most is None:
        return True
    count, seconds = rules.at_most
    # What was sent in the future was sent before the clock was set back.
    return sum(0 <= now.wall_seconds - at < seconds for at in gate.sent) < count


def _pairs(event: Event) -> tuple[Pair, ...]:
    return tuple((event.backend, name) for name in begun_by(event.name))


def _closed(event: Event) -> tuple[Pair, ...]:
    return tuple((event.backend, name) for name in event.closes)


def _wants(rules: Rules, event: Event) -> bool:
    if rules.backends and event.backend not in rules.backends:
        return False
    return event.name in ENDS or bool(event.closes) or is_wanted(event.name, rules.on)


def _wants_a_begin(rules: Rules, end: EventName) -> bool:
    """Whether the sink subscribes to anything that this event is the end of; else the end stands for itself."""
    return any(is_wanted(name, rules.on) for name in EventName if general(name) in ENDS[end])
