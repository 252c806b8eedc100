"""When memory that cannot be reclaimed will be at a limit, from how it grew: steadily, fast from the start, or in steps.

Each limit is looked at by itself: the one that is reached first need not be the one that leaves fewest bytes now (a cgroup above
is filled by others, too). A limit that somebody lowers is no growth, nor is page cache, locked or not. A single large allocation
is no trend. What was allocated while the backend loaded is none either, since loading ends, unless what it still has to load has no
room: weights that it copies into its own memory as it reads them (repacked, or without mmap).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import msgspec

from moetuned.decide.counters import anonymous_bytes, process_read_bytes
from moetuned.decide.memory_headroom import Room, room_at
from moetuned.decide.window import Moment, Window, increase, last_seconds

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

COPIED_SHARE = 0.7
"""While it loads, its own memory that grows by no more than 1/0.7 of what it reads is a copy of that. Measured: 57 MB/s at 60 MB/s."""

PATTERN_SECONDS = 60.0
MIN_BURSTS = 3
EARLY_BURSTS, EARLY_MORE = 2, 2
"""Two bursts of about one size are enough where no more than two others would fit, and they would come soon."""
LIKE_RATIO = 0.1
"""What is smaller than this share of the largest burst is noise beside it: one large allocation is no pattern."""
KEPT_SHARE = 0.8
"""Bursts count when this share of all that was allocated is still there: a buffer that comes and goes is no growth."""
LATE_RATIO = 2.0
"""A burst that is later than so many of the pauses before it does not come any more."""
MUCH_GROWTHS = 12
"""With room for so many times what was allocated lately, nothing is looked at closely."""


class Forecast(msgspec.Struct, frozen=True):
    """`seconds` until `place` is at its limit if what grows goes on, by `growth_bytes_per_second` on average; `in_steps`: with pauses
    between them, so that only a long time tells whose growth it is.
    """

    place: str
    seconds: float
    growth_bytes_per_second: float
    in_steps: bool = False


class _Use(msgspec.Struct, frozen=True, gc=False):
    """What grows, at one moment."""

    at: float
    used_bytes: int


def forecast(window: Window) -> Forecast | None:
    """The limit that is reached first; None when nothing grows towards one, or nothing is known."""
    found = [one for room in window.now.rooms for one in (_at_place(window, room),) if one is not None]
    return min(found, key=lambda one: one.seconds, default=None)


def _at_place(window: Window, room: Room) -> Forecast | None:
    now = _Use(window.now.at_seconds, room.growing_bytes)
    headroom = max(0, room.headroom_bytes)
    if window.now.loads:
        rate = _copying(window, headroom)
        return None if rate is None else Forecast(room.place, rate.seconds, rate.growth_bytes_per_second)
    best: Forecast | None = None
    for look in (_steady, _bursts):
        moments = _settled(last_seconds(window, LONG_SECONDS if look is _steady else PATTERN_SECONDS))
        if not _may_matter(moments, room, now, headroom):
            continue
        rate = look(_uses(moments, room.place), headroom)
        if rate is not None and (best is None or rate.seconds < best.seconds):
            best = Forecast(room.place, rate.seconds, rate.growth_bytes_per_second, in_steps=look is _bursts)
    return best


def _settled(moments: Sequence[Moment]) -> Sequence[Moment]:
    """Those after the last in which the backend said that it loads."""
    for position in range(len(moments) - 1, -1, -1):
        if moments[position].loads:
            return moments[position + 1 :]
    return moments


def _copying(window: Window, headroom: int) -> _Rate | None:
    """It loads and its own memory grows as it reads, about evenly over three looks, and more weights are to come than fit.

    All experts may be copied; of a model without any, all of it.
    """
    looks, layout = window.moments[-FAST_STEPS - 1 :], window.facts.layout
    weights = (layout.expert_bytes if layout is not None else 0) or window.facts.model_bytes
    read, known = increase(looks, process_read_bytes), [(look.at_seconds, anonymous_bytes(look)) for look in looks]
    used = [_Use(at, size) for at, size in known if size is not None]
    if len(used) <= FAST_STEPS or read is None or weights is None or weights - used[-1].used_bytes <= headroom:
        return None
    steps = [later.used_bytes - earlier.used_bytes for earlier, later in itertools.pairwise(used)]
    return _rate(_growth(used[0], used[-1]), headroom) if _even(steps) and COPIED_SHARE * sum(steps) <= read else None


def _may_matter(moments: Sequence[Moment], room: Room, now: _Use, headroom: int) -> bool:
    """A cheap first look at both ends, since nearly always nothing grows."""
    if len(moments) < MIN_STEPS:
        return False
    first = room_at(moments[0].rooms, room.place)
    if first is None:
        return True  # it may have been unknown only then
    return headroom < MUCH_GROWTHS * (now.used_bytes - first.growing_bytes)


def _uses(moments: Sequence[Moment], place: str) -> list[_Use]:
    found = ((moment.at_seconds, room_at(moment.rooms, place)) for moment in moments)
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
        else:  # even in each look: that is how fast it grows now
            rate = _rate(recent, headroom, _acceleration(used[-FAST_STEPS - 2 :]))
        if rate is not None:
            return rate
    return _fast(used[-FAST_STEPS - 1 :], steps[-FAST_STEPS:], headroom)


def _acceleration(used: Sequence[_Use]) -> float:
    """Bytes a second, a second: the least that the growth quickened by from each look to the next, 0 where it once did not.

    A growth that has just begun is slow in its first look only, and one that is steady is by turns a little faster and slower.
    """
    speeds = [(later.at, _growth(earlier, later)) for earlier, later in itertools.pairwise(used)]
    quickened = (
        (faster - slower) / (later - earlier) for (earlier, slower), (later, faster) in itertools.pairwise(speeds)
    )
    return max(0.0, min(quickened, default=0.0))


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
    largest = max((burst.used_bytes for burst in bursts), default=0)
    bursts = [burst for burst in bursts if burst.used_bytes >= LIKE_RATIO * largest]
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
