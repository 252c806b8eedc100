"""Whether there is memory to warm a model into: under several limits at once, and far enough from each. Pure.

A command sees more limits than a backend's tick: the machine's, and that of every cgroup above the one that pages are charged to.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from moetuned.decide.detector_settings import DetectorSettings
from moetuned.decide.warm_plan import budget_bytes, free_bytes, reserve_bytes
from moetuned.schema.snapshot import MemoryView
from moetuned.schema.units import format_bytes, format_ratio

_SETTINGS = DetectorSettings()


class Room(msgspec.Struct, frozen=True):
    """How many bytes of the model may be resident, and the limit that says so.

    `budget_bytes` None: no limit is known, so nothing may be warmed; `near` is a sentence where memory is near a limit.
    """

    budget_bytes: int | None
    limit: MemoryView | None
    near: str | None


def near_its_limit(memory: MemoryView, settings: DetectorSettings = _SETTINGS) -> str | None:
    """One sentence where the headroom is below the detector's limit for `near_limit` now; None where not or unknown."""
    limit, headroom = memory.limit_bytes, memory.headroom_bytes
    if not limit or headroom is None:
        return None
    near = settings.near_headroom_bytes
    if headroom >= (settings.near_headroom_ratio * limit if near is None else near):
        return None
    return (
        f"memory is near its limit: {format_bytes(headroom)} of {format_bytes(limit)} are left "
        f"({format_ratio(headroom / limit)}, {memory.scope})"
    )


def filled(memory: MemoryView) -> str | None:
    """One sentence where so little is free that more of the model would push something out; None where not or unknown.

    Warming itself stops at the reserve, so half of that is left only where something else took the rest.
    """
    free = free_bytes(memory)
    if free is None or free >= _reserve(memory) // 2:
        return None
    left = f"{format_bytes(max(0, free))} of {format_bytes(memory.limit_bytes)}"
    return f"something else took the memory that was free: {left} are left ({memory.scope})"


def free_under(limits: Sequence[MemoryView]) -> frozenset[str]:
    """Scopes of the limits under which there is free memory that a warm plan may fill."""
    return frozenset(one.scope for one in limits if (free := free_bytes(one)) is not None and free >= _reserve(one))


def taken(limits: Sequence[MemoryView], were_free: frozenset[str]) -> str | None:
    """The sentence of the first limit that is `filled` though there was free memory under it (`free_under`) before."""
    return next((why for one in limits if one.scope in were_free and (why := filled(one)) is not None), None)


def backend_budget_bytes(limits: Sequence[MemoryView], resident_bytes: int, configured: int | None = None) -> int:
    """Budget for a backend's model under all limits it lives under, the tightest first; 0 when none is known.

    `resident_bytes` and `configured` as in `warm_plan.budget_bytes`. Under limits that leave more than the tightest no more may be
    filled than is free, but what is resident needs no new room there, and is not to become less.
    """
    if not limits:
        return 0
    budget = budget_bytes(limits[0], resident_bytes, configured)
    for one in limits[1:]:
        if free_bytes(one) is not None:
            budget = min(budget, max(resident_bytes, budget_bytes(one, resident_bytes)))
    return budget


def room(
    limits: Sequence[MemoryView],
    resident_bytes: int | None,
    configured: int | None = None,
    settings: DetectorSettings = _SETTINGS,
) -> Room:
    """The least of the budgets under `limits`, of which those that are unknown do not count.

    `resident_bytes` and `configured` as in `warm_plan.budget_bytes`.
    """
    known = [one for one in limits if one.limit_bytes is not None and one.headroom_bytes is not None]
    near = next((sentence for one in known if (sentence := near_its_limit(one, settings)) is not None), None)
    if not known:
        return Room(None, None, None)
    budgets = [budget_bytes(one, resident_bytes, configured) for one in known]
    least = min(range(len(known)), key=budgets.__getitem__)
    return Room(budgets[least], known[least], near)


def _reserve(memory: MemoryView) -> int:
    return reserve_bytes(memory.limit_bytes or 0)
