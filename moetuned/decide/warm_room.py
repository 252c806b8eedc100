"""Whether there is memory to warm a model into: under several limits at once, and far enough from each. Pure.

A command sees more limits than a backend's tick: the machine's, and that of every cgroup above the one that pages are charged to.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from moetuned.decide.detector_settings import DetectorSettings
from moetuned.decide.warm_plan import budget_bytes
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
