"""How much more memory will be taken before another restart may help: how far a growth is to be believed.

Pure. Too small a cut costs a second restart, which reads the whole model again and may come only after the cool-down; until then the
kernel may end the backend. Too large a cut takes context for nothing. So:

- Growth of the backend's own ends with its process, and what it grew by is given back. Only what it takes until then is foreseen,
  and of a leak, which does not end by itself, what the next process leaks beyond what this one gives back.
- Both may grow at once, whatever is said to grow: what others below the limit are seen to grow by is theirs, and so is what nobody is
  known to (`own_share`). How long a growth that ends with the process has lasted says nothing of how long theirs will.
- Growth of others goes on meanwhile, but may end at any time. Nothing is known of how long others allocate, except how long this one
  has: with the scale-free prior (1/t), one growth in 1 + k lasts for k times as long again. It is believed for twice as long again:
  a program that takes 500 MB within seconds is not taken for one that takes 6 GB, and one that has grown for a minute is taken
  to go on. Over 400 simulated growths with durations of 3 to 300 s, once as long again (k = 1) was followed by an OOM kill or a load
  that failed in a quarter, k = 2 in a fifth, k = 4 in an eighth, and left 90, 85 and 77 % of the context; half a minute for all
  that grows, whosever it is, in an eleventh with 76 %.
- A restart that waits for requests is called off when the growth ends meanwhile. One that is carried out has seen it go on: by then it
  has lasted for as long more, and what is taken while it waits, ends and loads comes first of all.
- Nobody needs to foresee further than until relief may act again: the cool-down, or the restart itself where that takes longer. What
  is still growing then is met by the next restart, with more known of it.

`tests/decide/test_foresight_simulated.py` tries this, and other lengths, on growths that end and such that do not.
"""

from __future__ import annotations

import msgspec

BELIEVED_FACTOR = 2.0
"""A growth is believed for this many times as long again as it has lasted."""
SEEN_SECONDS = 3.0
"""A growth has lasted this long before it is told (`decide.memory_forecast`: three looks)."""
GAP_SECONDS = 5.0
"""A growth that is not told for longer has ended; between two steps of it nothing may be told for a moment."""
ENDING_SECONDS = 5.0
"""Until the process has ended, at most (`decide.supervision.Timing.restart_seconds`)."""
MARGIN_SECONDS = 10.0
"""From the decision until the process has ended, and until it was looked at twice after the cool-down."""
ALONE_BYTES_PER_SECOND = 1e6
"""Nobody else grows where all others together do so no faster,"""
ALONE_SHARE = 0.1
"""or by no more than this share of all growth: a process and its cgroup are not read at the same moment."""
UNKNOWN_RESTART_SECONDS = 30.0
"""For a restart of which nobody knows how long it takes."""


class Growing(msgspec.Struct, frozen=True):
    """A growth towards a limit: when it was told first and last, monotonic seconds."""

    since: float
    last: float


class OwnGrowth(msgspec.Struct, frozen=True):
    """What of a growth is the backend's own. None: unknown. `leaks_seconds`: for how long the next process leaks before relief may act
    again; 0: it does not leak.
    """

    bytes_per_second: float | None = None
    grown_bytes: int | None = None
    leaks_seconds: float = 0.0


def follow(growing: Growing | None, seconds_to_limit: float | None, now: float) -> Growing | None:
    """The growth as of `now`; None: nothing grows. `seconds_to_limit` None: none is told at this look."""
    if growing is not None and now - growing.last > GAP_SECONDS:
        growing = None
    if seconds_to_limit is None:
        return growing
    return Growing(now if growing is None else growing.since, now)


def unhelped_seconds(restart_seconds: float | None, cool_down_seconds: float) -> float:
    """From a restart until the next may help, in the worst case."""
    takes = UNKNOWN_RESTART_SECONDS if restart_seconds is None else restart_seconds
    return max(takes, cool_down_seconds) + MARGIN_SECONDS


def waiting_seconds(seconds_to_limit: float | None, drain_seconds: float) -> float:
    """For how long a restart may wait for requests while something grows: until a process must be told to end."""
    return 0.0 if seconds_to_limit is None else max(0.0, min(drain_seconds, seconds_to_limit - ENDING_SECONDS))


def foreseen_seconds(
    growing: Growing | None, unhelped: float, now: float, waits: float = 0.0, restart_seconds: float | None = None
) -> float:
    """For how long a growth is believed: `BELIEVED_FACTOR` times as long again as it has lasted, at most `unhelped`.

    A restart that `waits` for requests is called off when the growth ends meanwhile: where it is not, the growth has lasted for so much
    longer, and is believed until the backend is there again and growth can be told of it, as far as what it has lasted by then
    lets it be.
    """
    lasted = SEEN_SECONDS if growing is None else SEEN_SECONDS + now - growing.since
    loads = UNKNOWN_RESTART_SECONDS if restart_seconds is None else restart_seconds
    takes = ENDING_SECONDS + loads + SEEN_SECONDS
    until_there = waits + min(takes, BELIEVED_FACTOR * (lasted + waits)) if waits > 0 else 0.0
    return max(0.0, min(max(BELIEVED_FACTOR * lasted, until_there), unhelped))


def own_share(own: float | None, others: float | None, growth: float | None, *, is_own: bool) -> float | None:
    """How much of `growth` towards a limit ends with the backend's process, bytes a second; None: unknown, so nothing is known to.

    `own`: how fast its own memory grows now; `others`: everybody else's below that limit. What others are seen to grow by is never its
    own. Where what grows was found to be (`is_own`) its own and nobody else grows, it is all its own: a prompt cache grows in steps, and
    over the few seconds between two of them its own memory does not. Otherwise what is nobody's is taken for others'.
    """
    if own is None or growth is None:
        return own
    if others is None:
        return min(own, growth)
    rest = max(0.0, growth - max(0.0, others))
    alone = others <= max(ALONE_BYTES_PER_SECOND, ALONE_SHARE * growth)
    return rest if is_own and alone else min(own, rest)


def foreseen_bytes(headroom_bytes: int, seconds_to_limit: float | None, own: OwnGrowth, seconds: float) -> int:
    """What is taken until it helps: by others for `seconds`; by the backend itself until it has ended, and, where it leaks, by the
    next process beyond what this one gives back.
    """
    if not seconds_to_limit or headroom_bytes <= 0:
        return 0
    growth = headroom_bytes / seconds_to_limit
    mine = min(growth, max(0.0, own.bytes_per_second or 0.0))
    anew = 0.0 if own.grown_bytes is None else mine * own.leaks_seconds - own.grown_bytes
    return int((growth - mine) * seconds + max(mine * min(seconds, ENDING_SECONDS), anew))
