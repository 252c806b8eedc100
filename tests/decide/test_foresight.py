"""For how long a growth is believed, and what is foreseen of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide import foresight
from moetuned.decide.foresight import Growing, OwnGrowth, foreseen_bytes, foreseen_seconds, own_share

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
    ("growing", "waits", "restart", "seconds"),
    [
        (None, 0.0, 3.0, 6.0),  # it does not wait: as long again as it has lasted, twice
        (None, 6.0, 3.0, 6.0 + 8.0 + 3.0),
        (None, 6.0, 60.0, 6.0 + 2 * (3.0 + 6.0)),  # what it has lasted by then is too short for so long a load
        (None, 30.0, None, 30.0 + 8.0 + 30.0),
        (Growing(100.0, 130.0), 6.0, 3.0, 66.0),  # it has lasted for long already
        (Growing(100.0, 160.0), 30.0, 1.0, 126.0),
        (Growing(100.0, 160.0), 30.0, 160.0, 130.0),  # never beyond the next restart
    ],
)
def test_a_restart_that_waits_has_seen_the_growth_go_on(
    growing: Growing | None, waits: float, restart: float | None, seconds: float
) -> None:
    assert foreseen_seconds(growing, 130.0, 100.0 if growing is None else growing.last, waits, restart) == seconds


def test_it_waits_until_the_process_must_be_told_to_end() -> None:
    assert foresight.waiting_seconds(None, 30.0) == 0.0
    assert foresight.waiting_seconds(4.0, 30.0) == 0.0
    assert foresight.waiting_seconds(12.0, 30.0) == 7.0
    assert foresight.waiting_seconds(300.0, 30.0) == 30.0
    assert foresight.waiting_seconds(12.0, 0.0) == 0.0


@given(
    st.floats(0, 1e4), st.floats(0, 1e4), st.floats(0, 300), st.none() | st.floats(0, 1e4), st.floats(0, 1e3),
)  # fmt: skip
def test_waiting_longer_never_foresees_less(
    since: float, unhelped: float, waits: float, restart: float | None, more: float
) -> None:
    growing = Growing(0.0, since)
    plain = foreseen_seconds(growing, unhelped, since)
    waiting = foreseen_seconds(growing, unhelped, since, waits, restart)
    longer = foreseen_seconds(growing, unhelped, since, waits + more, restart)
    assert 0.0 <= plain <= waiting <= longer + 1e-9 <= unhelped + 1e-6


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


@pytest.mark.parametrize(
    ("own", "others", "growth", "is_own", "share"),
    [
        (0.0, 0.0, 2.5, True, 2.5),  # between two steps of its prompt cache
        (0.0, -3.0, 2.5, True, 2.5),
        (0.0, 1.0, 5.0, True, 4.0),  # noise
        (0.0, 2.0, 25.0, True, 23.0),
        (0.0, 3.0, 25.0, True, 0.0),
        (0.0, 20.0, 22.0, True, 0.0),  # a hog beside its prompt cache
        (5.0, 20.0, 20.0, True, 0.0),
        (5.0, 10.0, 25.0, True, 5.0),
        (0.0, 30.0, 20.0, True, 0.0),
        (0.0, None, 20.0, True, 0.0),  # whose it is is unknown
        (8.0, None, 20.0, True, 8.0),
        (30.0, None, 20.0, False, 20.0),
        (5.0, 10.0, 20.0, False, 5.0),  # nobody is known to the rest
        (15.0, 10.0, 20.0, False, 10.0),
        (0.0, 0.0, 20.0, False, 0.0),
        (None, 0.0, 20.0, True, None),
        (4.0, 3.0, None, True, 4.0),
    ],
)
def test_whose_growth_it_is(
    own: float | None, others: float | None, growth: float | None, is_own: bool, share: float | None
) -> None:
    given_to = [None if rate is None else rate * 1e6 for rate in (own, others, growth)]
    assert own_share(*given_to, is_own=is_own) == (None if share is None else share * 1e6)


RATES = st.none() | st.floats(-1e10, 1e10)


@given(RATES, RATES, st.floats(0, 1e10), st.booleans(), st.floats(0.0, 1e3))
def test_what_others_are_seen_to_take_is_foreseen_whoever_is_said_to_grow(
    own: float | None, others: float | None, growth: float, is_own: bool, seconds: float
) -> None:
    share = own_share(own, others, growth, is_own=is_own)
    assert share is None or share <= growth
    headroom = 1 << 34
    foreseen = foreseen_bytes(headroom, headroom / growth if growth > 1e-3 else None, OwnGrowth(share), seconds)
    if growth > 1e-3:
        assert foreseen >= (min(max(0.0, others or 0.0), growth) * seconds) * 0.999 - 1
    if is_own and own is not None and others is not None and others <= 0:
        assert share == growth, "nothing else is foreseen than until it has ended"
