"""For how long a growth is believed, and what is foreseen of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide import foresight
from moetuned.decide.foresight import Growing, OwnGrowth, foreseen_bytes, foreseen_seconds

MIB = 1 << 20


def test_a_growth_lasts_over_moments_without_one_and_then_begins_anew() -> None:
    growing = foresight.follow(None, 20.0, 100.0)
    assert growing == Growing(100.0, 100.0)
    assert foresight.follow(growing, None, 104.0) == growing
    assert foresight.follow(growing, 9.0, 104.0) == Growing(100.0, 104.0)
    assert foresight.follow(growing, 9.0, 106.0) == Growing(106.0, 106.0)
    assert foresight.follow(growing, None, 106.0) is None


def test_it_is_believed_for_twice_as_long_again_and_not_beyond_the_next_restart() -> None:
    assert foreseen_seconds(None, 130.0, 0.0) == 6.0
    assert foreseen_seconds(Growing(100.0, 110.0), 130.0, 110.0) == 26.0
    assert foreseen_seconds(Growing(100.0, 400.0), 130.0, 400.0) == 130.0
    assert foresight.unhelped_seconds(20.0, 120.0) == 130.0
    assert foresight.unhelped_seconds(600.0, 120.0) == 610.0
    assert foresight.unhelped_seconds(None, 0.0) == 40.0


@pytest.mark.parametrize(
    ("own", "foreseen"),
    [
        (OwnGrowth(), 10 * 20),
        (OwnGrowth(-5.0 * MIB), 10 * 20),
        (OwnGrowth(10.0 * MIB), 10 * 5),  # all its own: until it has ended
        (OwnGrowth(4.0 * MIB), 6 * 20 + 4 * 5),
        (OwnGrowth(10.0 * MIB, 500 * MIB, leaks_seconds=130.0), 1300 - 500),
        (OwnGrowth(10.0 * MIB, 2000 * MIB, leaks_seconds=130.0), 10 * 5),  # what it gives back is enough
        (OwnGrowth(10.0 * MIB, None, leaks_seconds=130.0), 10 * 5),
    ],
)
def test_what_is_foreseen(own: OwnGrowth, foreseen: int) -> None:
    assert foreseen_bytes(1000 * MIB, 100.0, own, 20.0) == foreseen * MIB


def test_nothing_is_foreseen_of_no_growth() -> None:
    assert foreseen_bytes(1000 * MIB, None, OwnGrowth(), 20.0) == 0
    assert foreseen_bytes(-MIB, 0.0, OwnGrowth(), 20.0) == 0


@given(
    st.integers(-(1 << 34), 1 << 36),
    st.none() | st.just(0.0) | st.floats(0.01, 1e6),
    st.none() | st.floats(-1e10, 1e10),
    st.none() | st.integers(0, 1 << 36),
    st.floats(0, 1e4),
    st.sampled_from([0.0, 130.0]),
)
def test_it_is_never_more_than_all_of_the_growth_for_as_long(
    headroom: int, to_limit: float | None, own: float | None, grown: int | None, seconds: float, leaks: float
) -> None:
    found = foreseen_bytes(headroom, to_limit, OwnGrowth(own, grown, leaks), seconds)
    assert found >= 0
    rate = 0.0 if not to_limit else max(0, headroom) / to_limit
    assert found <= rate * max(seconds, leaks) * 1.001 + 1
