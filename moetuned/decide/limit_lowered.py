"""Whether a memory limit that the backend lives under was lowered a moment ago: then it is that which took its cache, and nothing grew.

Limits of its own cgroup and of those above, the lower of the hard limit and `memory.high`. A limit far above what is in use is no
news, nor are the limits of another cgroup that the process moved to.
"""

from __future__ import annotations

import msgspec

from moetuned.decide.memory_headroom import OWN
from moetuned.parse.cgroup_names import cgroup_name
from moetuned.schema.sample import BackendSample, CgroupMemory
from moetuned.schema.units import format_bytes

LOWERED_SECONDS = 30.0
"""So long it counts."""
USED_SHARE = 0.8
"""A limit takes something when at least this share of it is in use before or after."""


class Lowered(msgspec.Struct, frozen=True):
    """One limit, bytes; `from_bytes` None: there was none. A limit that is lowered in steps is lowered from the first."""

    directory: str
    from_bytes: int | None
    to_bytes: int
    own: bool = True
    high: bool = False
    seconds: float = 0.0


class LimitState(msgspec.Struct, frozen=True):
    """Limits as they were at the last tick, by directory, and which was lowered last."""

    limits: tuple[tuple[str, int | None, int | None], ...] = ()
    lowered: Lowered | None = None


def step_limits(state: LimitState, sample: BackendSample, dt: float) -> LimitState:
    """The next state. A cgroup that cannot be read tells nothing."""
    before = {directory: (limit, used) for directory, limit, used in state.limits}
    own = sample.cgroup_directory or OWN
    found = [] if sample.cgroup is None else [(own, sample.cgroup)]
    found += [(one.directory, one.memory) for one in sample.above]
    lowered = state.lowered
    if lowered is not None:
        lowered = msgspec.structs.replace(lowered, seconds=lowered.seconds + dt)
    for directory, memory in found:
        limit = _limit(memory)
        if directory in before:
            lowered = _next(lowered, directory, *before[directory], memory, limit, own=directory == own)
    if lowered is not None and (lowered.seconds > LOWERED_SECONDS or lowered.directory not in {d for d, _ in found}):
        lowered = None
    return LimitState(tuple((directory, _limit(memory), memory.current_bytes) for directory, memory in found), lowered)


def _limit(memory: CgroupMemory) -> int | None:
    return min((limit for limit in (memory.limit_bytes, memory.high_bytes) if limit is not None), default=None)


def _next(
    lowered: Lowered | None,
    directory: str,
    before: int | None,
    used: int | None,
    memory: CgroupMemory,
    limit: int | None,
    *,
    own: bool,
) -> Lowered | None:
    same = lowered is not None and lowered.directory == directory
    if limit == before:
        return lowered
    if limit is None or (before is not None and limit > before):  # it was raised
        return None if same else lowered
    in_use = max((value for value in (used, memory.current_bytes) if value is not None), default=None)
    if not same and in_use is not None and in_use < USED_SHARE * limit:
        return lowered
    first = lowered.from_bytes if same and lowered is not None else before
    return Lowered(directory, first, limit, own, high=limit == memory.high_bytes != memory.limit_bytes)


def lowered_text(state: LimitState) -> str | None:
    """For people, one clause; None when none was lowered of late."""
    lowered = state.lowered
    if lowered is None:
        return None
    word = "memory.high" if lowered.high else "limit"
    whose = f"its {word}" if lowered.own else f"the {word} of {cgroup_name(lowered.directory)}, which others share,"
    since = "" if lowered.from_bytes is None else f" from {format_bytes(lowered.from_bytes)}"
    return f"{whose} was lowered{since} to {format_bytes(lowered.to_bytes)}"
