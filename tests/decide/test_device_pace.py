"""A device against itself: slow only when nothing else can be the reason, and for long enough."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from moetuned.decide.device_pace import (
    HOLD_SECONDS,
    MOST_PACES,
    PaceState,
    PaceStep,
    comparable,
    remember,
    sentence,
    sequential,
    step,
)
from moetuned.schema.device import DeviceFacts, Pace
from moetuned.schema.signals import Signals
from moetuned.schema.verdict import Phase

MB = 1e6
BEST = (Pace(False, 128e3, 4.0, 1000 * MB),)


def signals(at: float, **changes: float | None) -> Signals:
    values: dict[str, float | None] = {
        "device_read_bytes_per_second": 100 * MB,
        "device_write_bytes_per_second": 0.0,
        "device_busy_ratio": 1.0,
        "device_queue_length": 4.0,
        "device_read_ios_per_second": 100 * MB / 128e3,
        "process_read_bytes_per_second": 100 * MB,
    }
    return Signals("glm", at, 1.0, {**values, **changes})


def run(
    seconds: int, phase: Phase = Phase.DECODE, best: tuple[Pace, ...] = BEST, **changes: float | None
) -> list[PaceStep]:
    state, steps = PaceState(), []
    for second in range(seconds):
        stepped = step(state, signals(float(second), **changes), phase, best)
        state = stepped.state
        steps.append(stepped)
    return steps


def slow_at(steps: list[PaceStep]) -> list[int]:
    return [number for number, one in enumerate(steps) if one.slow is not None]


def test_far_below_its_best_for_a_minute_is_slow_and_told_once() -> None:
    steps = run(300)
    assert slow_at(steps) == [int(HOLD_SECONDS) - 1]
    assert next(one.pace.bytes_per_second for one in steps if one.pace) == pytest.approx(100 * MB)
    assert steps[-1].state.told


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"device_busy_ratio": 0.4}, id="idle, or held back before the disk"),
        pytest.param({"device_read_bytes_per_second": 300 * MB}, id="somebody else reads"),
        pytest.param({"device_write_bytes_per_second": 300 * MB}, id="somebody writes"),
        pytest.param({"process_read_bytes_per_second": 900 * MB}, id="it does not read from these disks"),
        pytest.param({"device_queue_length": 1.0}, id="fewer requests at a time than then"),
        pytest.param({"device_read_ios_per_second": 100 * MB / 4e3}, id="smaller requests than then"),
        pytest.param({"device_read_bytes_per_second": 500 * MB, "process_read_bytes_per_second": 500 * MB}, id="well"),
        *(pytest.param({name: None}, id=f"{name} unknown") for name in signals(0).values),
    ],
)
def test_never_slow(changes: dict[str, float | None]) -> None:
    assert slow_at(run(300, **changes)) == []


@pytest.mark.parametrize("phase", [Phase.IDLE, Phase.UNKNOWN, Phase.ABSENT])
def test_never_slow_where_nobody_knows_how_it_reads(phase: Phase) -> None:
    assert slow_at(run(300, phase)) == []


def test_reading_in_order_is_no_measure_for_reading_here_and_there() -> None:
    in_order = (Pace(True, 128e3, 4.0, 1000 * MB),)
    assert slow_at(run(300, best=in_order)) == []
    assert slow_at(run(300, Phase.LOADING, best=BEST)) != [], "but what it gives here and there it must give in order"


def test_a_device_nobody_knows_is_never_slow_and_is_learned() -> None:
    steps = run(300, best=())
    assert slow_at(steps) == []
    assert sum(one.pace is not None for one in steps) == 60


def test_a_slow_minute_in_pieces_far_apart_is_none() -> None:
    state = PaceState()
    for start in range(0, 5000, 500):
        for second in range(20):
            stepped = step(state, signals(start + second), Phase.DECODE, BEST)
            assert stepped.slow is None
            state = stepped.state


def test_what_is_remembered_only_grows() -> None:
    slow, fast = Pace(False, 64e3, 2.0, 10 * MB), Pace(False, 64e3, 2.0, 50 * MB)
    assert remember((fast,), slow) == (fast,)
    assert remember((slow,), fast) == (fast,)
    other = msgspec.structs.replace(slow, queue_length=1.0)
    assert remember((fast,), other) == (fast, other)


PACES = st.builds(Pace, st.booleans(), st.floats(512, 4e6), st.floats(0.5, 300), st.floats(1, 1e10))


@example([Pace(False, 1575021.0, 2.0, 1.0), Pace(False, 1732523.0, 1.0, 1.0)], Pace(False, 1452140.0, 2.0, 1.0))
@given(st.lists(PACES, max_size=60), PACES)
def test_what_is_remembered_is_bounded_and_loses_no_expectation(seen: list[Pace], asked: Pace) -> None:
    """But that of requests a tenth smaller: what takes another's place may be as much larger than that, as it may be than what is asked."""
    larger = msgspec.structs.replace(
        asked, request_bytes=1.101 * asked.request_bytes, queue_length=1.101 * asked.queue_length
    )
    best: tuple[Pace, ...] = ()
    for number, pace in enumerate(seen):
        before = comparable(asked, best)
        best = remember(best, pace)
        assert len(best) <= MOST_PACES
        after = comparable(larger, best)
        if before is not None and number < MOST_PACES:
            assert after is not None
            assert after.bytes_per_second >= before.bytes_per_second or pace in best


@given(st.lists(st.tuples(st.sampled_from(Phase), st.floats(0, 1e10), st.floats(0, 1)), max_size=40))
def test_without_a_best_nothing_is_ever_slow(ticks: list[tuple[Phase, float, float]]) -> None:
    state = PaceState()
    for number, (phase, read, busy) in enumerate(ticks):
        changes = {
            "device_read_bytes_per_second": read,
            "process_read_bytes_per_second": read,
            "device_busy_ratio": busy,
        }
        stepped = step(state, signals(float(number), **changes), phase, ())
        assert stepped.slow is None
        state = stepped.state


def test_the_sentence() -> None:
    said = sentence([DeviceFacts("sda", "QVO")], Pace(False, 131072, 4, 12 * MB), BEST[0], 60)
    assert said.startswith("the disk under its model is slow: sda (QVO) gave 12 MB/s for 1 min")
    assert "1 % of the 1.0 GB/s seen before with requests as large (128 KiB)" in said
    assert "smartctl -a /dev/sda" in said


def test_the_most_that_was_seen_in_order() -> None:
    paces = (Pace(True, 1e5, 1, 5e8), Pace(False, 1e5, 1, 9e9), Pace(True, 1e6, 2, 7e8))
    assert sequential(paces) == 7e8
    assert sequential(paces[1:2]) is None
