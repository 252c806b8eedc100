"""How seldom may be looked: only while nothing happens, never so seldom that a thrash or a limit is told late."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.tick_interval import (
    BLIND_SECONDS,
    CALM_SECONDS,
    FALL_BYTES,
    GROWTH_BYTES_PER_SECOND,
    Seen,
    TickInterval,
    first,
    step,
)
from moetuned.decide.window import MAX_GAP_SECONDS

GB = 1e9
CALM = Seen(busy=None, headroom_bytes=100 * GB, backends=True, triggered=True)


def after(seconds: float, seen: Seen = CALM, state: TickInterval | None = None, idle: float = 4.0) -> TickInterval:
    state = first(1.0) if state is None else state
    passed = 0.0
    while passed < seconds:
        passed += state.seconds
        state = step(state, seen, state.seconds, 1.0, idle)
    return state


def test_it_doubles_while_nothing_happens() -> None:
    assert after(CALM_SECONDS - 1).seconds == 1.0
    assert after(CALM_SECONDS).seconds == 2.0
    assert after(2 * CALM_SECONDS).seconds == 4.0
    assert after(1000).seconds == 4.0
    assert "nothing has happened" in after(1000).why


def test_anything_makes_it_short_at_once_and_calm_begins_again() -> None:
    slow = after(100)
    busy = step(slow, Seen("glm: decode", 100 * GB, backends=True, triggered=True), 4.0, 1.0, 4.0)
    assert (busy.seconds, busy.why) == (1.0, "glm: decode")
    assert step(busy, CALM, 1.0, 1.0, 4.0).seconds == 1.0


def test_memory_that_is_used_makes_it_short_before_the_limit_is_near() -> None:
    slow = after(100)
    fell = Seen(None, 100 * GB - 1.01 * FALL_BYTES, backends=True, triggered=True)
    assert step(slow, fell, 4.0, 1.0, 4.0).seconds == 1.0
    little = Seen(None, 100 * GB - 0.99 * FALL_BYTES, backends=True, triggered=True)
    assert step(slow, little, 4.0, 1.0, 4.0).seconds == 4.0


def test_little_headroom_is_looked_at_often() -> None:
    assert after(100, Seen(None, 3 * GB, backends=True, triggered=True)).seconds == 1.0
    some = after(100, Seen(None, 3.8 * GB, backends=True, triggered=True))
    assert some.seconds == 3.0
    assert some.why == "little headroom is left"


def test_without_a_trigger_a_thrash_is_seen_in_time_all_the_same() -> None:
    blind = after(100, Seen(None, 100 * GB, backends=True, triggered=False))
    assert (blind.seconds, blind.why) == (BLIND_SECONDS, "no PSI trigger would wake it within a second")


def test_with_no_backend_nothing_else_limits_it() -> None:
    assert after(100, Seen(None, None, backends=False, triggered=False)).seconds == 4.0


def test_unknown_headroom_of_a_backend_is_no_calm() -> None:
    assert after(100, Seen(None, None, backends=True, triggered=True)).seconds == 1.0


def test_an_idle_interval_that_is_not_longer_changes_nothing() -> None:
    assert after(100, idle=0.2).seconds == 1.0


SEEN = st.builds(
    Seen,
    busy=st.none() | st.just("busy"),
    headroom_bytes=st.none() | st.floats(-1e9, 1e12),
    backends=st.booleans(),
    triggered=st.booleans(),
)


@given(st.lists(st.tuples(SEEN, st.floats(0, 60)), max_size=40), st.floats(0.2, 4.0), st.floats(0.2, 4.0))
def test_never_shorter_nor_longer_than_it_may_be(looks: list[tuple[Seen, float]], interval: float, idle: float) -> None:
    state = first(interval)
    for seen, dt in looks:
        state = step(state, seen, dt, interval, idle)
        assert interval <= state.seconds <= max(interval, idle)
        assert state.seconds < MAX_GAP_SECONDS
        assert state.why
        if seen.busy is not None:
            assert state.seconds == interval
        if seen.backends and state.seconds > interval:
            assert seen.headroom_bytes is not None
            # At the next look there are still more than ten seconds to the limit.
            assert seen.headroom_bytes - GROWTH_BYTES_PER_SECOND * state.seconds >= 10 * GROWTH_BYTES_PER_SECOND
            assert seen.triggered or state.seconds <= BLIND_SECONDS


def test_what_cannot_wait_is_looked_at_at_once_and_no_later_than_configured() -> None:
    quick = Seen(busy=None, headroom_bytes=None, backends=True, triggered=False, quick="it is paused")
    assert step(first(1.0), quick, 1.0, 1.0, 4.0) == TickInterval(0.2, "it is paused")
    assert step(first(0.1), quick, 1.0, 0.1, 4.0).seconds == 0.1
