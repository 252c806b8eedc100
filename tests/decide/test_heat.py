"""What a look at residency teaches about use, and what it does not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.heat import HeatState, Look, fresh, order, resume, served_ratio, step, unverified
from moetuned.schema.heat import ExpertPages, Heat, ModelStamp

STAMP = ModelStamp((1,), (1,), "00")
WHOLE = 10
MIB = 1 << 20


def pages(*cached: int, experts: int = 4) -> ExpertPages:
    return ExpertPages(len(cached) // experts, experts, cached, (WHOLE,) * len(cached))


def look(*cached: int, **facts: Any) -> Look:
    return Look(**{"pages": pages(*cached), "load": 1, "healthy": True, "answered": True} | facts)


def after(*looks: Look, state: HeatState | None = None) -> HeatState:
    state = state or fresh(STAMP, pages(0, 0, 0, 0))
    for one in looks:
        state = step(state, one)
    return state


def used(state: HeatState) -> tuple[int, ...]:
    return state.heat.last_used


TAIL = look(0, 0, 10, 10)
"""The first look after loading."""


def test_the_tail_that_loading_left_is_no_use() -> None:
    state = after(TAIL, TAIL, TAIL)
    assert used(state) == (0, 0, 0, 0)
    assert state.heat.look == 2


def test_what_came_while_it_answered_was_used_and_stays_used() -> None:
    state = after(TAIL, look(10, 0, 10, 10), look(10, 0, 10, 0))
    assert used(state) == (2, 0, 0, 0)


def test_what_left_and_came_back_was_used_again() -> None:
    state = after(TAIL, look(10, 0, 10, 10), look(0, 0, 10, 10))
    assert used(state) == (1, 0, 0, 0)
    assert used(step(state, look(10, 0, 10, 10))) == (3, 0, 0, 0)


@pytest.mark.parametrize(("came", "was_used"), [(4, 0), (5, 1)])
def test_less_than_half_an_expert_is_read_ahead_of_its_neighbour(came: int, was_used: int) -> None:
    assert used(after(TAIL, look(10, came, 10, 10))) == (1, was_used, 0, 0)


def test_an_idle_backend_used_nothing_and_what_came_meanwhile_others_read() -> None:
    state = after(TAIL, look(10, 0, 10, 10, answered=False))
    assert used(state) == (0, 0, 0, 0)
    assert state.heat.look == 0
    assert used(step(state, look(10, 0, 10, 10))) == (0, 0, 0, 0)


def test_more_than_the_backend_read_came_from_somebody_else() -> None:
    """A checksum of the files runs while the backend answers."""
    big = {"page_bytes": 100 * MIB}
    state = after(look(0, 0, 0, 0, read_bytes=0, **big))
    assert used(step(state, look(10, 10, 0, 0, read_bytes=100 * MIB, **big))) == (0, 0, 0, 0)
    assert used(step(state, look(10, 10, 0, 0, read_bytes=2000 * MIB, **big))) == (1, 1, 0, 0)
    assert used(step(state, look(10, 10, 0, 0, **big))) == (1, 1, 0, 0)


@pytest.mark.parametrize("gap", [look(10, 10, 10, 10, healthy=False), Look(None, 1, healthy=True, answered=True)])
def test_nothing_is_learned_across_an_unhealthy_or_unknown_moment(gap: Look) -> None:
    state = after(TAIL, look(10, 0, 10, 10), gap)
    assert used(state) == (1, 0, 0, 0)
    back = step(state, look(10, 10, 10, 10))
    assert used(back) == (1, 0, 0, 0)
    assert used(step(back, look(10, 10, 10, 10))) == (2, 0, 0, 0)


def test_pages_of_another_shape_teach_nothing() -> None:
    other = Look(ExpertPages(1, 2, (10, 10), (10, 10)), 1, healthy=True, answered=True)
    state = after(TAIL, other)
    assert used(state) == (0, 0, 0, 0)
    assert state.before is None


def test_our_own_warming_is_no_use() -> None:
    state = after(TAIL, look(10, 0, 10, 10), look(10, 10, 10, 10, warmed=True))
    assert used(state) == (1, 0, 0, 0)
    still = step(state, look(10, 10, 10, 10))
    assert used(still) == (1, 0, 0, 0)
    assert used(step(still, look(0, 10, 10, 10))) == (1, 0, 0, 0)


def test_a_new_load_starts_over_but_keeps_what_was_learned() -> None:
    state = after(TAIL, look(10, 0, 10, 10), look(10, 10, 10, 10, load=2), look(10, 10, 10, 10, load=2))
    assert used(state) == (1, 0, 0, 0)


@pytest.mark.parametrize(
    ("read", "full", "was_used"), [(39, True, 0), (40, True, 1), (40, False, 0), (40, None, 0), (None, True, 0)]
)
def test_what_stays_is_used_once_the_cache_has_turned_over(read: int | None, full: bool | None, was_used: int) -> None:
    """20 bytes are resident."""
    state = after(look(0, 0, 10, 10, read_bytes=1000, page_bytes=1))
    now = look(0, 0, 10, 10, read_bytes=None if read is None else 1000 + read, memory_full=full, page_bytes=1)
    assert used(step(state, now)) == (0, 0, was_used, was_used)


def test_an_empty_cache_has_not_turned_over() -> None:
    empty = look(0, 0, 0, 0, read_bytes=0, memory_full=True, page_bytes=1)
    assert not after(empty, empty).turned_over


def test_reading_of_the_load_itself_does_not_turn_the_cache_over() -> None:
    loading = look(0, 0, 0, 10, healthy=False, read_bytes=0, page_bytes=1)
    ready = look(0, 0, 10, 10, read_bytes=10_000, memory_full=True, page_bytes=1)
    state = after(loading, ready, msgspec.structs.replace(ready, read_bytes=10_039))
    assert used(state) == (0, 0, 0, 0)
    assert used(step(state, msgspec.structs.replace(ready, read_bytes=10_040))) == (0, 0, 2, 2)


def test_what_others_brought_has_to_turn_over_again() -> None:
    ready = look(0, 0, 10, 10, read_bytes=0, memory_full=True, page_bytes=1)
    turned = after(ready, msgspec.structs.replace(ready, read_bytes=40))
    assert used(turned) == (0, 0, 1, 1)
    brought = step(turned, look(10, 0, 10, 10, read_bytes=40, answered=False, memory_full=True, page_bytes=1))
    later = step(brought, look(10, 0, 10, 10, read_bytes=41, memory_full=True, page_bytes=1))
    assert used(later) == (0, 0, 2, 2)


def test_what_came_between_a_page_out_and_the_look_after_it_is_not_counted() -> None:
    state = after(TAIL, look(10, 0, 0, 0, paged_out=True))
    assert (used(state), state.heat.look) == ((0, 0, 0, 0), 0)


def test_what_comes_back_after_a_page_out_is_used() -> None:
    tail = after(TAIL)
    assert unverified(tail, pages(0, 0, 10, 10)) == ((0, 2), (0, 3))
    out = step(tail, look(0, 0, 0, 0, paged_out=True, answered=False))
    assert unverified(out, pages(0, 0, 10, 0)) == ()
    assert used(step(out, look(0, 0, 10, 0))) == (0, 0, 1, 0)


def test_what_a_page_out_could_not_take_is_no_use() -> None:
    """Pages that another process has mapped too."""
    out = after(TAIL, look(0, 0, 10, 0, paged_out=True))
    assert used(step(out, look(0, 0, 10, 0))) == (0, 0, 0, 0)


def test_where_paging_out_did_nothing_what_stays_is_no_use_even_when_the_cache_has_turned_over() -> None:
    """Locked, or mapped by another process too: no reading drives it out."""
    full = {"memory_full": True, "page_bytes": 1}
    out = after(TAIL, look(0, 0, 10, 10, paged_out=True, stayed=True, read_bytes=0, **full))
    assert out.heat.stayed
    turned = step(out, look(10, 0, 10, 10, read_bytes=10_000, **full))
    assert turned.turned_over
    assert used(turned) == (1, 0, 0, 0)
    left = step(turned, look(10, 0, 0, 10, read_bytes=10_001, **full))
    back = step(left, look(10, 0, 10, 10, read_bytes=10_020, **full))
    assert used(back) == (3, 0, 3, 0), "what has left and come back is used"


def test_until_paging_out_works_what_a_load_leaves_is_not_taken_for_used() -> None:
    known = resume(Heat(STAMP, 1, 4, (0, 0, 0, 0), 5, 0.0, stayed=True))
    full = {"memory_full": True, "page_bytes": 1}
    state = step(known, look(0, 0, 10, 10, read_bytes=0, **full))
    assert used(step(state, look(0, 0, 10, 10, read_bytes=10_000, **full))) == (0, 0, 0, 0)
    went = step(state, look(0, 0, 0, 0, paged_out=True, stayed=False, read_bytes=0, **full))
    assert not went.heat.stayed
    came = step(went, look(0, 0, 10, 0, read_bytes=10, **full))
    assert used(came) == (0, 0, 6, 0)


def test_only_what_nobody_is_known_to_use_is_a_candidate() -> None:
    state = after(TAIL, look(10, 3, 10, 0))
    assert unverified(state, pages(10, 3, 10, 0)) == ((0, 1), (0, 2))
    known = step(resume(Heat(STAMP, 1, 4, (0, 0, 5, 0), 5, 0.0)), TAIL)
    assert unverified(known, pages(0, 0, 10, 10)) == ((0, 3),)


def test_there_are_no_candidates_before_a_healthy_look_or_of_another_model() -> None:
    assert unverified(fresh(STAMP, pages(0, 0, 0, 0)), pages(0, 0, 10, 10)) == ()
    assert unverified(after(look(0, 0, 10, 10, healthy=False)), pages(0, 0, 10, 10)) == ()
    assert unverified(after(TAIL, look(0, 0, 10, 10, warmed=True)), pages(0, 0, 10, 10)) == ((0, 2), (0, 3))
    assert unverified(after(TAIL), ExpertPages(1, 2, (10, 10), (10, 10))) == ()
    full = look(0, 3, 10, 10, read_bytes=0, memory_full=True, page_bytes=1)
    turned = after(full, msgspec.structs.replace(full, read_bytes=100))
    assert unverified(turned, pages(0, 3, 10, 10)) == ()


def test_hottest_first() -> None:
    heat = Heat(STAMP, 2, 4, (3, 0, 7, 7, 7, 0, 1, 3), 7, 0.0)
    assert order(heat) == ((0, 2), (0, 3), (1, 0), (0, 0), (1, 3), (1, 2))
    there = pages(0, 0, 0, 5, 10, 0, 0, 10)
    assert order(heat, there) == ((1, 0), (0, 3), (0, 2), (1, 3), (0, 0), (1, 2))
    assert order(heat, pages(0, 0, 0, 10)) == order(heat)


def test_how_much_of_recent_use_memory_would_have_served() -> None:
    heat = Heat(STAMP, 1, 4, (20, 13, 12, 0), 20, 0.0)
    assert served_ratio(heat, pages(5, 10, 0, 0)) == 0.75
    assert served_ratio(heat, pages(5, 10, 0, 0), recent_looks=9) == 0.5
    assert served_ratio(heat, ExpertPages(1, 2, (1, 1), (1, 1))) is None
    assert served_ratio(Heat(STAMP, 1, 4, (0, 0, 0, 0), 20, 0.0), pages(5, 10, 0, 0)) is None


LOOKS = st.builds(
    Look,
    pages=st.none() | st.tuples(*(st.integers(0, WHOLE) for _ in range(4))).map(lambda cached: pages(*cached)),
    load=st.integers(0, 2),
    healthy=st.booleans(),
    answered=st.booleans(),
    warmed=st.booleans(),
    paged_out=st.booleans(),
    stayed=st.none() | st.booleans(),
    read_bytes=st.none() | st.integers(0, 300),
    memory_full=st.none() | st.booleans(),
    page_bytes=st.just(1),
)


@given(st.lists(LOOKS, max_size=30))
def test_last_used_never_decreases_and_only_healthy_looks_count(looks: list[Look]) -> None:
    state = fresh(STAMP, pages(0, 0, 0, 0))
    for one in looks:
        before, state = state, step(state, one)
        assert all(now >= was for was, now in zip(used(before), used(state), strict=True))
        assert all(0 <= now <= state.heat.look for now in used(state))
        assert state.heat.look - before.heat.look in (0, 1)
        if (
            one.pages is None
            or not one.healthy
            or one.warmed
            or one.paged_out
            or not one.answered
            or before.load != one.load
        ):
            assert used(state) == used(before)
            assert state.heat.look == before.heat.look
        if one.pages is not None:
            for cell, (was, now) in enumerate(zip(used(before), used(state), strict=True)):
                assert now == was or (now == state.heat.look and one.pages.cached[cell] * 2 >= WHOLE)
            for layer, expert in unverified(state, one.pages):
                assert one.pages.cached[layer * 4 + expert]
                assert used(state)[layer * 4 + expert] == 0
        assert set(order(state.heat)) == {(0, cell) for cell, last in enumerate(used(state)) if last}


@given(st.lists(LOOKS, max_size=12))
def test_what_was_resident_all_the_time_is_not_used_without_turning_over(looks: list[Look]) -> None:
    """Experts 2 and 3 are the tail, and nobody reads enough."""
    state = fresh(STAMP, pages(0, 0, 0, 0))
    for one in looks:
        if one.pages is not None:
            one = msgspec.structs.replace(one, pages=pages(*one.pages.cached[:2], 10, 10), memory_full=False)
        state = step(state, one)
    assert used(state)[2:] == (0, 0)
