from __future__ import annotations

import msgspec
import pytest
from detector_scenes import AMPLIFIED, MB, QUIET, ROOMY, SQUEEZED, Walk, backend, signals_at

from moetuned.decide.detector_memory import MemoryAxis, shown, step_memory
from moetuned.decide.detector_settings import DetectorSettings
from moetuned.schema.sample import BackendSample, CgroupMemory
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


def test_recovered_says_what_it_means() -> None:
    walk = Walk()
    walk.go(3, room(0.05))
    walk.go(4, room(0.5))
    message = walk.go(1, room(0.5)).begun[0].message
    assert message.startswith(
        "memory is enough again: of 954 MiB that it may use, 477 MiB (50 %) are free or page cache"
    )
    assert "near its limit only below 76.3 MiB" in message


def limited(limit: int) -> BackendSample:
    memory = CgroupMemory(2, current_bytes=limit, limit_bytes=limit)
    return msgspec.structs.replace(backend(), cgroup=memory, cgroup_directory="/sys/fs/cgroup/llama.service")


LOWERED = "its limit was lowered from 60.0 MiB to 25.0 MiB"


def test_a_limit_of_its_own_that_was_lowered_is_named_and_no_growth_from_outside() -> None:
    walk = Walk()
    walk.go(5, ROOMY, limited(60 << 20))
    fills = {
        "anonymous_growth_bytes_per_second": 0.0,
        "others_growth_bytes_per_second": 0.0,
        "growth_to_limit_bytes_per_second": 8.5 * MB,
        "seconds_to_limit": 3.0,
    }
    walk.go(2, {**room(0.05), **fills}, limited(25 << 20))
    assert walk.last is not None
    texts = " ".join(reason.text for reason in walk.last.verdict.reasons)
    assert LOWERED in texts
    assert "outside" not in texts
    assert walk.names() == ["memory_near_limit"]


def test_the_message_of_the_alarm_names_it() -> None:
    walk = Walk()
    walk.go(5, ROOMY, limited(60 << 20))
    begun = walk.go(1, room(0.05), limited(25 << 20)).begun
    assert LOWERED in begun[0].message
    assert "raise the limit again" in begun[0].message


def test_a_thrash_names_it_whatever_the_cost_is_and_without_any_growth() -> None:
    for scene in (SQUEEZED, AMPLIFIED):
        walk = Walk()
        walk.go(5, {**QUIET, **ROOMY}, limited(60 << 20))
        walk.go(2, {**scene, **ROOMY}, limited(25 << 20))
        begun = walk.go(1, {**scene, **ROOMY}, limited(25 << 20)).begun
        assert begun[0].message.endswith(f"what took it: {LOWERED}")
