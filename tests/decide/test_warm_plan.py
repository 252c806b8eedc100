"""What to warm, and how much."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.warm_plan import SMALLEST_RESERVE_BYTES, KnownUse, WarmPlan, budget_bytes, plan
from moetuned.gguf.experts import ExpertMap, ExpertTensor, expert_slices
from moetuned.schema.heat import ExpertPages
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


def tensor(layer: int, offset: int, slice_bytes: int, count: int = 4) -> ExpertTensor:
    return ExpertTensor(f"{layer}.{offset}", layer, 0, offset, slice_bytes, count)


HOT_MAP = ExpertMap(
    2, 4, (1, 1), (tensor(0, 100, 10), tensor(0, 140, 10), tensor(1, 180, 10), tensor(1, 220, 10)), (), (280,)
)
"""100 bytes that every token needs (20 of them a token table), 2 layers of 4 experts of two slices of 10 bytes each."""
HOT_OTHER, HOT_EXPERTS, HOT_TABLES, HOT_MODEL = (
    (ByteRange(0, 0, 100),),
    (ByteRange(0, 100, 160),),
    (ByteRange(0, 0, 20),),
    260,
)


def with_heat(
    budget: int, order: Sequence[tuple[int, int]], cached: Sequence[int] | None = None, **facts: Any
) -> WarmPlan:
    """`cached`: for each expert how many of its 20 bytes are in memory (a page is a byte here); others are not in memory."""
    pages = None if cached is None else ExpertPages(2, 4, tuple(cached), (20,) * 8)
    resident = (
        None if cached is None else Residency(resident_bytes=sum(cached), expert_bytes=sum(cached), other_bytes=0)
    )
    use = KnownUse(HOT_MAP, tuple(order), pages, **facts)
    return plan(HOT_OTHER, HOT_EXPERTS, HOT_TABLES, HOT_MODEL, budget, resident, use)


def slices(layer: int, expert: int) -> set[tuple[int, int]]:
    return set(bytes_of(expert_slices(HOT_MAP, layer, expert)))


def test_experts_that_were_used_come_hottest_first_and_twice() -> None:
    made = with_heat(80 + 50, [(1, 2), (0, 0), (0, 3)])
    assert made.twice == (
        ByteRange(0, 20, 80),
        ByteRange(0, 200, 10), ByteRange(0, 240, 10),
        ByteRange(0, 100, 10), ByteRange(0, 140, 10),
    )  # fmt: skip
    # The third does not fit whole; what is free is filled from the start of the file, as without heat.
    assert made.ranges == (ByteRange(0, 110, 10),)
    assert made.total_bytes == 130
    assert made.page_out == ()


def test_touched_once_on_request() -> None:
    made = with_heat(100, [(0, 0)], twice=False)
    assert (made.twice, made.ranges) == ((ByteRange(0, 20, 80),), (ByteRange(0, 100, 10), ByteRange(0, 140, 10)))


def test_groups_are_in_file_order_and_joined() -> None:
    made = with_heat(80 + 160, [(layer, expert) for expert in (1, 0, 3, 2) for layer in (1, 0)])
    assert made.twice[1:5] == (
        ByteRange(0, 190, 10),
        ByteRange(0, 230, 10),
        ByteRange(0, 110, 10),
        ByteRange(0, 150, 10),
    )
    many = ExpertMap(1, 32, (1,), (tensor(0, 0, 10, 32),), (), (320,))
    order = tuple((0, expert) for expert in (*range(28, 32), *range(28)))
    made = plan((), (ByteRange(0, 0, 320),), (), 1000, 320, None, KnownUse(many, order))
    assert made.twice == (ByteRange(0, 280, 40), *(ByteRange(0, start, 40) for start in range(0, 280, 40)))


def test_no_heat_changes_nothing() -> None:
    resident = Residency(resident_bytes=60, expert_bytes=60, other_bytes=0)
    for use in (None, KnownUse(HOT_MAP, (), ExpertPages(2, 4, (0,) * 8, (20,) * 8), just_loaded=True)):
        made = plan(HOT_OTHER, HOT_EXPERTS, HOT_TABLES, HOT_MODEL, 200, resident, use)
        assert (made.twice, made.ranges, made.page_out) == ((ByteRange(0, 20, 80),), (ByteRange(0, 100, 60),), ())


def test_a_model_that_fits_is_plain_whatever_the_heat() -> None:
    made = with_heat(HOT_MODEL, [(1, 1)])
    assert (made.twice, made.ranges, made.page_out) == ((), (ByteRange(0, 0, 260),), ())


def test_what_is_in_memory_takes_no_room_a_second_time() -> None:
    """20 bytes of the hottest are there, 20 more fit."""
    made = with_heat(80 + 40, [(0, 0), (0, 1), (0, 2)], [20, 0, 0, 0, 0, 0, 0, 0])
    assert set(bytes_of(made.twice)) >= slices(0, 0) | slices(0, 1)
    assert not slices(0, 2) & set(bytes_of(made.twice))
    assert (made.ranges, made.page_out) == ((), ())


def test_what_is_in_memory_is_touched_up_to_the_budget_only() -> None:
    made = with_heat(80 + 20, [(0, 0), (0, 1), (0, 2)], [20, 20, 20, 0, 0, 0, 0, 0])
    assert set(bytes_of(made.twice[1:])) == slices(0, 0)
    assert made.total_bytes == 100


def test_free_memory_is_not_filled_with_what_is_there() -> None:
    made = with_heat(80 + 60, [(1, 0)], [20, 0, 0, 0, 0, 0, 0, 0])
    assert set(bytes_of(made.ranges)) == {(0, byte) for byte in range(110, 130)}


def test_pages_of_another_model_are_unknown_pages() -> None:
    pages = ExpertPages(4, 2, (20,) * 8, (20,) * 8)
    made = plan((), HOT_EXPERTS, (), 260, 40, None, KnownUse(HOT_MAP, ((0, 0),), pages, just_loaded=True))
    assert set(bytes_of(made.twice)) == slices(0, 0)
    assert made.ranges == (ByteRange(0, 110, 20),)


def test_after_a_load_the_tail_makes_room_oldest_first_and_no_more_than_it_takes() -> None:
    tail = [0, 0, 0, 0, 20, 20, 20, 20]
    made = with_heat(80 + 80, [(0, 1), (0, 2), (1, 1)], tail, just_loaded=True)
    assert set(bytes_of(made.page_out)) == slices(1, 0) | slices(1, 2)
    assert set(bytes_of(made.twice[1:])) == slices(0, 1) | slices(0, 2) | slices(1, 1)
    assert made.ranges == ()
    assert "after paging out 40 B that nobody used" in made.reason


def test_nothing_is_paged_out_once_requests_were_answered_or_where_pages_are_unknown() -> None:
    tail = [0, 0, 0, 0, 20, 20, 20, 20]
    made = with_heat(80 + 80, [(0, 1), (1, 1)], tail)
    assert made.page_out == ()
    assert set(bytes_of(made.twice[1:])) == slices(1, 1)
    unknown = with_heat(80 + 80, [(0, 1), (1, 1)], None, just_loaded=True)
    assert unknown.page_out == ()


def test_what_was_used_keeps_its_room_though_it_is_colder() -> None:
    made = with_heat(80 + 40, [(0, 1), (0, 2), (1, 0), (1, 1)], [0, 0, 0, 0, 20, 20, 0, 0], just_loaded=True)
    assert made.page_out == ()
    assert set(bytes_of(made.twice[1:])) == slices(1, 0) | slices(1, 1)


def test_a_budget_below_what_is_in_memory_pages_nothing_out_for_nothing() -> None:
    resident = Residency(resident_bytes=180, expert_bytes=80, other_bytes=100)
    use = KnownUse(HOT_MAP, ((1, 0),), ExpertPages(2, 4, (0, 0, 0, 0, 20, 20, 20, 20), (20,) * 8), just_loaded=True)
    made = plan(HOT_OTHER, HOT_EXPERTS, HOT_TABLES, HOT_MODEL, 120, resident, use)
    assert (made.page_out, made.ranges) == ((), ())


def test_a_slice_shared_with_an_expert_that_was_used_stays() -> None:
    """Two experts share a slice of the second tensor."""
    shared = ExpertMap(1, 4, (1,), (tensor(0, 0, 10), tensor(0, 40, 10, 2)), (), (60,))
    pages = ExpertPages(1, 4, (0, 20, 0, 20), (20,) * 4)
    use = KnownUse(shared, ((0, 0), (0, 2)), pages, just_loaded=True)
    made = plan((), (ByteRange(0, 0, 60),), (), 60, 50, Residency(resident_bytes=40, expert_bytes=40), use)
    assert not set(bytes_of(made.page_out)) & set(bytes_of((ByteRange(0, 40, 20),)))
    assert made.page_out


def test_experts_that_do_not_exist_are_passed_over() -> None:
    made = with_heat(80 + 40, [(9, 0), (0, 99), (0, 1), (0, 1)])
    assert set(bytes_of(made.twice[1:])) == slices(0, 1)
    assert len(bytes_of(made.twice)) == len(set(bytes_of(made.twice)))


@given(
    budget=st.integers(-5, 300),
    order=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=10),
    cached=st.none() | st.lists(st.integers(0, 20), min_size=8, max_size=8),
    just_loaded=st.booleans(),
    twice=st.booleans(),
)
def test_a_heat_plan_keeps_to_its_budget_and_to_what_nobody_used(
    budget: int, order: list[tuple[int, int]], cached: list[int] | None, just_loaded: bool, twice: bool
) -> None:
    made = with_heat(budget, order, cached, just_loaded=just_loaded, twice=twice)
    touched = bytes_of((*made.twice, *made.ranges))
    assert len(touched) == len(set(touched)) == made.total_bytes <= max(0, budget)
    out = bytes_of(made.page_out)
    assert len(out) == len(set(out))
    assert not set(out) & set(touched)
    assert not out or (just_loaded and cached is not None and bool(order))
    for cell in order:
        assert not set(out) & slices(*cell)
    if cached is not None and made.total_bytes < HOT_MODEL:
        # What will be in memory: what is, less what is paged out, and what is touched and was not there.
        gone = sum(cached[cell] for cell in range(8) if slices(*divmod(cell, 4)) & set(out))
        new = sum(
            length * (20 - cached[cell]) // 20
            for cell in range(8)
            if (length := len(slices(*divmod(cell, 4)) & set(touched)))
        )
        others = len([byte for _, byte in touched if byte < 100])
        assert others + sum(cached) - gone + new <= max(budget, others + sum(cached)) + 8
