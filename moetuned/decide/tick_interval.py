"""How long until the next look: the configured interval while anything happens, longer and longer while nothing does.

What must not come late decides how long. A limit is told ten seconds before it is reached where memory grows slower than 200 MB/s, so
with little headroom nothing slows down. A thrash is told within five seconds, of which three are its hold time: a PSI trigger wakes the
loop for it; without one, a look may be 1.5 s late at most. No interval is longer than what signals take for a gap (`window`).
"""

from __future__ import annotations

import msgspec

HTTP_FRESH_SECONDS = 4.0
"""An answer over HTTP is one for this long, or for two looks where those are longer apart."""
IDLE_CPU_RATIO = 0.02
"""Of one core; a server that waits for requests uses less. One that may sleep is then not kept awake by questions."""
GROWTH_BYTES_PER_SECOND = 200e6
"""The fastest growth that is told in time."""
NOTICE_SECONDS = 16.0
"""Ten seconds before the limit, and what it takes to see that memory grows."""
FALL_BYTES = 32 << 20
"""Headroom that fell by more than this since the look before: memory is being used."""
LONGEST_SECONDS = 4.5
"""Below MAX_GAP_SECONDS of `decide.window`, with room for a late look."""
BLIND_SECONDS = 1.5
QUICK_SECONDS = 0.2
"""While a process is stopped for a second look, or a restart waits, no later than this."""
CALM_SECONDS = 10.0
"""So long nothing must happen before the interval doubles."""


class Seen(msgspec.Struct, frozen=True):
    """What one look found. `quick`: why the next must come at once, one phrase, None: it need not. `busy`: why the next must come soon, one phrase; None: nothing asks for it.

    `headroom_bytes`: the least that is left before a limit, None: unknown. `backends`: whether any runs. `triggered`: whether a PSI
    trigger will wake the loop when memory stalls.
    """

    busy: str | None
    headroom_bytes: float | None
    backends: bool
    triggered: bool
    quick: str | None = None


class TickInterval(msgspec.Struct, frozen=True):
    """`seconds` until the next look; `why` it is so. The rest is remembered for the next step."""

    seconds: float
    why: str
    calm_seconds: float = 0.0
    headroom_bytes: float | None = None


def first(interval_seconds: float) -> TickInterval:
    """Before the first look."""
    return TickInterval(interval_seconds, "nothing has been seen yet")


def step(
    state: TickInterval, seen: Seen, dt_seconds: float, interval_seconds: float, idle_interval_seconds: float
) -> TickInterval:
    """The interval after a look, `dt_seconds` after the one before. `interval_seconds`: the shortest, `idle_…`: the longest wanted.

    Anything unknown counts as busy.
    """
    if seen.quick is not None:
        return TickInterval(min(QUICK_SECONDS, interval_seconds), seen.quick, 0.0, seen.headroom_bytes)
    busy = seen.busy or _fast_memory(state, seen)
    if busy is not None:
        return TickInterval(interval_seconds, busy, 0.0, seen.headroom_bytes)
    calm = state.calm_seconds + max(0.0, dt_seconds)
    longest, limited = _longest(seen, idle_interval_seconds)
    wanted = interval_seconds * 2 ** min(8, int(calm // CALM_SECONDS))
    seconds = max(interval_seconds, min(wanted, longest))
    why = f"nothing has happened for {calm:.0f} s" if wanted < longest or limited is None else limited
    return TickInterval(seconds, why, calm, seen.headroom_bytes)


def _fast_memory(state: TickInterval, seen: Seen) -> str | None:
    """Why memory asks for another look soon."""
    if not seen.backends:
        return None
    if seen.headroom_bytes is None:
        return "headroom is unknown"
    if state.headroom_bytes is not None and state.headroom_bytes - seen.headroom_bytes > FALL_BYTES:
        return "memory is being used"
    return None


def _longest(seen: Seen, idle_interval_seconds: float) -> tuple[float, str | None]:
    """The longest interval, and what limits it besides the configuration."""
    longest, limited = min(idle_interval_seconds, LONGEST_SECONDS), None
    if not seen.backends:
        return longest, limited
    if not seen.triggered and longest > BLIND_SECONDS:
        longest, limited = BLIND_SECONDS, "no PSI trigger would wake it within a second"
    room = (seen.headroom_bytes or 0.0) / GROWTH_BYTES_PER_SECOND - NOTICE_SECONDS
    if room < longest:
        longest, limited = room, "little headroom is left"
    return longest, limited
