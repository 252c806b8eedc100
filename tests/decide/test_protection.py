"""Whether to lock, how much, and when to let go: a table, and what holds for every input."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.detector_settings import DetectorSettings
from moetuned.decide.protection import (
    RELEASE_FACTOR,
    RETRY_SECONDS,
    START_FACTOR,
    Protection,
    may_try_again,
    protection,
    release_reason,
    whole_pages,
)
from moetuned.parse.config_values import HeadroomLimit
from moetuned.schema.config import Protect
from moetuned.schema.model import ByteRange
from moetuned.schema.snapshot import MemoryView

GIB = 1 << 30
PAGE = 4096
NEAR = HeadroomLimit(ratio=0.08)
MODEL = (60 * GIB,)
OTHER = (ByteRange(0, 0, GIB), ByteRange(0, 30 * GIB, GIB))
ROOMY = MemoryView(scope="machine", limit_bytes=32 * GIB, headroom_bytes=24 * GIB)


def ask(mode: Protect = Protect.AUTO, **changes: object) -> Protection:
    keywords = {"maps_model": True, "resident_bytes": 2 * GIB, "near": NEAR, "memory": ROOMY, **changes}
    return protection(mode, keywords.pop("ranges", OTHER), keywords.pop("parts", MODEL), **keywords)  # type: ignore[arg-type]


def test_auto_locks_what_every_token_needs_where_there_is_plenty() -> None:
    plan = ask()
    assert (plan.ranges, plan.size_bytes) == (OTHER, 2 * GIB)
    assert plan.keep_free_ratio == pytest.approx(0.1)
    assert plan.keep_free_bytes == 0
    assert plan.reason == "2.0 GiB that every token needs is locked; 22.0 GiB of memory is left beside it"


@pytest.mark.parametrize("mode", [Protect.AUTO, Protect.ON])
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"protected_bytes": 8 * GIB, "cgroup_version": 2}, "the kernel protects 8.0 GiB of its cgroup already"),
        ({"protected_bytes": 1 << 60, "cgroup_version": 2}, "the kernel protects all of its cgroup already"),
        ({"maps_model": None}, "whether the backend maps its model is unknown"),
        ({"maps_model": False}, "does not map its model"),
        ({"memory": MemoryView(unknown="no meminfo")}, "how much memory is left is unknown: no meminfo"),
        ({"memory": MemoryView()}, "how much memory is left is unknown"),
        ({"ranges": ()}, "has nothing that every token needs"),
        ({"memory": MemoryView(limit_bytes=32 * GIB, headroom_bytes=5 * GIB)}, ""),
        ({"memory": MemoryView(limit_bytes=32 * GIB, headroom_bytes=-GIB)}, ""),
    ],
)
def test_nothing_is_locked_and_the_reason_is_said(mode: Protect, changes: dict[str, object], reason: str) -> None:
    plan = ask(mode, **changes)
    assert (plan.ranges, plan.size_bytes) == ((), 0)
    assert not plan.reason.startswith("nothing"), "who shows it says that"
    assert reason in plan.reason


def test_off_is_off() -> None:
    assert ask(Protect.OFF) == ask(Protect.OFF, protected_bytes=1, cgroup_version=2)
    assert ask(Protect.OFF).reason == "protect is off"


@pytest.mark.parametrize(
    ("changes", "reason", "on_bytes"),
    [
        ({"parts": (32 * GIB,), "ranges": (ByteRange(0, 0, GIB),), "memory": MemoryView(limit_bytes=64 * GIB, headroom_bytes=60 * GIB)}, "fits", GIB),
        ({"ranges": (ByteRange(0, 0, 7 * GIB),)}, "more than a quarter of what the limit leaves", 7 * GIB),
        ({"ranges": (ByteRange(0, 0, 5 * GIB),), "near": HeadroomLimit(size_bytes=10 * GIB)}, "too little memory would stay", 4 * GIB),
        ({"resident_bytes": None}, "is unknown", 2 * GIB),
        ({"resident_bytes": GIB}, "only 1.0 GiB of what every token needs (2.0 GiB) is in memory", 2 * GIB),
    ],
)  # fmt: skip
def test_where_auto_does_nothing_on_locks_what_fits(changes: dict[str, object], reason: str, on_bytes: int) -> None:
    plan = ask(**changes)
    assert plan.size_bytes == 0
    assert reason in plan.reason
    assert ask(Protect.ON, **changes).size_bytes == on_bytes


@pytest.mark.parametrize(("low", "version"), [(8 * GIB, 1), (8 * GIB, None), (None, 2), (0, 2), (2 * GIB - 1, 2)])
def test_memory_low_counts_only_where_it_is_in_force_and_enough(low: int | None, version: int | None) -> None:
    assert ask(protected_bytes=low, cgroup_version=version).size_bytes == 2 * GIB


def test_part_of_it_says_of_how_much() -> None:
    plan = ask(Protect.ON, ranges=(ByteRange(0, 0, 30 * GIB),))
    assert "of 30.0 GiB that every token needs" in plan.reason


def test_a_dense_model_is_never_locked_whole() -> None:
    roomy = MemoryView(limit_bytes=64 * GIB, headroom_bytes=60 * GIB)
    plan = ask(Protect.ON, ranges=(ByteRange(0, 0, GIB), ByteRange(1, 0, 5000)), parts=(GIB, 5000), memory=roomy)
    assert plan.size_bytes == GIB + PAGE


def test_it_is_let_go_near_the_limit_and_when_nothing_is_known() -> None:
    assert release_reason(ROOMY, NEAR) is None
    near = msgspec.structs.replace(ROOMY, headroom_bytes=3 * GIB)
    assert release_reason(near, NEAR) == "memory nears its limit: 3.0 GiB of 32.0 GiB is left"
    assert release_reason(near, HeadroomLimit(size_bytes=2 * GIB)) is None
    assert release_reason(MemoryView(), NEAR) == "how much memory is left is unknown"


def test_it_is_not_tried_again_at_once() -> None:
    assert may_try_again(None, 5.0)
    assert not may_try_again(5.0, 5.0 + RETRY_SECONDS - 1)
    assert may_try_again(5.0, 5.0 + RETRY_SECONDS)


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([ByteRange(0, 0, 1)], [ByteRange(0, 0, PAGE)]),
        ([ByteRange(0, 4095, 2)], [ByteRange(0, 0, 2 * PAGE)]),
        ([ByteRange(0, 0, 5000), ByteRange(0, 5000, 10)], [ByteRange(0, 0, 2 * PAGE)]),
        ([ByteRange(0, 20000, 10), ByteRange(0, 0, 10)], [ByteRange(0, 0, PAGE), ByteRange(0, 4 * PAGE, PAGE)]),
        ([ByteRange(0, 40000, 960)], [ByteRange(0, 9 * PAGE, 40960 - 9 * PAGE)]),
        ([ByteRange(0, 40500, 500)], [ByteRange(0, 9 * PAGE, 41000 - 9 * PAGE)]),
        ([ByteRange(0, 0, 10), ByteRange(1, 0, 10)], [ByteRange(0, 0, PAGE), ByteRange(1, 0, 100)]),
        ([ByteRange(0, 5, 0)], []),
    ],
)
def test_whole_pages(ranges: list[ByteRange], expected: list[ByteRange]) -> None:
    assert whole_pages(ranges, (41000, 100), PAGE) == tuple(expected)


RANGES = st.lists(
    st.builds(ByteRange, st.integers(0, 1), st.integers(0, 90_000), st.integers(1, 30_000)), max_size=8
).map(lambda found: [one for one in found if one.offset + one.length <= (100_000, 50_001)[one.part]])


@given(
    mode=st.sampled_from(Protect),
    ranges=RANGES,
    headroom=st.integers(-1000, 400_000),
    near=st.one_of(
        st.builds(HeadroomLimit, st.integers(1, 100_000)), st.builds(HeadroomLimit, st.none(), st.floats(0.001, 0.9))
    ),
    resident=st.none() | st.integers(0, 200_000),
)
def test_whatever_is_locked_is_safe(
    mode: Protect, ranges: list[ByteRange], headroom: int, near: HeadroomLimit, resident: int | None
) -> None:
    sizes, limit = (100_000, 50_001), 400_000
    memory = MemoryView(limit_bytes=limit, headroom_bytes=headroom)
    plan = protection(mode, ranges, sizes, memory, near, maps_model=True, resident_bytes=resident)
    assert plan.size_bytes == sum(one.length for one in plan.ranges)
    assert bool(plan.ranges) == ("is locked;" in plan.reason)
    if not plan.ranges:
        return
    pages = {
        (one.part, page) for one in ranges for page in range(one.offset // PAGE, -(-(one.offset + one.length) // PAGE))
    }
    taken = [
        (one.part, page) for one in plan.ranges for page in range(one.offset // PAGE, -(-(one.offset + one.length) // PAGE))
    ]  # fmt: skip
    assert len(taken) == len(set(taken))
    assert set(taken) <= pages
    assert plan.size_bytes < sum(sizes)
    for one in plan.ranges:
        assert one.offset % PAGE == 0
        assert one.length % PAGE == 0 or one.offset + one.length == sizes[one.part]
    left = headroom - plan.size_bytes
    assert left >= START_FACTOR * near.of(limit) - 1
    # It does not release itself at once, and lets go before the detector says near_limit.
    after = msgspec.structs.replace(memory, headroom_bytes=left)
    assert release_reason(after, near) is None
    keep = max(plan.keep_free_bytes, plan.keep_free_ratio * limit)
    assert keep == pytest.approx(min(limit, RELEASE_FACTOR * near.of(limit)), abs=2)
    if mode is Protect.AUTO:
        assert plan.size_bytes <= headroom / 4


@given(headroom=st.integers(8 * GIB, 500 * GIB))
def test_the_lock_grows_too_slowly_to_look_like_a_leak(headroom: int) -> None:
    plan = ask(Protect.ON, memory=MemoryView(limit_bytes=500 * GIB, headroom_bytes=headroom), near=HeadroomLimit(GIB))
    left = headroom - plan.size_bytes
    assert left / plan.rate_bytes_per_second > 2 * DetectorSettings().near_seconds
