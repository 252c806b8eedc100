"""Budgets under several limits, and what is too near one."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.detector_settings import DetectorSettings
from moetuned.decide.warm_plan import budget_bytes
from moetuned.decide.warm_room import backend_budget_bytes, filled, free_under, near_its_limit, room, taken
from moetuned.schema.snapshot import MemoryView

GIB = 1 << 30


def memory(limit: int, headroom: int, cache: int = 0, scope: str = "machine") -> MemoryView:
    return MemoryView(scope, limit_bytes=limit, headroom_bytes=headroom, file_cache_bytes=cache)


@pytest.mark.parametrize(("headroom", "near"), [(8 * GIB, False), (8 * GIB - 1, True), (-GIB, True)])
def test_near_is_what_the_detector_calls_near(headroom: int, near: bool) -> None:
    assert (near_its_limit(memory(100 * GIB, headroom)) is not None) == near


def test_near_says_how_much_is_left_and_of_what() -> None:
    assert near_its_limit(memory(10 * GIB, GIB // 2, scope="cgroup")) == (
        "memory is near its limit: 512 MiB of 10.0 GiB are left (5 %, cgroup)"
    )


def test_a_configured_headroom_goes_before_the_share() -> None:
    settings = DetectorSettings(near_headroom_bytes=GIB)
    assert near_its_limit(memory(100 * GIB, 2 * GIB), settings) is None
    assert near_its_limit(memory(4 * GIB, GIB - 1), settings) is not None


@pytest.mark.parametrize(("free", "full"), [(GIB, False), (GIB - 1, True), (-GIB, True)])
def test_filled_is_half_of_what_warming_leaves_free(free: int, full: bool) -> None:
    assert (filled(memory(100 * GIB, 50 * GIB, 50 * GIB - free)) is not None) == full
    assert filled(MemoryView(limit_bytes=GIB)) is None


def test_page_cache_that_is_kept_takes_of_what_is_free_only_once() -> None:
    before = memory(64 * GIB, 60 * GIB, cache=30 * GIB)
    kept = msgspec.structs.replace(before, headroom_bytes=32 * GIB, kept_bytes=28 * GIB)
    assert filled(kept) is None
    assert room([kept], 30 * GIB).budget_bytes == room([before], 30 * GIB).budget_bytes
    full = msgspec.structs.replace(kept, headroom_bytes=2 * GIB)
    assert filled(full) is not None


def test_room_is_taken_only_where_there_was_some() -> None:
    limits = [memory(100 * GIB, 50 * GIB, 40 * GIB), memory(10 * GIB, 5 * GIB, 5 * GIB, "/a"), MemoryView("/b")]
    assert free_under(limits) == {"machine"}
    assert taken(limits, free_under(limits)) is None
    later = [memory(100 * GIB, 50 * GIB, 50 * GIB), limits[1]]
    assert "(machine)" in (taken(later, free_under(limits)) or "")
    assert taken(later, frozenset()) is None


def test_what_hardly_fits_is_no_room_to_fill() -> None:
    """Between the reserve and half of it nothing is planned, so that nothing of it can be taken."""
    assert free_under([memory(100 * GIB, 2 * GIB)]) == {"machine"}
    assert free_under([memory(100 * GIB, 2 * GIB - 1)]) == frozenset()


def test_a_backends_budget_is_of_all_its_limits() -> None:
    own, machine = memory(8 * GIB, 7 * GIB, 2 * GIB, "/own"), memory(64 * GIB, 60 * GIB, 58 * GIB)
    assert backend_budget_bytes([own], GIB) == budget_bytes(own, GIB)
    assert backend_budget_bytes([own, machine], GIB) == budget_bytes(machine, GIB) < budget_bytes(own, GIB)
    assert backend_budget_bytes([own, machine], GIB, 5) == 5
    assert backend_budget_bytes([own, MemoryView()], GIB) == budget_bytes(own, GIB)
    assert backend_budget_bytes([], GIB) == 0


def test_a_full_machine_leaves_a_backend_what_it_has() -> None:
    """2 % of a large machine may be more than a small cgroup holds."""
    own, full = memory(GIB // 2, GIB // 2, GIB // 2, "/own"), memory(64 * GIB, 60 * GIB, 60 * GIB)
    assert backend_budget_bytes([own, full], GIB // 2) == budget_bytes(own, GIB // 2) > 0


def test_what_is_unknown_is_neither_near_nor_a_limit() -> None:
    assert near_its_limit(MemoryView()) is None
    assert room([MemoryView(), MemoryView(limit_bytes=GIB)], 0).budget_bytes is None
    assert room([], 0).limit is None


def test_the_tightest_limit_counts() -> None:
    wide, tight = memory(64 * GIB, 60 * GIB, GIB), memory(8 * GIB, 7 * GIB, 2 * GIB, "cgroup")
    found = room([wide, MemoryView(), tight], GIB)
    assert found.limit == tight
    assert found.budget_bytes == budget_bytes(tight, GIB)
    assert found.near is None


def test_one_limit_that_is_near_is_enough() -> None:
    found = room([memory(64 * GIB, 60 * GIB), memory(8 * GIB, GIB // 4, scope="cgroup")], 0)
    assert found.near is not None
    assert "cgroup" in found.near


@given(
    st.lists(st.tuples(st.integers(1, 1 << 40), st.integers(0, 1 << 40), st.integers(0, 1 << 40)), min_size=1),
    st.integers(0, 1 << 40),
    st.none() | st.integers(0, 1 << 40),
)
def test_no_limit_is_passed(numbers: list[tuple[int, int, int]], resident: int, configured: int | None) -> None:
    limits = [memory(limit, min(limit, headroom), cache) for limit, headroom, cache in numbers]
    found = room(limits, resident, configured)
    assert found.budget_bytes is not None
    assert all(found.budget_bytes <= budget_bytes(one, resident, configured) for one in limits)
    assert configured is None or found.budget_bytes <= configured
