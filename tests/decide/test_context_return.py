"""Giving back what relief took: only what surely fits, only when nobody uses the backend, never again after it led to relief."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moetuned.decide import context_return
from moetuned.decide.context_return import ReturnFacts, ReturnSettings, ReturnState, changes, largest, step
from moetuned.decide.supervision import LaunchPlan
from moetuned.schema.verdict import MemoryState

MIB, GIB = 1 << 20, 1 << 30
WANTED = LaunchPlan(32768, 1024, 4, 8, "f16")
TAKEN = LaunchPlan(8192, 64, 1, 2, "q8_0")


def cost(plan: LaunchPlan) -> int:
    per_token = 64 << 10 if plan.cache_type == "f16" else 34 << 10
    return (
        plan.context_length * per_token
        + (plan.prompt_cache_mib or 0) * MIB
        + (plan.checkpoints or 0) * (plan.slots or 1) * 10 * MIB
    )


FACTS = ReturnFacts(
    memory=MemoryState.OK, headroom_bytes=8 * GIB, idle=True, against=None, now=TAKEN, wanted=WANTED, cost=cost, cache_left_bytes=0,
)  # fmt: skip
SETTINGS = ReturnSettings(allowed=True, target_headroom_bytes=GIB, margin_bytes=GIB // 2)


def run(
    facts: ReturnFacts = FACTS, *, seconds: int = 700, state: ReturnState | None = None, begins: int = 0
) -> context_return.Return:
    """Look once a second until something is given back."""
    found = context_return.Return(state or ReturnState())
    for second in range(begins, begins + seconds):
        found = step(found.state, facts, SETTINGS, float(second))
        if found.plan is not None:
            break
    return found


def with_headroom(headroom: int) -> ReturnFacts:
    return msgspec.structs.replace(FACTS, headroom_bytes=headroom)


def test_all_of_it_at_once_where_that_surely_fits() -> None:
    found = run()
    assert found.plan == WANTED
    assert changes(TAKEN, WANTED) == (
        "context 8192 -> 32768",
        "KV cache q8_0 -> f16",
        "slots 1 -> 4",
        "context checkpoints 2 -> 8 a slot",
        "prompt cache 64 -> 1024 MiB",
    )


def test_not_before_memory_was_well_for_ten_minutes_and_it_was_idle_for_five() -> None:
    busy = msgspec.structs.replace(FACTS, idle=False)
    found = run(busy, seconds=360)
    assert found.text is not None
    assert found.text.startswith("would give back context 8192 -> 32768 and ")
    assert "when memory has been well for 4 min 1 s more and when it has been idle for 5 min" in found.text
    found = run(busy, seconds=900, state=found.state, begins=360)
    assert found.plan is None
    waits = run(seconds=60, state=found.state, begins=1260)
    assert waits.text is not None
    assert waits.text.endswith("when it has been idle for 4 min 1 s more")
    assert run(seconds=302, state=waits.state, begins=1320).plan == WANTED


def test_the_context_comes_first_and_the_rest_only_after_all_of_it() -> None:
    room = int(1.5 * GIB)  # beyond it: a gibibyte for 30720 tokens at 34 KiB
    found = run(with_headroom(room + 10000 * (34 << 10)))
    assert found.plan is not None
    assert (found.plan.context_length, found.plan.cache_type, found.plan.slots) == (
        8192 + 10000 // 256 * 256,
        "q8_0",
        1,
    )
    just = run(with_headroom(room + 24576 * (34 << 10)))
    assert just.plan == msgspec.structs.replace(TAKEN, context_length=32768)
    more = run(with_headroom(room + cost(msgspec.structs.replace(WANTED, prompt_cache_mib=256)) - cost(TAKEN)))
    assert more.plan == msgspec.structs.replace(WANTED, prompt_cache_mib=256)


def test_what_would_change_little_is_not_worth_a_restart() -> None:
    found = run(with_headroom(int(1.5 * GIB) + 2000 * (34 << 10)))
    assert found.plan is None
    assert found.text is not None
    assert "when more memory is free" in found.text


def test_the_least_headroom_of_the_last_ten_minutes_counts() -> None:
    state = run(seconds=100).state
    state = step(state, with_headroom(GIB), SETTINGS, 100.0).state
    assert run(state=state, seconds=590, begins=101).plan is None
    assert run(state=state, seconds=800, begins=101).plan == WANTED


def test_what_its_caches_may_still_take_counts() -> None:
    assert run(msgspec.structs.replace(FACTS, cache_left_bytes=7 * GIB)).plan is None
    found = run(msgspec.structs.replace(FACTS, cache_left_bytes=None))
    assert (found.plan, found.text is not None and "not known" in found.text) == (None, True)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"idle": None}, "when it is known to be idle"),
        ({"against": "its model is warm"}, "once its model is warm"),
        ({"memory": MemoryState.UNKNOWN}, "memory is unknown"),
        ({"headroom_bytes": None}, "the headroom is not known"),
        ({"cost": lambda _plan: None}, "what it would cost is not known"),
    ],
)
def test_what_is_unknown_or_speaks_against_it_starts_nothing(changed: dict, said: str) -> None:
    found = run(msgspec.structs.replace(FACTS, **changed))
    assert found.plan is None
    assert said in (found.text or "")


def test_nothing_is_said_where_nothing_was_taken_or_it_is_switched_off() -> None:
    assert run(msgspec.structs.replace(FACTS, now=WANTED)).text is None
    off = msgspec.structs.replace(SETTINGS, allowed=False)
    assert step(run(seconds=599).state, FACTS, off, 700.0).text is None


def test_never_twice_in_an_hour() -> None:
    state = context_return.returned(0.0)
    found = run(state=state, seconds=1200)
    assert (found.plan, "an hour after the last return" in (found.text or "")) == (None, True)
    assert run(state=found.state, seconds=2600, begins=1200).plan == WANTED


def test_never_again_after_it_led_to_relief_until_a_person_wants_it() -> None:
    near = msgspec.structs.replace(FACTS, memory=MemoryState.NEAR_LIMIT)
    state = step(context_return.returned(0.0), near, SETTINGS, 1500.0).state
    assert state.blocked is not None
    found = run(state=state, seconds=9000, begins=1501)
    assert found.plan is None
    assert "does not give back context" in (found.text or "")
    assert "neared its limit 25 min after" in (found.text or "")
    assert run(state=context_return.allowed(found.state), begins=10501).plan == WANTED
    late = step(context_return.returned(0.0), near, SETTINGS, 4000.0).state
    assert late.blocked is None


looks = st.tuples(
    st.sampled_from([*MemoryState, MemoryState.OK, MemoryState.OK, MemoryState.OK]),
    st.none() | st.integers(0, 12 * GIB),
    st.sampled_from([True, True, True, False, None]),
    st.integers(1, 2000),
)


@settings(deadline=None)
@given(st.lists(looks, max_size=60))
def test_whatever_happens(seen: list[tuple[MemoryState, int | None, bool | None, int]]) -> None:
    state, now, plan, times = ReturnState(), 0.0, TAKEN, []
    for memory, headroom, idle, passes in seen:
        for _ in range(4):
            now += passes / 4
            facts = msgspec.structs.replace(FACTS, memory=memory, headroom_bytes=headroom, idle=idle, now=plan)
            found = step(state, facts, SETTINGS, now)
            state = found.state
            if memory in (MemoryState.NEAR_LIMIT, MemoryState.CRITICAL) and times and now - times[-1] <= 3600:
                assert state.blocked is not None
            if found.plan is None:
                continue
            assert memory is MemoryState.OK
            assert idle
            assert state.blocked is None
            assert headroom is not None
            assert cost(found.plan) - cost(plan) <= headroom - SETTINGS.target_headroom_bytes - SETTINGS.margin_bytes
            assert found.plan.context_length >= plan.context_length
            times.append(now)
            state, plan = context_return.returned(now), found.plan
    assert all(later - earlier >= 3600 for earlier, later in itertools.pairwise(times))


@given(
    st.integers(256, 1 << 20), st.integers(256, 1 << 20), st.integers(-GIB, 64 * GIB), st.none() | st.integers(0, 4096), st.integers(0, 4096)
)  # fmt: skip
def test_the_largest_that_fits(now: int, wanted: int, room: int, cache: int | None, more_cache: int) -> None:
    has, wants = LaunchPlan(now, cache, 1, 2, "f16"), LaunchPlan(wanted, more_cache, 4, 8, "f16")
    facts = msgspec.structs.replace(FACTS, now=has, wanted=wants)
    found = largest(facts, room)
    if found is None:
        return
    assert changes(has, found)
    assert cost(found) - cost(has) <= room
    assert has.context_length <= found.context_length <= max(now, wanted)
    longer = msgspec.structs.replace(found, context_length=found.context_length + 256)
    assert found.context_length >= wanted or cost(longer) - cost(has) > room - 256 * (64 << 10)
