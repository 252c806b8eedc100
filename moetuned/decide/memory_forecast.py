"""When memory that cannot be reclaimed will be at a limit, from how it grew: steadily, fast from the start, or in steps.

Each limit is looked at by itself: the one that is reached first need not be the one that leaves fewest bytes now (a cgroup above
is filled by others, too). A limit that somebody lowers is no growth, nor is page cache, locked or not. A single large allocation
is no trend. What was allocated while the backend loaded is none either: loading ends.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import msgspec

from moetuned.decide.memory_headroom import Room, room_at, rooms
from moetuned.decide.window import Moment, Window, last_seconds

LONG_SECONDS = 5.0
SHORT_SECONDS = 2.0
STEP_BYTES = 256 << 10
MIN_STEPS = 3
STEADY_SHARE = 0.7
MIN_GROWTH_BYTES_PER_SECOND = 1e6

FAST_SECONDS = 14.0
"""Growth that was seen in three looks only is a trend when, two looks later, less than ten seconds would be left."""
FAST_STEPS = 3
EVEN_RATIO = 0.5
"""Such growth is about as fast in each look: the slowest at least this share of the fastest."""

PATTERN_SECONDS = 60.0
MIN_BURSTS = 3
EARLY_BURSTS, EARLY_MORE = 2, 2
"""Two bursts of about one size are enough where no more than two others would fit, and they would come soon."""
KEPT_SHARE = 0.8
"""Bursts count when this share of all that was allocated is still there: a buffer that comes and goes is no growth."""
LATE_RATIO = 2.0
"""A burst that is later than so many of the pauses before it does not come any more."""
MUCH_GROWTHS = 12
"""With room for so many times what was allocated lately, nothing is looked at closely."""


class Forecast(msgspec.Struct, frozen=True):
    """`seconds` until `place` is at its limit if what grows goes on, by `growth_bytes_per_second` on average."""

    place: str
    seconds: float
    growth_bytes_per_second: float


class _Use(msgspec.Struct, frozen=True, gc=False):
    """What grows, at one moment."""

    at: float
    used_bytes: int


def forecast(window: Window) -> Forecast | None:
    """The limit that is reached first; None when nothing grows towards one, or nothing is known."""
    found = [
        one
        for room in rooms(window.now.machine, window.now.backend)
        for one in (_at_place(window, room),)
        if one is not None
    ]
    return min(found, key=lambda one: one.seconds, default=None)


def _at_place(window: Window, room: Room) -> Forecast | None:
    now = _Use(window.now.at_seconds, room.growing_bytes)
    headroom = max(0, room.headroom_bytes)
    best: Forecast | None = None
    for look in (_steady, _bursts):
        moments = _settled(last_seconds(window, LONG_SECONDS if look is _steady else PATTERN_SECONDS))
        if not _may_matter(moments, room, now, headroom):
            continue
        rate = look(_uses(moments, room.place), headroom)
        if rate is not None and (best is None or rate.seconds < best.seconds):
            best = Forecast(room.place, rate.seconds, rate.growth_bytes_per_second)
    return best


def _settled(moments: Sequence[Moment]) -> Sequence[Moment]:
    """Those after the last in which the backend said that it loads."""
    for position in range(len(moments) - 1, -1, -1):
        http = moments[position].backend.http
        if http is not None and http.health == "loading":
            return moments[position + 1 :]
    return moments


def _may_matter(moments: Sequence[Moment], room: Room, now: _Use, headroom: int) -> bool:
    """A cheap first look at both ends, since nearly always nothing grows."""
    if len(moments) < MIN_STEPS:
        return False
    first = room_at(moments[0].machine, moments[0].backend, room.place)
    if first is None:
        return True  # it may have been unknown only then
    return headroom < MUCH_GROWTHS * (now.used_bytes - first.growing_bytes)


def _uses(moments: Sequence[Moment], place: str) -> list[_Use]:
    found = ((moment.at_seconds, room_at(moment.machine, moment.backend, place)) for moment in moments)
    return [_Use(at, room.growing_bytes) for at, room in found if room is not None]


class _Rate(msgspec.Struct, frozen=True, gc=False):
    seconds: float
    growth_bytes_per_second: float


def _steady(used: Sequence[_Use], headroom: int) -> _Rate | None:
    """It grew in most looks of five seconds and still does: the slower of the rates over five and two seconds.

    Where that would be too late, three looks are enough.
    """
    if len(used) < FAST_STEPS + 1:
        return None
    now = used[-1].at
    steps = [later.used_bytes - earlier.used_bytes for earlier, later in itertools.pairwise(used)]
    if now - used[0].at < 0.9 * LONG_SECONDS:
        return _fast(used[-FAST_STEPS - 1 :], steps[-FAST_STEPS:], headroom)
    grew = [step > STEP_BYTES for step in steps]
    if len(grew) >= MIN_STEPS and sum(grew) >= STEADY_SHARE * len(grew):
        recent = _growth(next(one for one in reversed(used) if one.at <= now - 0.95 * SHORT_SECONDS), used[-1])
        whole = _growth(used[0], used[-1])
        if not _even(steps[-FAST_STEPS:]):
            rate = _rate(min(whole, recent), headroom)
        elif _accelerating(steps[-FAST_STEPS - 1 :]):
            middles = (now - used[0].at - SHORT_SECONDS) / 2
            rate = _rate(recent, headroom, (recent - whole) / middles)
        else:
            rate = _rate(recent, headroom)  # even in each look: that is how fast it grows now
        if rate is not None:
            return rate
    return _fast(used[-FAST_STEPS - 1 :], steps[-FAST_STEPS:], headroom)


def _accelerating(steps: Sequence[int]) -> bool:
    """Never slower than the look before, and clearly faster than three looks ago."""
    return all(one <= other for one, other in itertools.pairwise(steps)) and steps[-1] > 1.1 * steps[0]


def _fast(used: Sequence[_Use], steps: Sequence[int], headroom: int) -> _Rate | None:
    if not _even(steps):
        return None
    rate = _rate(_growth(used[0], used[-1]), headroom)
    return rate if rate is not None and rate.seconds <= FAST_SECONDS else None


def _even(steps: Sequence[int]) -> bool:
    return min(steps) >= max(STEP_BYTES, EVEN_RATIO * max(steps))


def _bursts(used: Sequence[_Use], headroom: int) -> _Rate | None:
    """Steps with pauses between them, as a prompt cache makes them: when the one comes for which no room is left."""
    if len(used) < MIN_STEPS:
        return None
    bursts: list[_Use] = []  # when it ended, and what it allocated
    growing = False
    for earlier, later in itertools.pairwise(used):
        step = later.used_bytes - earlier.used_bytes
        if step > STEP_BYTES:
            before = bursts.pop().used_bytes if growing else 0
            bursts.append(_Use(later.at, before + step))
        growing = step > STEP_BYTES
    allocated = sum(burst.used_bytes for burst in bursts)
    if len(bursts) < EARLY_BURSTS or used[-1].used_bytes - used[0].used_bytes < KEPT_SHARE * allocated:
        return None
    pauses = [later.at - earlier.at for earlier, later in itertools.pairwise(bursts)]
    pause, last = sum(pauses) / len(pauses), used[-1].at - bursts[-1].at
    if last > LATE_RATIO * max(pauses) + 1.0:
        return None
    sizes = [burst.used_bytes for burst in bursts]
    size = max(sum(sizes[1:]) / len(pauses), *sizes[-2:])
    more = int(headroom // size)  # bursts for which there is room
    seconds = max(0.0, (more + 1) * pause - last)
    early = len(bursts) < MIN_BURSTS
    if early and (more > EARLY_MORE or min(sizes) < EVEN_RATIO * max(sizes) or seconds > FAST_SECONDS):
        return None
    return _Rate(seconds, size / pause) if size / pause > MIN_GROWTH_BYTES_PER_SECOND else None


def _growth(earlier: _Use, later: _Use) -> float:
    return (later.used_bytes - earlier.used_bytes) / (later.at - earlier.at)


def _rate(growth: float, headroom: int, acceleration: float = 0.0) -> _Rate | None:
    """`growth` in the middle of the last two seconds, bytes a second; `acceleration` in bytes a second, a second."""
    if growth <= MIN_GROWTH_BYTES_PER_SECOND:
        return None
    if acceleration <= 0:
        return _Rate(headroom / growth, growth)
    now = growth + acceleration * SHORT_SECONDS / 2
    return _Rate((math.sqrt(now * now + 2 * acceleration * headroom) - now) / acceleration, now)
