from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.signals import signal_units
from moetuned.decide.window import MAX_GAP_SECONDS
from moetuned.schema.history import HISTORY_SECONDS, HISTORY_STEP_SECONDS, Histories
from moetuned.schema.verdict import MemoryState, Paging, Phase, Verdict
from moetuned.state.history import HISTORY_SIGNALS, LONGEST_GAP_SECONDS, History

READS, TOKENS = "process_read_bytes_per_second", "tokens_per_second"
DECODES = Verdict("glm", 0.0, Phase.DECODE, Paging.THRASHING, MemoryState.OK)


STEP, STEPS = HISTORY_STEP_SECONDS, HISTORY_SECONDS // HISTORY_STEP_SECONDS


def record(
    history: History, at: float, reads: float | None, verdict: Verdict | None = DECODES, name: str = "glm"
) -> None:
    history.record(at, {name: ({READS: reads}, verdict)})


def reads(history: History, seconds: int = HISTORY_SECONDS) -> tuple[float | None, ...]:
    (only,) = history.told(seconds).backends
    return only.signals[READS]


def test_a_value_a_step() -> None:
    history = History()
    for second in range(20):
        record(history, 100.3 + second, second * 1e6)
    assert reads(history) == tuple(second * 1e6 for second in range(0, 20, STEP))
    told = history.told()
    assert (told.at_seconds, told.step_seconds) == (118, STEP)
    assert history.last_seconds == 118.3
    (only,) = told.backends
    assert only.backend == "glm"
    assert only.phase == (Phase.DECODE,) * 10
    assert only.paging == (Paging.THRASHING,) * 10
    assert only.memory == (MemoryState.OK,) * 10
    assert only.signals[TOKENS] == (None,) * 10
    assert set(only.signals) == set(HISTORY_SIGNALS)


def test_every_signal_of_it_is_one() -> None:
    assert set(HISTORY_SIGNALS) <= set(signal_units())
    assert LONGEST_GAP_SECONDS == MAX_GAP_SECONDS


def test_before_the_first_look_there_is_nothing() -> None:
    assert History().told() == Histories()
    assert History().last_seconds is None


def test_a_value_stands_for_the_time_since_the_look_before() -> None:
    history = History()
    record(history, 101, 1.0)
    record(history, 105.9, 2.0)
    assert reads(history) == (1.0, 2.0, 2.0)


@pytest.mark.parametrize("gap", [6, 30, 590])
def test_a_long_gap_is_unknown(gap: int) -> None:
    history = History()
    record(history, 100, 1.0)
    record(history, 100 + gap, 2.0)
    assert reads(history) == (1.0, *(None,) * (gap // STEP - 1), 2.0)
    (only,) = history.told().backends
    assert only.phase[1:-1] == (None,) * (gap // STEP - 1)


def test_a_gap_longer_than_all_that_is_kept_forgets_everything() -> None:
    history = History()
    for second in range(700):
        record(history, second, 1.0)
    record(history, 5000, 2.0)
    assert reads(history) == (*(None,) * (STEPS - 1), 2.0)


def test_signals_are_asked_for_once_a_step_and_time_does_not_go_back() -> None:
    class Asked(dict[str, float]):
        count = 0

        def get(self, name: str, default: float | None = None) -> float | None:  # type: ignore[override]
            Asked.count += 1
            return super().get(name, default)

    history = History()
    for at in (100.0, 100.2, 101.9, 99.0, 5.0):
        history.record(at, {"glm": (Asked({READS: at}), DECODES)})
    assert Asked.count == len(HISTORY_SIGNALS)
    assert reads(history) == (100.0,)
    assert history.last_seconds == 100.0


def test_only_ten_minutes_are_kept_and_as_much_as_is_asked_for_is_told() -> None:
    history = History()
    for second in range(2000):
        record(history, second, float(second))
    assert reads(history) == tuple(float(second) for second in range(1400, 2000, STEP))
    assert reads(history, 3) == reads(history, 4) == (1996.0, 1998.0)
    assert reads(history, 1) == reads(history, 2) == (1998.0,)


def test_a_backend_that_comes_later_is_unknown_before_and_one_that_is_gone_is_forgotten() -> None:
    history = History()
    record(history, 100, 1.0)
    history.record(104, {"glm": ({READS: 2.0}, DECODES), "other": ({READS: 5.0}, None)})
    first, second = history.told().backends
    assert (first.backend, first.signals[READS]) == ("glm", (1.0, 2.0, 2.0))
    assert (second.backend, second.signals[READS]) == ("other", (None, None, 5.0))
    assert second.phase == (None, None, None)
    assert [one.backend for one in history.told(backend="other").backends] == ["other"]
    assert history.told(backend="nobody").backends == ()
    history.record(106, {"other": ({}, None)})
    assert [one.backend for one in history.told().backends] == ["other"]
    history.record(108, {})
    assert (history.told().backends, history.size_bytes) == ((), 0)


def test_two_backends_stay_small() -> None:
    history = History()
    for second in range(3 * HISTORY_SECONDS):
        history.record(second, {name: (dict.fromkeys(HISTORY_SIGNALS, 1e9), DECODES) for name in ("glm", "other")})
    assert history.size_bytes == 2 * STEPS * (8 * len(HISTORY_SIGNALS) + 3)
    assert history.size_bytes < 200 << 10


def test_what_is_no_number_is_unknown_in_the_answer() -> None:
    history = History()
    for number, value in enumerate((math.nan, math.inf, -math.inf, 0.9, -5.0)):
        record(history, STEP * number, value)
    decoded = msgspec.json.decode(msgspec.json.encode(history.told()), type=Histories)
    assert decoded.backends[0].signals[READS] == (None, None, None, 0.9, -5.0)


def test_numbers_are_kept_as_precisely_as_they_are_shown() -> None:
    history = History()
    for number, value in enumerate((0.12345, 6.06251, 457123456.789, 999.9999, -2000.5)):
        record(history, STEP * number, value)
    assert reads(history) == (0.123, 6.063, 457123457.0, 1000.0, -2000.0)


@given(
    st.lists(
        st.tuples(
            st.floats(0, 900),
            st.dictionaries(
                st.sampled_from("abc"),
                st.none() | st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=0),
            ),
        ),
        max_size=40,
    ),
    st.integers(1, HISTORY_SECONDS),
)
def test_whatever_comes_the_answer_is_whole_and_bounded(looks, seconds) -> None:
    history = History()
    at, kept, shown = 0.0, -1, {}
    for gap, values in looks:
        at += gap
        history.record(at, {name: ({READS: value}, DECODES) for name, value in values.items()})
        if at // STEP > kept:
            kept, shown = at // STEP, values
        told = history.told(seconds)
        assert told.at_seconds == kept * STEP
        assert {one.backend for one in told.backends} == set(shown)
        for one in told.backends:
            lengths = {len(series) for series in (*one.signals.values(), one.phase, one.paging, one.memory)}
            assert len(lengths) == 1
            assert lengths.pop() <= (seconds + 1) // STEP
            expected = shown[one.backend]
            assert one.signals[READS][-1] == (
                None if expected is None else pytest.approx(expected, rel=0.001, abs=0.001)
            )
