"""What of a model to bring into memory after loading, in which order, and how much of it there is room for. Pure.

Loading streams the whole file and leaves its tail in the page cache. What every token needs (all that is no routed expert) comes
first and is touched twice, so that the kernel keeps it; experts fill the room that is free, from the start of the file; token tables,
of which a token needs one row, come last. Nothing is ever evicted to make room for an expert: which experts the backend will use,
only use can tell.

Where use is known (heat), the experts used last come right after what every token needs, touched twice as well. Right after a load
they may take the room of experts in memory that nobody was ever seen to use: what loading left. Those are paged out first, just as
many as that takes. What was used and is in memory keeps its room.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from moetuned.gguf.experts import ExpertMap, ExpertTensor, expert_slices
from moetuned.schema.heat import ExpertPages
from moetuned.schema.model import ByteRange
from moetuned.schema.sample import Residency
from moetuned.schema.snapshot import MemoryView
from moetuned.schema.units import format_bytes

HOTTEST_FIRST = 8
"""Hot experts are touched in so many groups, hottest first; in a group in file order, which a disk reads faster."""
RESERVE_RATIO = 0.02
"""Share of the limit that warming leaves free: below it the kernel reclaims while others allocate."""
SMALLEST_RESERVE_BYTES = 32 << 20


class WarmPlan(msgspec.Struct, frozen=True):
    """Page `page_out` out of the backend's mapping, touch `twice` two times, then `ranges`; `total_bytes` counts each byte that is
    touched once and is at most the budget.

    `reason` is one sentence. An empty plan says why there is nothing to do. Without the page-out there is no room for the rest.
    """

    twice: tuple[ByteRange, ...]
    ranges: tuple[ByteRange, ...]
    total_bytes: int
    reason: str
    page_out: tuple[ByteRange, ...] = ()


class KnownUse(msgspec.Struct, frozen=True):
    """Which experts were used, as `decide.heat.order` says: (layer, expert), hottest first; those left out never were.

    `pages`: what of each is in memory now; None: unknown, and then none is taken to be and nothing is paged out. `just_loaded`: no
    request was answered since the model was loaded, so that nothing in memory can be in use yet; without it nothing is paged out.
    `twice`: touch them two times too. Measured (model 1.8 times its cgroup, Linux 6.18 without MGLRU, three runs each, room made by paging out): the same
    topic read 14-17 MB either way, after a change of topic 171-182 MB touched once, 279-316 MB touched twice (303-354 MB not warmed).
    """

    experts: ExpertMap
    order: tuple[tuple[int, int], ...]
    pages: ExpertPages | None = None
    just_loaded: bool = False
    twice: bool = True


def reserve_bytes(limit_bytes: int) -> int:
    """What warming leaves free under a limit."""
    return max(SMALLEST_RESERVE_BYTES, int(limit_bytes * RESERVE_RATIO))


def free_bytes(memory: MemoryView) -> int | None:
    """What holds nothing under a limit, page cache neither; None when unknown. Page cache that is kept takes of the headroom already."""
    headroom, cache = memory.headroom_bytes, memory.file_cache_bytes
    if not memory.limit_bytes or headroom is None or cache is None:
        return None
    return headroom - max(0, cache - memory.kept_bytes)


def budget_bytes(memory: MemoryView, resident_bytes: int | None, configured: int | None = None) -> int:
    """How many bytes of the model may be resident; 0 when memory is unknown. `configured` (None: auto) can only lower it.

    What is resident may stay, and free memory may be filled up to a reserve: other page cache may be in use and is not taken.
    `resident_bytes` None (unknown): only what is free.
    """
    limit, free, cache = memory.limit_bytes, free_bytes(memory), memory.file_cache_bytes
    if limit is None or free is None or cache is None:
        return 0
    budget = max(0, min(resident_bytes or 0, cache) + free - reserve_bytes(limit))
    return budget if configured is None else min(budget, configured)


def plan(
    other_ranges: Sequence[ByteRange],
    expert_ranges: Sequence[ByteRange],
    embedding_ranges: Sequence[ByteRange],
    model_bytes: int,
    budget_bytes: int,
    resident: Residency | None = None,
    use: KnownUse | None = None,
) -> WarmPlan:
    """What to touch so that at most `budget_bytes` of the model are resident because of it.

    `embedding_ranges` may be part of `other_ranges`. `resident`: what is in memory now (None: unknown, and then the budget
    is what is free). `use`: None or with an empty order where nothing is known of the use of experts. Ranges of one kind may come
    in any order but do not overlap.
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
    missing = _size(needed) if resident is None else max(0, _size(needed) - (resident.other_bytes or 0))
    hot = _choose_hot(use, left, left - experts_resident, missing)
    room = max(0, min(left - hot.size_bytes, left - experts_resident - hot.new_bytes))
    experts = _first(_without(_joined(expert_ranges), hot.not_to_fill), room)
    room -= _size(experts)
    tables = _first(embeddings, room)
    ranges = (*experts, *tables)
    total = _size(needed) + hot.size_bytes + _size(ranges)
    if total == 0:
        return WarmPlan((), (), 0, "there is no free memory to warm the model into")
    used = f"{format_bytes(hot.size_bytes)} of experts that were used, " if hot.in_order else ""
    freed = f", after paging out {format_bytes(_size(hot.page_out))} that nobody used" if hot.page_out else ""
    reason = (
        f"{format_bytes(_size(needed))} that every token needs, {used}{format_bytes(_size(experts))} of experts into free memory"
        f"{freed} (budget {format_bytes(budget)}, model {format_bytes(model_bytes)})"
    )
    if use is not None and not use.twice:
        return WarmPlan(needed, (*hot.in_order, *ranges), total, reason, hot.page_out)
    return WarmPlan((*needed, *hot.in_order), ranges, total, reason, hot.page_out)


