"""What of a model to bring into memory after loading, in which order, and how much of it there is room for. Pure.

Loading streams the whole file and leaves its tail in the page cache. What every token needs (all that is no routed expert) comes
first and is touched twice, so that the kernel keeps it; experts fill the room that is free, from the start of the file; token tables,
of which a token needs one row, come last. Nothing is ever evicted to make room for an expert: which experts the backend will use,
only use can tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from moetuned.schema.model import ByteRange
from moetuned.schema.sample import Residency
from moetuned.schema.snapshot import MemoryView
from moetuned.schema.units import format_bytes

RESERVE_RATIO = 0.02
"""Share of the limit that warming leaves free: below it the kernel reclaims while others allocate."""
SMALLEST_RESERVE_BYTES = 32 << 20


class WarmPlan(msgspec.Struct, frozen=True):
    """Touch `twice` two times, then `ranges`; `total_bytes` counts each byte once and is at most the budget.

    `reason` is one sentence. An empty plan says why there is nothing to do.
    """

    twice: tuple[ByteRange, ...]
    ranges: tuple[ByteRange, ...]
    total_bytes: int
    reason: str


def budget_bytes(memory: MemoryView, resident_bytes: int | None, configured: int | None = None) -> int:
    """How many bytes of the model may be resident; 0 when memory is unknown. `configured` (None: auto) can only lower it.

    What is resident may stay, and free memory may be filled up to a reserve: other page cache may be in use and is not taken.
    `resident_bytes` None (unknown): only what is free.
    """
    limit, headroom, cache = memory.limit_bytes, memory.headroom_bytes, memory.file_cache_bytes
    if limit is None or headroom is None or cache is None:
        return 0
    reserve = max(SMALLEST_RESERVE_BYTES, int(limit * RESERVE_RATIO))
    resident = min(resident_bytes or 0, cache)
    budget = max(0, min(resident + headroom - cache, headroom) - reserve)
    return budget if configured is None else min(budget, configured)


def plan(
    other_ranges: Sequence[ByteRange],
    expert_ranges: Sequence[ByteRange],
    embedding_ranges: Sequence[ByteRange],
    model_bytes: int,
    budget_bytes: int,
    resident: Residency | None = None,
) -> WarmPlan:
    """What to touch so that at most `budget_bytes` of the model are resident because of it.

    `embedding_ranges` may be part of `other_ranges`. `resident`: what is in memory now (None: unknown, and then the budget
    is what is free). Ranges of one kind may come in any order but do not overlap.
    """
    budget = max(0, budget_bytes)
    if resident is not None and resident.resident_bytes >= model_bytes:
        return WarmPlan((), (), 0, f"the whole model ({format_bytes(model_bytes)}) is in memory already")
    if model_bytes <= budget:
        everything = _joined((*other_ranges, *expert_ranges, *embedding_ranges))
        return WarmPlan((), everything, _size(everything), f"the whole model ({format_bytes(model_bytes)}) fits")
    embeddings = _joined(embedding_ranges)
    needed = _first(_without(_joined(other_ranges), embeddings), budget)
    left = budget - _size(needed)
    # Experts in memory may well be in use. They keep their share of the budget, and only what is left is filled.
    experts_resident = 0
    if resident is not None:
        known = resident.expert_bytes
        experts_resident = known if known is not None else max(0, resident.resident_bytes - _size(needed))
    experts = _first(_joined(expert_ranges), max(0, left - experts_resident))
    left -= experts_resident + _size(experts)
    tables = _first(embeddings, max(0, left))
    ranges = (*experts, *tables)
    total = _size(needed) + _size(ranges)
    if total == 0:
        return WarmPlan((), (), 0, "there is no free memory to warm the model into")
    reason = (
        f"{format_bytes(_size(needed))} that every token needs, {format_bytes(_size(experts))} of experts into free memory "
        f"(budget {format_bytes(budget)}, model {format_bytes(model_bytes)})"
    )
    return WarmPlan(needed, ranges, total, reason)


def _size(ranges: Iterable[ByteRange]) -> int:
    return sum(one.length for one in ranges)


def _joined(ranges: Iterable[ByteRange]) -> tuple[ByteRange, ...]:
    """In file order; neighbours and overlaps are one range."""
    joined: list[ByteRange] = []
    for one in sorted(ranges, key=lambda each: (each.part, each.offset)):
        last = joined[-1] if joined else None
        if last is not None and last.part == one.part and one.offset <= last.offset + last.length:
            end = max(last.offset + last.length, one.offset + one.length)
            joined[-1] = ByteRange(one.part, last.offset, end - last.offset)
        elif one.length > 0:
            joined.append(one)
    return tuple(joined)


def _first(ranges: Iterable[ByteRange], size: int) -> tuple[ByteRange, ...]:
    """The first `size` bytes; the last range is cut."""
    taken: list[ByteRange] = []
    for one in ranges:
        if size <= 0:
            break
        taken.append(ByteRange(one.part, one.offset, min(one.length, size)))
        size -= taken[-1].length
    return tuple(taken)


def _without(ranges: Iterable[ByteRange], holes: Sequence[ByteRange]) -> tuple[ByteRange, ...]:
    """`ranges` without the bytes of `holes`; both joined."""
    kept: list[ByteRange] = []
    for one in ranges:
        start, end = one.offset, one.offset + one.length
        for hole in holes:
            hole_end = hole.offset + hole.length
            if hole.part != one.part or hole_end <= start or hole.offset >= end:
                continue
            if hole.offset > start:
                kept.append(ByteRange(one.part, start, hole.offset - start))
            start = min(end, hole_end)
        if start < end:
            kept.append(ByteRange(one.part, start, end - start))
    return tuple(kept)
