"""Whether to lock what every token needs of a model in memory, how much, and when to let go. Pure.

The kernel already keeps what is used for every token: all that is no expert stayed 100 % resident in a page cache of 38 % of the model
(measured). A lock helps only where the backend is idle and others push its pages out, and what is locked nobody can reclaim. So `auto`
locks only where that is cheap, `on` as much as fits, and neither where the kernel protects the backend's cgroup already (memory.min, or memory.low where
it holds; cgroup v2). Experts are never locked, token tables neither: a token reads one row of them.

What is locked counts as memory that cannot be reclaimed, rightly. So that the lock itself never looks like memory that nears its limit,
it starts only where twice that headroom stays, grows slower than a trend that the detector would take for a leak, and is let go before
the headroom is near.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from moetuned.parse.config_values import HeadroomLimit
from moetuned.schema.config import Protect
from moetuned.schema.model import ByteRange
from moetuned.schema.snapshot import MemoryView
from moetuned.schema.units import format_bytes

AUTO_SHARE = 4
"""`auto` locks at most this part of the headroom."""
RESIDENT_SHARE = 0.9
"""`auto` locks only what is there already. What the backend has on a GPU, or copied, nobody touches, and it leaves a full cache."""
START_FACTOR = 2.0
"""Times the near limit that must stay free beside the lock."""
RELEASE_FACTOR = 1.25
"""Times the near limit below which it is let go; the detector says ok again from there on (`memory_release_factor`)."""
TREND_SECONDS = 100.0
"""The lock grows so slowly that it would take at least this long to fill the headroom; the detector minds 25 s (`near_seconds`)."""
SMALLEST_RATE_BYTES_PER_SECOND = 1 << 20
RETRY_SECONDS = 600.0
"""After it was let go because memory was short, it is not tried again for this long."""
PAGE_BYTES = 4096
EVERYTHING_BYTES = 1 << 60
"""What is protected from here on is all: no machine has so much."""


class Protection(msgspec.Struct, frozen=True):
    """What to lock: `ranges`, whole pages, `size_bytes` in all; none: nothing is locked, and `reason` is why. It is one sentence.

    Below `keep_free_bytes` or `keep_free_ratio` (of each limit) of headroom it is to be let go.
    """

    ranges: tuple[ByteRange, ...]
    size_bytes: int
    keep_free_bytes: int
    keep_free_ratio: float
    rate_bytes_per_second: int
    reason: str


def protection(
    mode: Protect,
    every_token: Sequence[ByteRange],
    part_bytes: Sequence[int],
    memory: MemoryView,
    near: HeadroomLimit,
    *,
    maps_model: bool | None,
    resident_bytes: int | None,
    protected_bytes: int | None = None,
    cgroup_version: int | None = None,
    page_bytes: int = PAGE_BYTES,
) -> Protection:
    """What to lock now, when nothing is locked yet.

    `every_token`: `gguf.experts.other_ranges(experts, embeddings=False)`. `part_bytes`: sizes of the model's files. `near`:
    `limits.near`. `maps_model`: whether the backend's process maps the model's files; unknown locks nothing. `resident_bytes`: what is no
    expert and is in the page cache, looked at after the backend has answered; None: unknown. `protected_bytes`: what of its cgroup
    the kernel protects; less than every token needs is no reason to lock nothing.
    """
    if mode is Protect.OFF:
        return _none("protect is off")
    needed = _size(every_token)
    kept = protected_bytes or 0
    if cgroup_version == 2 and 0 < needed <= kept:
        protected = "all" if kept >= EVERYTHING_BYTES else format_bytes(kept)
        return _none(f"the kernel protects {protected} of its cgroup already (memory.min, memory.low)")
    if maps_model is None:
        return _none("whether the backend maps its model is unknown")
    if not maps_model:
        return _none("the backend does not map its model: it has it in memory of its own or on a GPU")
    limit, headroom = memory.limit_bytes, memory.headroom_bytes
    if limit is None or headroom is None:
        return _none(f"how much memory is left is unknown{': ' + memory.unknown if memory.unknown else ''}")
    pages = whole_pages(every_token, part_bytes, page_bytes)
    wanted = _size(pages)
    if wanted == 0:
        return _none("the model has nothing that every token needs")
    most = max(0, int(headroom - START_FACTOR * near.of(limit)))
    against = _against_auto(wanted, sum(part_bytes), most, headroom, resident_bytes) if mode is Protect.AUTO else None
    if against is not None:
        return _none(against)
    # Never the whole model: of a model without experts every token needs all of it.
    taken = _first(pages, min(most, sum(part_bytes) - 1), page_bytes)
    size = _size(taken)
    if size == 0:
        return _none(
            f"too little memory is left to lock anything: {format_bytes(headroom)}, and "
            f"{format_bytes(START_FACTOR * near.of(limit))} is to stay"
        )
    left = headroom - size
    part = "" if size == wanted else f" of {format_bytes(wanted)}"
    return Protection(
        ranges=taken,
        size_bytes=size,
        keep_free_bytes=int(RELEASE_FACTOR * (near.size_bytes or 0)),
        keep_free_ratio=min(1.0, RELEASE_FACTOR * (near.ratio or 0.0)),
        rate_bytes_per_second=max(SMALLEST_RATE_BYTES_PER_SECOND, int(left / TREND_SECONDS)),
        reason=f"{format_bytes(size)}{part} that every token needs is locked; {format_bytes(left)} of memory is left beside it",
    )


def release_reason(memory: MemoryView, near: HeadroomLimit) -> str | None:
    """Why what is locked must be let go now, one sentence; None when it may stay. Unknown headroom: let go."""
    limit, headroom = memory.limit_bytes, memory.headroom_bytes
    if limit is None or headroom is None:
        return "how much memory is left is unknown"
    if headroom < RELEASE_FACTOR * near.of(limit):
        return f"memory nears its limit: {format_bytes(headroom)} of {format_bytes(limit)} is left"
    return None


def may_try_again(released_at: float | None, now: float) -> bool:
    """Whether memory that was let go at `released_at` (seconds; None: never) may be locked again."""
    return released_at is None or now - released_at >= RETRY_SECONDS


def whole_pages(ranges: Iterable[ByteRange], part_bytes: Sequence[int], page_bytes: int) -> tuple[ByteRange, ...]:
    """All pages that hold a byte of a range, in file order, each once; the last page of a file ends with it."""
    found: list[ByteRange] = []
    for one in sorted((each for each in ranges if each.length), key=lambda each: (each.part, each.offset)):
        start = one.offset // page_bytes * page_bytes
        end = min(-(-(one.offset + one.length) // page_bytes) * page_bytes, part_bytes[one.part])
        last = found[-1] if found else None
        if last is not None and last.part == one.part and start <= last.offset + last.length:
            found[-1] = ByteRange(last.part, last.offset, max(end, last.offset + last.length) - last.offset)
        elif end > start:
            found.append(ByteRange(one.part, start, end - start))
    return tuple(found)


def _against_auto(wanted: int, model_bytes: int, most: int, headroom: int, resident_bytes: int | None) -> str | None:
    """Why `auto` locks nothing, one sentence without an end; None when it does."""
    needed = f"what every token needs ({format_bytes(wanted)})"
    if model_bytes <= most:
        return f"the whole model ({format_bytes(model_bytes)}) fits in what is left of memory"
    if wanted > headroom // AUTO_SHARE:
        return (
            f"{needed} is more than a quarter of what the limit leaves ({format_bytes(headroom)}); "
            "the kernel keeps what is used all the time by itself"
        )
    if wanted > most:
        return (
            f"beside {needed} too little memory would stay: {format_bytes(headroom)} is left, "
            f"{format_bytes(headroom - most)} is to stay"
        )
    if resident_bytes is None:
        return f"how much of {needed} is in memory is unknown"
    if resident_bytes < RESIDENT_SHARE * wanted:
        return (
            f"only {format_bytes(resident_bytes)} of {needed} is in memory: the backend does not use it (it has a copy, or it is on a "
            "GPU), or it has not answered yet"
        )
    return None


def _first(ranges: Iterable[ByteRange], size: int, page_bytes: int) -> tuple[ByteRange, ...]:
    """The first `size` bytes at most, whole pages; the last range is cut."""
    taken: list[ByteRange] = []
    for one in ranges:
        length = one.length if one.length <= size else size // page_bytes * page_bytes
        if length > 0:
            taken.append(ByteRange(one.part, one.offset, length))
        if length < one.length:
            break
        size -= length
    return tuple(taken)


def _size(ranges: Iterable[ByteRange]) -> int:
    return sum(one.length for one in ranges)


def _none(reason: str) -> Protection:
    return Protection((), 0, 0, 0.0, SMALLEST_RATE_BYTES_PER_SECOND, reason)