class _Hot(msgspec.Struct, frozen=True):
    """The experts that were used, as far as they fit. `new_bytes`: of `size_bytes`, what is not in memory yet.

    `not_to_fill`: what the filling of free memory leaves out, because it is done or in memory, or was just paged out.
    """

    in_order: tuple[ByteRange, ...] = ()
    size_bytes: int = 0
    new_bytes: int = 0
    page_out: tuple[ByteRange, ...] = ()
    not_to_fill: tuple[ByteRange, ...] = ()


def _choose_hot(use: KnownUse | None, most_bytes: int, room_bytes: int, other_missing: int) -> _Hot:
    """Hottest first, `most_bytes` at most, and no more new bytes than there is room: `room_bytes` (negative: what is in memory already
    is too much) and what experts in memory hold that were never used.
    """
    if use is None or not use.order:
        return _Hot()
    slices, in_memory = _Slices(use.experts), _shares_in_memory(use)
    unused = _unused(use, in_memory) if use.just_loaded else ()
    chosen: list[tuple[ByteRange, ...]] = []
    size, new, allowed = 0, 0, max(0, room_bytes + sum(held for _, held in unused))
    for cell in use.order:
        ranges = slices.take(*cell)
        whole = _size(ranges)
        missing = int(whole * (1 - in_memory.get(cell, 0.0)))
        if ranges and size + whole <= most_bytes and new + missing <= allowed:
            chosen.append(ranges)
            size, new = size + whole, new + missing
    page_out: list[ByteRange] = []
    excess = new - room_bytes if new or other_missing else 0
    # Loading went in file order, so what comes first there has been in memory longest.
    for ranges, held in unused:
        if excess > 0:
            page_out.extend(ranges)
            excess -= held
    per_group = -(-len(chosen) // HOTTEST_FIRST) or 1
    groups = [chosen[start : start + per_group] for start in range(0, len(chosen), per_group)]
    there = [one for cell in in_memory for one in slices.all_of(*cell)]
    return _Hot(
        tuple(one for group in groups for one in _joined(one for ranges in group for one in ranges)),
        size,
        new,
        _joined(page_out),
        _joined((*(one for ranges in chosen for one in ranges), *there)),
    )


def _shares_in_memory(use: KnownUse) -> dict[tuple[int, int], float]:
    """For each expert of which anything is in memory, which share; in order of layers and numbers."""
    pages = use.pages
    if pages is None or pages.experts != use.experts.experts:
        return {}
    cells = enumerate(zip(pages.cached, pages.whole, strict=True))
    return {
        divmod(cell, pages.experts): min(1.0, cached / whole) for cell, (cached, whole) in cells if cached and whole
    }


def _unused(use: KnownUse, in_memory: Mapping[tuple[int, int], float]) -> tuple[tuple[tuple[ByteRange, ...], int], ...]:
    """Slices of the experts in memory that were never used, and how many bytes of them are there.

    A slice that several experts share (fewer slices than experts) is used when one of them is.
    """
    slices = _Slices(use.experts)
    heated = set(use.order)
    for cell in heated:
        slices.take(*cell)
    found = ((slices.take(*cell), share) for cell, share in in_memory.items() if cell not in heated)
    return tuple((ranges, int(_size(ranges) * share)) for ranges, share in found if ranges)


class _Slices:
    """Slices of experts, each taken once."""

    def __init__(self, experts: ExpertMap) -> None:
        by_layer: dict[int, list[ExpertTensor]] = {}
        for tensor in experts.tensors:
            by_layer.setdefault(tensor.layer, []).append(tensor)
        # A map of one layer each: with all tensors in every question this would take seconds.
        self._layers = {
            layer: msgspec.structs.replace(experts, tensors=tuple(tensors)) for layer, tensors in by_layer.items()
        }
        self._taken: set[tuple[int, int]] = set()

    def all_of(self, layer: int, expert: int) -> tuple[ByteRange, ...]:
        """In file order; () when there is no such expert."""
        experts = self._layers.get(layer)
        return () if experts is None else expert_slices(experts, layer, expert)

    def take(self, layer: int, expert: int) -> tuple[ByteRange, ...]:
        """Those of the expert that nobody took before."""
        ranges = tuple(one for one in self.all_of(layer, expert) if (one.part, one.offset) not in self._taken)
        self._taken.update((one.part, one.offset) for one in ranges)
        return ranges


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
    ends = [(hole.part, hole.offset + hole.length) for hole in holes]
    for one in ranges:
        start, end = one.offset, one.offset + one.length
        for hole in holes[bisect_right(ends, (one.part, start)) :]:
            if hole.part != one.part or hole.offset >= end:
                break
            if hole.offset > start:
                kept.append(ByteRange(one.part, start, hole.offset - start))
            start = min(end, hole.offset + hole.length)
        if start < end:
            kept.append(ByteRange(one.part, start, end - start))
    return tuple(kept)
