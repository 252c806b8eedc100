"""What to warm, and how much."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.warm_plan import SMALLEST_RESERVE_BYTES, budget_bytes, plan
from moetuned.schema.model import ByteRange
from moetuned.schema.sample import Residency
from moetuned.schema.snapshot import MemoryView

OTHER = (ByteRange(0, 0, 100), ByteRange(1, 0, 50))
EXPERTS = (ByteRange(0, 100, 400), ByteRange(1, 50, 400))
TABLES = (ByteRange(0, 20, 30),)
MODEL = 950
GIB = 1 << 30


def test_a_model_that_fits_is_read_through_once_in_order() -> None:
    made = plan(OTHER, EXPERTS, TABLES, MODEL, MODEL)
    assert (made.twice, made.ranges) == ((), (ByteRange(0, 0, 500), ByteRange(1, 0, 450)))
    assert made.total_bytes == MODEL


def test_a_model_that_is_in_memory_is_left_alone() -> None:
    made = plan(OTHER, EXPERTS, TABLES, MODEL, 10 * MODEL, Residency(resident_bytes=MODEL + 10))
    assert (made.twice, made.ranges, made.total_bytes) == ((), (), 0)
    assert "already" in made.reason


def test_others_first_and_twice_then_experts_until_the_budget() -> None:
    made = plan(OTHER, EXPERTS, TABLES, MODEL, 200)
    assert made.twice == (ByteRange(0, 0, 20), ByteRange(0, 50, 50), ByteRange(1, 0, 50))
    assert made.ranges == (ByteRange(0, 100, 80),)


def test_token_tables_come_last() -> None:
    made = plan(OTHER, EXPERTS, TABLES, MODEL, MODEL - 10)
    assert made.ranges == (*EXPERTS, ByteRange(0, 20, 20))


def test_experts_in_memory_keep_their_share() -> None:
    resident = Residency(resident_bytes=60, expert_bytes=60, other_bytes=0)
    assert plan(OTHER, EXPERTS, TABLES, MODEL, 200, resident).ranges == (ByteRange(0, 100, 20),)
    full = Residency(resident_bytes=80, expert_bytes=80, other_bytes=0)
    assert plan(OTHER, EXPERTS, TABLES, MODEL, 200, full).ranges == ()


def test_unknown_shares_of_what_is_resident_are_taken_for_experts() -> None:
    assert plan(OTHER, EXPERTS, TABLES, MODEL, 200, Residency(resident_bytes=190)).ranges == (ByteRange(0, 100, 10),)


def test_no_budget_is_an_empty_plan_that_says_so() -> None:
    made = plan(OTHER, EXPERTS, TABLES, MODEL, 0)
    assert (made.twice, made.ranges, made.total_bytes) == ((), (), 0)
    assert "no free memory" in made.reason


def bytes_of(ranges: Sequence[ByteRange]) -> list[tuple[int, int]]:
    return [(one.part, byte) for one in ranges for byte in range(one.offset, one.offset + one.length)]


@given(
    cuts=st.lists(st.tuples(st.integers(1, 20), st.sampled_from("oet")), min_size=1, max_size=12),
    budget=st.integers(-5, 300),
    resident=st.none() | st.integers(0, 200),
)
def test_never_more_than_the_budget_and_never_a_byte_twice(
    cuts: list[tuple[int, str]], budget: int, resident: int | None
) -> None:
    kinds: dict[str, list[ByteRange]] = {"o": [], "e": [], "t": []}
    at = 0
    for length, kind in cuts:
        kinds[kind].append(ByteRange(0, at, length))
        at += length
    known = None if resident is None else Residency(resident_bytes=resident, expert_bytes=resident, other_bytes=0)
    made = plan([*kinds["o"], *kinds["t"]], kinds["e"], kinds["t"], at, budget, known)
    touched = bytes_of((*made.twice, *made.ranges))
    assert len(touched) == len(set(touched)) == made.total_bytes <= max(0, budget)
    model = set(bytes_of((*kinds["o"], *kinds["e"], *kinds["t"])))
    assert set(touched) <= model
    if made.ranges and made.twice:
        assert set(bytes_of(kinds["o"])) <= set(touched)


def view(limit: int, headroom: int, cache: int) -> MemoryView:
    return MemoryView(scope="cgroup", limit_bytes=limit, headroom_bytes=headroom, file_cache_bytes=cache)


def test_budget_is_what_is_resident_and_what_is_free_less_a_reserve() -> None:
    assert budget_bytes(view(10 * GIB, 8 * GIB, 5 * GIB), 4 * GIB) == 7 * GIB - int(0.2 * GIB)


def test_budget_of_a_full_limit_is_what_is_resident() -> None:
    assert budget_bytes(view(GIB, GIB, GIB), GIB) == GIB - SMALLEST_RESERVE_BYTES


def test_a_configured_budget_only_lowers_it() -> None:
    memory = view(10 * GIB, 8 * GIB, 0)
    assert budget_bytes(memory, 0, GIB) == GIB
    assert budget_bytes(memory, 0, 100 * GIB) == budget_bytes(memory, 0)


@pytest.mark.parametrize("memory", [MemoryView(), view(GIB, -5, 0), view(GIB, 0, 0)])
def test_unknown_or_no_headroom_is_no_budget(memory: MemoryView) -> None:
    assert budget_bytes(memory, 100, 100) == 0


@given(*(st.integers(0, 40 * GIB) for _ in range(4)))
def test_the_budget_never_reaches_into_what_cannot_be_reclaimed(
    limit: int, used: int, cache: int, resident: int
) -> None:
    headroom = limit - used
    budget = budget_bytes(view(limit, headroom, cache), resident)
    assert 0 <= budget <= max(0, headroom - SMALLEST_RESERVE_BYTES)
