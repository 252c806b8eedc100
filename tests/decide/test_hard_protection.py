"""How much may be kept for good: never so much that too little stays, and never by a number that nobody knows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.hard_protection import (
    RESERVE_BYTES,
    Use,
    most_bytes,
    reserve_bytes,
    why_not,
    why_short,
)
from moetuned.parse.config_values import HeadroomLimit

GIB = 1 << 30
MIB = 1 << 20
SIZES = st.integers(0, 1 << 50)


@pytest.mark.parametrize(
    ("limit", "most"),
    [
        (0, 0),
        (1536 * MIB, 768 * MIB),
        (4 * GIB, 2 * GIB),
        (8 * GIB, 6 * GIB),
        (16 * GIB, 12 * GIB),
        (64 * GIB, 48 * GIB),
        (1024 * GIB, 768 * GIB),
    ],
)
def test_the_rule_for_machines_of_a_size(limit: int, most: int) -> None:
    assert most_bytes(limit) == most
    assert why_not(most, limit, "this machine") is None
    assert "the kernel kills programs" in (why_not(most + 1, limit, "this machine") or "")


@given(SIZES)
def test_what_stays_is_a_quarter_and_two_gib_or_half(limit: int) -> None:
    stays = reserve_bytes(limit)
    assert stays + most_bytes(limit) == limit
    assert stays >= limit // 4
    assert stays >= min(RESERVE_BYTES, limit // 2)
    assert 0 <= most_bytes(limit) <= limit - limit // 4


@given(SIZES, SIZES)
def test_more_memory_never_allows_less(one: int, other: int) -> None:
    smaller, larger = sorted((one, other))
    assert most_bytes(smaller) <= most_bytes(larger)


@given(SIZES, SIZES, SIZES)
def test_what_is_refused_stays_refused_when_more_is_asked(kept: int, more: int, limit: int) -> None:
    if why_not(kept, limit, "x") is not None:
        assert why_not(kept + more, limit, "x") is not None


@given(st.none() | SIZES)
def test_what_is_unknown_is_refused_with_a_reason(known: int | None) -> None:
    assert "unknown" in (why_not(known, None, "ai.slice") or "")
    assert "unknown" in (why_not(None, 64 * GIB, "ai.slice") or "")


def test_the_reason_says_how_much_may_be() -> None:
    said = why_not(50 * GIB, 64 * GIB, "this machine")
    assert said == (
        "50.0 GiB would be kept in all, and of the 64.0 GiB of this machine no more than 48.0 GiB may be: the kernel kills programs "
        "before it takes what memory.min keeps"
    )


NEAR = HeadroomLimit(ratio=0.1)


def short(held: int | None, kept: int = 20, own: int = 0, *, is_kept: bool = False) -> str | None:
    use = Use(None if held is None else held * GIB, own * GIB)
    return why_short(kept * GIB, use, 40 * GIB, "this machine", NEAR, is_kept=is_kept)


def test_what_others_use_leaves_twice_the_near_limit_or_nothing_is_kept() -> None:
    assert short(12) is None
    assert "others use 13.0 GiB of the 40.0 GiB of this machine" in (short(13) or "")
    assert short(13, own=1) is None, "its own part of what is kept counts once"
    assert short(15, is_kept=True) is None
    assert "and 5.0 GiB must be" in (short(16, is_kept=True) or "")
    assert short(40, kept=0) is None
    assert "unknown" in (short(None) or "")


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40), st.integers(0, 8))
def test_what_may_begin_may_stay_and_more_use_never_allows_more(held: int, kept: int, own: int, more: int) -> None:
    own = min(own, held)
    if short(held, kept, own) is None:
        assert short(held, kept, own, is_kept=True) is None
    for is_kept in (True, False):
        if short(held, kept, own, is_kept=is_kept) is not None:
            assert short(held + more, kept, own, is_kept=is_kept) is not None
