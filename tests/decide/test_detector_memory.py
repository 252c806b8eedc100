from __future__ import annotations

import pytest
from detector_scenes import MB, ROOMY, Walk, backend, signals_at

from moetuned.decide.detector_memory import MemoryAxis, shown, step_memory
from moetuned.decide.detector_settings import DetectorSettings
from moetuned.schema.verdict import MemoryState, Phase


def room(ratio: float, **more: float) -> dict[str, float | None]:
    return {"headroom_bytes": ratio * 1000 * MB, "headroom_ratio": ratio, **more}


def test_unknown_headroom_is_unknown() -> None:
    stepped = step_memory(MemoryAxis(), signals_at(1.0, {}), Phase.IDLE, DetectorSettings())
    assert shown(stepped.axis) is MemoryState.UNKNOWN
    assert stepped.begun == ()


def test_an_alarm_stays_open_while_headroom_cannot_be_read() -> None:
    walk = Walk()
    walk.go(3, room(0.05))
    assert walk.go(5, {}).verdict.memory is MemoryState.UNKNOWN
    assert walk.go(5, room(0.05)).verdict.memory is MemoryState.NEAR_LIMIT
    walk.go(5, {})
    walk.go(8, room(0.9))
    assert walk.names() == ["memory_near_limit", "memory_recovered"]


def test_near_by_level_after_its_hold_time_and_recovered_with_hysteresis() -> None:
    walk = Walk(settings=DetectorSettings(memory_hold_seconds=2.0))
    walk.go(5, ROOMY)
    assert walk.go(1, room(0.07)).verdict.memory is MemoryState.OK
    assert walk.go(1, room(0.07)).verdict.memory is MemoryState.NEAR_LIMIT
    assert walk.go(20, room(0.09)).verdict.memory is MemoryState.NEAR_LIMIT, "8 % begins it, 10 % ends it"
    walk.go(4, room(0.5))
    assert walk.names() == ["memory_near_limit"]
    assert walk.go(1, room(0.5)).verdict.memory is MemoryState.OK
    assert walk.names() == ["memory_near_limit", "memory_recovered"]


def test_critical_is_no_second_event_and_eases_to_near() -> None:
    walk = Walk()
    assert walk.go(2, room(0.07)).verdict.memory is MemoryState.NEAR_LIMIT
    assert walk.go(2, room(0.02, oom_room_bytes=20 * MB)).verdict.memory is MemoryState.CRITICAL
    assert walk.go(2, room(0.07)).verdict.memory is MemoryState.NEAR_LIMIT
    assert walk.names() == ["memory_near_limit"]


def test_with_swap_left_it_is_near_but_not_critical() -> None:
    walk = Walk()
    assert walk.go(5, room(0.0001, oom_room_bytes=900 * MB)).verdict.memory is MemoryState.NEAR_LIMIT


def test_near_by_trend_long_before_the_level() -> None:
    walk = Walk()
    walk.go(6, room(0.6))
    stepped = walk.go(2, room(0.35, seconds_to_limit=20.0))
    assert walk.names() == ["memory_near_limit"]
    assert "at its limit in 20 s" in next(reason.text for reason in stepped.verdict.reasons if reason.axis == "memory")


@pytest.mark.parametrize("values", [room(0.6, seconds_to_limit=20.0), room(0.35, seconds_to_limit=60.0)])
def test_growth_with_much_room_or_much_time_is_no_reason(values: dict[str, float | None]) -> None:
    walk = Walk()
    walk.go(20, values)
    assert walk.names() == []


def test_what_it_copies_while_it_loads_is_a_trend() -> None:
    """The forecast tells of loading only what it copies and has no room for."""
    walk = Walk()
    walk.go(20, room(0.35), backend(None, "loading"))
    assert walk.names() == []
    walk.go(1, room(0.35, seconds_to_limit=5.0), backend(None, "loading"))
    assert walk.names() == ["memory_near_limit"]


def test_a_growth_that_wavers_about_the_limit_is_one_alarm() -> None:
    walk = Walk()
    walk.go(6, room(0.6))
    for seconds in (24.0, 41.0, 40.0, 39.0, 38.0, 37.0, 36.0, 30.0, 24.0):
        walk.go(1, room(0.4, seconds_to_limit=seconds))
    assert walk.names() == ["memory_near_limit"]
    walk.go(6, room(0.4, seconds_to_limit=60.0))
    assert walk.names() == ["memory_near_limit", "memory_recovered"]


def test_what_it_allocated_while_it_loaded_is_no_trend_afterwards() -> None:
    walk = Walk()
    walk.go(4, room(0.6), backend(None, "loading"))
    walk.go(5, room(0.35, seconds_to_limit=5.0))
    assert walk.names() == []
    walk.go(3, room(0.3, seconds_to_limit=5.0))
    assert walk.names() == ["memory_near_limit"]


def test_nothing_begins_while_it_already_gets_better() -> None:
    axis = MemoryAxis(memory=MemoryState.OK, since=0.0, near_seconds=5.0, headroom_bytes=40 * MB)
    rising = step_memory(axis, signals_at(1.0, room(0.06)), Phase.IDLE, DetectorSettings())
    falling = step_memory(axis, signals_at(1.0, room(0.035)), Phase.IDLE, DetectorSettings())
    assert (rising.axis.memory, rising.begun) == (MemoryState.OK, ())
    assert falling.axis.memory is MemoryState.NEAR_LIMIT


def test_limits_given_in_bytes_go_before_ratios() -> None:
    walk = Walk(settings=DetectorSettings(near_headroom_bytes=int(300 * MB), critical_headroom_bytes=int(100 * MB)))
    assert walk.go(3, room(0.25)).verdict.memory is MemoryState.NEAR_LIMIT
    assert walk.go(3, room(0.05)).verdict.memory is MemoryState.CRITICAL
