"""Relief: the smallest restart, never twice in a cool-down, nothing on the unknown."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide import relief
from moetuned.decide.foresight import Growing
from moetuned.schema.action import RestartBackend
from moetuned.schema.relief import StepName
from moetuned.schema.snapshot import MemoryView
from moetuned.schema.verdict import MemoryState, Verdict

GIB = 1 << 30
FACTS = relief.ReliefFacts(
    supervised=True,
    context_changeable=True,
    prompt_cache_changeable=True,
    context_length=32768,
    minimum_context=2048,
    prompt_cache_mib=1024,
    kv_bytes_per_token=65536,
    ready=True,
)
SETTINGS = relief.ReliefSettings(
    act=True, at_most=2, at_most_seconds=3600, cool_down_seconds=120, target_headroom_bytes=GIB
)
MEMORY = MemoryView(scope="cgroup", limit_bytes=8 * GIB, unreclaimable_bytes=8 * GIB - 100, headroom_bytes=100 << 20)


def verdict(memory: MemoryState = MemoryState.NEAR_LIMIT) -> Verdict:
    return Verdict("glm", 0.0, memory=memory)


def restart_of(facts: relief.ReliefFacts, memory: MemoryView = MEMORY) -> RestartBackend | None:
    """What is restarted at once."""
    return relief.step(relief.ReliefState(), verdict(), memory, facts, SETTINGS, 0.0).restart


def test_frees_the_deficit_by_context_and_fits_the_prompt_cache() -> None:
    plan = restart_of(FACTS)
    assert plan is not None
    freed = (32768 - plan.context_length) * 65536
    assert freed >= GIB - MEMORY.headroom_bytes
    assert freed < GIB - MEMORY.headroom_bytes + 2 * 256 * 65536
    assert plan.context_length % 256 == 0
    assert plan.prompt_cache_mib is not None
    assert plan.prompt_cache_mib <= (MEMORY.headroom_bytes + freed) // 4 >> 20


def test_without_a_known_cost_the_context_is_halved() -> None:
    facts = msgspec.structs.replace(FACTS, kv_bytes_per_token=None, prompt_cache_mib=None)
    plan = restart_of(facts)
    assert plan is not None
    assert plan.context_length == 16384
    assert plan.frees_bytes is None


def test_a_restart_that_frees_next_to_nothing_is_not_made() -> None:
    facts = msgspec.structs.replace(FACTS, kv_bytes_per_token=100, prompt_cache_mib=None)
    decided = relief.step(relief.ReliefState(), verdict(), MEMORY, facts, SETTINGS, 0.0)
    assert decided.restart is None
    assert decided.exhausted is not None
    again = relief.step(decided.state, verdict(), MEMORY, facts, SETTINGS, 1.0)
    assert again.exhausted is None


def test_unknown_headroom_or_context_does_nothing() -> None:
    unknown = MemoryView()
    assert restart_of(FACTS, unknown) is None
    no_context = msgspec.structs.replace(FACTS, context_length=None)
    assert restart_of(no_context) is None
    assert relief.step(relief.ReliefState(), verdict(MemoryState.UNKNOWN), MEMORY, FACTS, SETTINGS, 0.0).restart is None


def test_observe_and_unsupervised_only_say() -> None:
    observe = msgspec.structs.replace(SETTINGS, act=False)
    decided = relief.step(relief.ReliefState(), verdict(), MEMORY, FACTS, observe, 0.0)
    assert decided.restart is None
    assert "32768" in decided.would_do[0]
    foreign = msgspec.structs.replace(FACTS, supervised=False)
    decided = relief.step(relief.ReliefState(), verdict(), MEMORY, foreign, SETTINGS, 0.0)
    assert decided.restart is None
    assert "does not supervise" in decided.would_do[0]


def test_budget_is_kept() -> None:
    state, restarts = relief.ReliefState(), 0
    exhausted = []
    for now in range(0, 3000, 1):
        decided = relief.step(state, verdict(), MEMORY, FACTS, SETTINGS, float(now))
        state = decided.state
        if decided.restart is not None:
            restarts += 1
            state = relief.restarted(state)
        if decided.exhausted:
            exhausted.append(decided.exhausted)
    assert restarts == SETTINGS.at_most
    assert len(exhausted) == 1


@given(
    st.lists(st.sampled_from(list(MemoryState)), min_size=1, max_size=200),
    st.integers(0, 9 * GIB),
    st.integers(1, 1 << 20),
    st.integers(256, 1 << 20),
)
def test_never_two_restarts_within_a_cool_down_nor_below_minimum(
    states: list[MemoryState], headroom: int, per_token: int, context: int
) -> None:
    facts = msgspec.structs.replace(FACTS, kv_bytes_per_token=per_token, context_length=context)
    memory = msgspec.structs.replace(MEMORY, headroom_bytes=headroom)
    state, times = relief.ReliefState(), []
    for second, memory_state in enumerate(states):
        now = second * 7.0
        decided = relief.step(state, verdict(memory_state), memory, facts, SETTINGS, now)
        state = decided.state
        if decided.restart is not None:
            assert memory_state in (MemoryState.NEAR_LIMIT, MemoryState.CRITICAL)
            assert decided.restart.context_length >= min(facts.minimum_context, context)
            times.append(now)
            state = relief.restarted(state)
    assert all(b - a >= SETTINGS.cool_down_seconds for a, b in itertools.pairwise(times))


def test_growth_of_others_is_counted_ahead_for_as_long_as_it_is_believed() -> None:
    growing = msgspec.structs.replace(MEMORY, headroom_bytes=2 * GIB, seconds_to_limit=20.0)
    state, freed = relief.ReliefState(), []
    for second in range(40):
        decided = relief.step(
            state, verdict(), growing, FACTS, msgspec.structs.replace(SETTINGS, act=False), float(second)
        )
        state = decided.state
        found = relief.ladder(state, "glm", growing, FACTS, SETTINGS, float(second))
        assert found is not None
        freed.append(found.missing_bytes)
    # 100 MiB a second, which has lasted for 3 to 42 seconds.
    assert freed[0] == 0
    assert freed[10] == pytest.approx(26 * 2 * GIB / 20 - GIB, abs=2)
    assert freed[39] == pytest.approx(84 * 2 * GIB / 20 - GIB, abs=2)
    gone = relief.rest(state, verdict(MemoryState.OK), MEMORY, 50.0)
    assert gone.state.growing is None


def test_growth_of_its_own_is_not_counted_beyond_its_end_unless_it_leaks() -> None:
    growing = msgspec.structs.replace(MEMORY, headroom_bytes=2 * GIB, seconds_to_limit=20.0)
    facts = msgspec.structs.replace(FACTS, own_growth_bytes_per_second=2 * GIB / 20, grown_bytes=GIB)
    found = relief.ladder(relief.ReliefState(), "glm", growing, facts, SETTINGS, 0.0)
    assert found is not None
    assert found.missing_bytes == 0
    leaking = msgspec.structs.replace(growing, growth_kind="leak")
    found = relief.ladder(relief.ReliefState(), "glm", leaking, facts, SETTINGS, 0.0)
    assert found is not None
    assert found.missing_bytes == pytest.approx(GIB - 2 * GIB + 130 * 2 * GIB / 20 - GIB, abs=2)


@pytest.mark.parametrize(
    ("kind", "seconds"), [("prompt_cache", 6.0), ("start", 6.0), ("outside", 46.0), ("leak", 46.0), (None, 46.0)]
)
def test_how_long_its_own_cache_has_grown_says_nothing_of_others(kind: str | None, seconds: float) -> None:
    growing = msgspec.structs.replace(MEMORY, headroom_bytes=2 * GIB, seconds_to_limit=20.0, growth_kind=kind)
    state = relief.ReliefState()
    for second in range(20):
        state = relief.rest(state, verdict(MemoryState.OK), growing, float(second)).state
    state = relief.rest(
        state, verdict(MemoryState.OK), msgspec.structs.replace(growing, growth_kind="outside"), 20.0
    ).state
    found = relief.ladder(state, "glm", growing, FACTS, SETTINGS, 20.0)
    assert found is not None
    assert found.missing_bytes == pytest.approx(max(0, GIB - 2 * GIB + seconds * 2 * GIB / 20), abs=2)


def test_what_others_take_while_a_restart_waits_ends_and_loads_is_missing_too() -> None:
    growing = msgspec.structs.replace(MEMORY, headroom_bytes=2 * GIB, seconds_to_limit=12.0, growth_kind="outside")
    facts = msgspec.structs.replace(FACTS, restart_seconds=4.0)
    for drain, held, seconds in ((0.0, False, 6.0), (30.0, False, 7.0 + 5.0 + 4.0 + 3.0), (30.0, True, 6.0)):
        settings = msgspec.structs.replace(SETTINGS, drain_seconds=drain)
        found = relief.ladder(
            relief.ReliefState(), "glm", growing, msgspec.structs.replace(facts, held=held), settings, 0.0
        )
        assert found is not None
        assert found.missing_bytes == pytest.approx(GIB - 2 * GIB + seconds * 2 * GIB / 12, abs=2)


def test_growth_alone_is_waited_out_until_the_limit_is_near() -> None:
    settings = msgspec.structs.replace(SETTINGS, near_headroom_bytes=GIB // 2)
    slow = msgspec.structs.replace(MEMORY, headroom_bytes=2 * GIB, seconds_to_limit=24.0)
    lasting = relief.ReliefState(growing=Growing(-20.0, 0.0))
    decided = relief.step(lasting, verdict(), slow, FACTS, settings, 0.0)
    assert decided.restart is None
    assert "goes on growing" in decided.would_do[0]
    soon = msgspec.structs.replace(slow, seconds_to_limit=10.0)
    assert relief.step(relief.ReliefState(), verdict(), soon, FACTS, settings, 0.0).restart is not None
    low = msgspec.structs.replace(slow, headroom_bytes=GIB // 4, seconds_to_limit=None)
    assert relief.step(relief.ReliefState(), verdict(), low, FACTS, settings, 0.0).restart is not None


JUDGED = msgspec.structs.replace(SETTINGS, settle_seconds=5.0, cool_down_seconds=10.0, at_most=10, looks=2)


def look(
    state: relief.ReliefState,
    now: float,
    facts: relief.ReliefFacts = FACTS,
    settings: relief.ReliefSettings = JUDGED,
    memory: MemoryView = MEMORY,
    said: MemoryState = MemoryState.NEAR_LIMIT,
) -> relief.Relief:
    return relief.step(state, verdict(said), memory, facts, settings, now)


LOOKED = relief.ReliefState(looks=1)
"""One look has seen it already."""


@pytest.mark.parametrize("said", [MemoryState.NEAR_LIMIT, MemoryState.CRITICAL])
def test_it_looks_again_first(said: MemoryState) -> None:
    first = look(relief.ReliefState(), 0.0, said=said)
    assert first.restart is None
    assert "if the next look says the same" in first.would_do[0]
    burst_is_over = look(first.state, 1.0, said=MemoryState.OK)
    assert look(burst_is_over.state, 2.0, said=said).restart is None
    assert look(first.state, 1.0, said=said).restart is not None


SQUEEZE = msgspec.structs.replace(MEMORY, seconds_to_limit=2.0, growth_kind="leak")
PAUSABLE = msgspec.structs.replace(FACTS, pausable=True)
DRAINS = msgspec.structs.replace(JUDGED, drain_seconds=30.0)


def test_in_a_squeeze_it_is_paused_for_the_second_look() -> None:
    first = look(relief.ReliefState(), 0.0, PAUSABLE, memory=SQUEEZE)
    assert first.pause
    assert first.restart is None
    assert "while it is paused" in first.would_do[0]
    second = look(first.state, 0.2, PAUSABLE, memory=SQUEEZE)
    assert not second.pause
    assert second.restart is not None


def test_that_it_does_not_grow_while_it_is_stopped_is_no_reason_to_wait() -> None:
    far = msgspec.structs.replace(DRAINS, near_headroom_bytes=50 << 20)
    first = look(relief.ReliefState(), 0.0, PAUSABLE, far, SQUEEZE)
    assert first.pause
    held = msgspec.structs.replace(FACTS, held=True)
    second = look(first.state, 0.2, held, far, MEMORY)
    assert second.restart is not None
    assert second.drain_seconds == 0, "it would grow on meanwhile"
    rises = msgspec.structs.replace(MEMORY, headroom_bytes=164 << 20)
    assert look(first.state, 0.2, held, far, rises).restart is None


def test_where_its_limit_comes_soon_it_has_less_time_to_end_by_itself() -> None:
    decided = look(relief.ReliefState(looks=1), 0.0, FACTS, memory=SQUEEZE)
    assert (decided.drain_seconds, decided.end_seconds) == (0.0, 1.0)
    assert look(relief.ReliefState(looks=1), 0.0, FACTS, memory=MEMORY).end_seconds is None


@pytest.mark.parametrize(
    ("facts", "memory"),
    [
        (FACTS, SQUEEZE),
        (PAUSABLE, msgspec.structs.replace(SQUEEZE, growth_kind="neighbour")),
        (PAUSABLE, msgspec.structs.replace(SQUEEZE, growth_kind="outside")),
    ],
)
def test_in_a_squeeze_that_a_pause_would_not_end_nothing_is_waited_for(
    facts: relief.ReliefFacts, memory: MemoryView
) -> None:
    decided = look(relief.ReliefState(), 0.0, facts, memory=memory, said=MemoryState.CRITICAL)
    assert (decided.pause, decided.restart is None) == (False, False)
    assert decided.drain_seconds == 0


@pytest.mark.parametrize(
    ("state", "settings"),
    [
        (relief.ReliefState(), msgspec.structs.replace(JUDGED, act=False)),
        (relief.ReliefState(restarted_at=(-5.0,)), JUDGED),
        (relief.ReliefState(restarted_at=(-90.0, -80.0)), msgspec.structs.replace(JUDGED, at_most=2)),
    ],
)
def test_nothing_is_paused_for_a_restart_that_would_not_be_made(
    state: relief.ReliefState, settings: relief.ReliefSettings
) -> None:
    decided = look(state, 0.0, PAUSABLE, settings, SQUEEZE)
    assert (decided.pause, decided.restart) == (False, None)


@pytest.mark.parametrize(
    ("said", "seconds_to_limit", "expected"),
    [
        (MemoryState.NEAR_LIMIT, None, 30.0),
        (MemoryState.NEAR_LIMIT, 20.0, 15.0),
        (MemoryState.NEAR_LIMIT, 300.0, 30.0),
        (MemoryState.NEAR_LIMIT, 4.0, 0.0),
        (MemoryState.CRITICAL, None, 0.0),
        (MemoryState.CRITICAL, 300.0, 0.0),
    ],
)
def test_how_long_a_restart_waits_for_requests(
    said: MemoryState, seconds_to_limit: float | None, expected: float
) -> None:
    memory = msgspec.structs.replace(MEMORY, seconds_to_limit=seconds_to_limit)
    decided = look(LOOKED, 0.0, settings=DRAINS, memory=memory, said=said)
    assert decided.restart is not None
    assert decided.drain_seconds == expected
    draining = msgspec.structs.replace(FACTS, draining=True, ready=False)
    again = look(decided.state, 1.0, draining, DRAINS, memory, said)
    assert (again.restart, again.call_off, again.drain_seconds) == (None, False, expected)


def test_it_is_called_off_when_memory_is_well_again_and_counts_for_nothing() -> None:
    decided = look(LOOKED, 0.0, settings=DRAINS)
    draining = msgspec.structs.replace(FACTS, draining=True, ready=False)
    unknown = look(decided.state, 1.0, draining, DRAINS, said=MemoryState.UNKNOWN)
    assert (unknown.call_off, unknown.drain_seconds) == (False, None)
    well = look(unknown.state, 2.0, draining, DRAINS, said=MemoryState.OK)
    assert well.call_off
    assert well.report is not None
    assert "called off" in well.report
    assert (well.state.restarted_at, well.state.restarting, well.state.trial) == ((), False, None)
    first = look(well.state, 3.0, settings=DRAINS)
    assert first.restart is None
    assert look(first.state, 4.0, settings=DRAINS).restart is not None


def test_a_restart_by_hand_that_waits_is_not_called_off_but_hastened() -> None:
    draining = msgspec.structs.replace(FACTS, draining=True, ready=False)
    assert not look(relief.ReliefState(), 0.0, draining, DRAINS, said=MemoryState.OK).call_off
    assert look(relief.ReliefState(), 0.0, draining, DRAINS, said=MemoryState.CRITICAL).drain_seconds == 0


def test_nothing_is_done_while_headroom_rises() -> None:
    state = look(relief.ReliefState(), 0.0).state
    better = msgspec.structs.replace(MEMORY, headroom_bytes=200 << 20)
    decided = look(state, 1.0, memory=better, said=MemoryState.CRITICAL)
    assert decided.restart is None
    assert "stops rising" in decided.would_do[0]
    assert look(decided.state, 2.0, memory=better).restart is not None


def test_what_needs_no_restart_is_done_first_alone_and_waited_for() -> None:
    facts = msgspec.structs.replace(FACTS, warming=True, locked_bytes=64 << 20)
    state = look(relief.ReliefState(), 0.0, facts).state
    own = look(state, 1.0, facts)
    assert own.own == (StepName.STOP_WARMING, StepName.RELEASE_PROTECTION)
    assert own.restart is None
    waits = look(own.state, 3.0)
    assert (waits.own, waits.restart) == ((), None)
    assert "stop warming and release protection" in waits.would_do[0]
    after = look(waits.state, 6.0)
    assert after.report is not None
    assert "did not move the numbers" in after.report
    assert after.restart is not None


def test_in_a_hurry_what_does_not_suffice_is_done_with_the_restart() -> None:
    facts = msgspec.structs.replace(FACTS, locked_bytes=64 << 20)
    decided = look(LOOKED, 0.0, facts, said=MemoryState.CRITICAL)
    assert decided.own == (StepName.RELEASE_PROTECTION,)
    assert decided.restart is not None
    enough = msgspec.structs.replace(facts, locked_bytes=4 << 30)
    decided = look(LOOKED, 0.0, enough, said=MemoryState.CRITICAL)
    assert (decided.own, decided.restart) == ((StepName.RELEASE_PROTECTION,), None)


def test_a_restart_that_moved_nothing_is_reported_and_not_repeated() -> None:
    facts = msgspec.structs.replace(FACTS, own_bytes=4 << 30)
    state = look(LOOKED, 0.0, facts, said=MemoryState.CRITICAL).state
    state = relief.restarted(state)
    restarts, reports, exhausted = 0, [], []
    for second in range(100, 160):
        decided = look(state, float(second), facts, said=MemoryState.CRITICAL)
        state = decided.state
        restarts += decided.restart is not None
        reports += [decided.report] if decided.report else []
        exhausted += [decided.exhausted] if decided.exhausted else []
    assert restarts == 0
    assert len(reports) == 1
    assert "did not move the numbers" in reports[0]
    assert len(exhausted) == 1
    well = look(state, 200.0, facts, said=MemoryState.OK).state
    assert well.useless == ()
    assert look(msgspec.structs.replace(well, looks=1), 300.0, facts, said=MemoryState.CRITICAL).restart is not None


def test_what_others_took_meanwhile_is_not_held_against_a_step() -> None:
    facts = msgspec.structs.replace(FACTS, own_bytes=4 << 30)
    state = relief.restarted(look(LOOKED, 0.0, facts, said=MemoryState.CRITICAL).state)
    smaller = msgspec.structs.replace(facts, own_bytes=3 << 30, context_length=16384)
    state = look(state, 100.0, smaller).state
    decided = look(state, 106.0, smaller)
    assert decided.report is not None
    assert "freed 1.0 GiB" in decided.report
    assert decided.restart is not None


moments = st.tuples(
    st.sampled_from([*MemoryState, MemoryState.NEAR_LIMIT, MemoryState.CRITICAL]),
    st.integers(-GIB, 4 * GIB),
    st.none() | st.floats(0.1, 100),
    st.booleans(),
    st.floats(0.2, 30),
    st.sampled_from(["ends", "drains"]),
)


@given(
    st.lists(moments, max_size=120),
    st.sets(st.sampled_from(list(StepName))),
    st.booleans(),
    st.booleans(),
    st.integers(256, 1 << 17),
)
def test_whatever_memory_does(
    seen: list[tuple[MemoryState, int, float | None, bool, float, str]],
    allowed: set[StepName],
    act: bool,
    supervised: bool,
    context: int,
) -> None:
    settings = msgspec.structs.replace(DRAINS, steps=tuple(allowed), act=act, at_most=3, cool_down_seconds=60.0)
    state, now, restarts, open_exhausted = relief.ReliefState(), 0.0, [], False
    draining: int | None = None
    for memory_state, headroom, seconds, is_ready, passes, then in seen:
        now += passes
        ready = is_ready and draining is None
        facts = msgspec.structs.replace(
            FACTS, supervised=supervised, ready=ready, context_length=context, locked_bytes=32 << 20, own_bytes=4 << 30,
            draining=draining is not None, pausable=is_ready,
        )  # fmt: skip
        memory = msgspec.structs.replace(MEMORY, headroom_bytes=headroom, seconds_to_limit=seconds)
        decided = relief.step(state, verdict(memory_state), memory, facts, settings, now)
        acts = decided.restart is not None or decided.own != ()
        assert not decided.pause or (act and supervised and decided.restart is None)
        if draining is not None:
            assert not acts
            assert decided.call_off == (memory_state is MemoryState.OK)
            if decided.call_off:
                restarts.pop()
                context = draining
                draining = None
            elif decided.drain_seconds == 0 or then == "ends":
                draining = None
                decided = msgspec.structs.replace(decided, state=relief.restarted(decided.state))
        assert not acts or (ready and memory_state in (MemoryState.NEAR_LIMIT, MemoryState.CRITICAL))
        assert set(decided.own) <= allowed - set(state.useless)
        if memory_state is MemoryState.OK:
            open_exhausted = False
        if decided.restart is not None:
            assert act
            assert supervised
            assert decided.restart.context_length >= min(facts.minimum_context, context)
            assert set(decided.restart.steps) <= allowed - set(decided.state.useless)
            restarts.append(now)
            assert decided.drain_seconds is not None
            before, context, open_exhausted = context, decided.restart.context_length, False
            if decided.drain_seconds == 0 or then == "ends":
                decided = msgspec.structs.replace(decided, state=relief.restarted(decided.state))
            else:
                draining = before
        if decided.exhausted is not None:
            assert not open_exhausted
            open_exhausted = True
        state = decided.state
    assert all(b - a >= settings.cool_down_seconds for a, b in itertools.pairwise(restarts))
    for at in restarts:
        assert sum(at - settings.at_most_seconds < one <= at for one in restarts) <= settings.at_most


def test_one_that_could_not_start_again_is_not_restarted_and_that_uses_nothing_up() -> None:
    gone = msgspec.structs.replace(FACTS, obstacle="its model /m.gguf is not there")
    state = look(relief.ReliefState(), 0.0, gone).state
    decided = look(state, 1.0, gone)
    assert (decided.restart, decided.exhausted, decided.state.restarted_at) == (None, None, ())
    assert decided.would_do[0].endswith(", once it could start again: its model /m.gguf is not there")
    assert look(decided.state, 2.0).restart is not None


def test_one_behind_another_waits_for_what_that_frees() -> None:
    behind = msgspec.structs.replace(FACTS, behind="qwen")
    state = look(relief.ReliefState(), 0.0, behind).state
    decided = look(state, 1.0, behind)
    assert decided.restart is None
    assert "if the restart of qwen is not enough" in decided.would_do[0]
    assert look(decided.state, 2.0).restart is not None


def test_nothing_left_is_no_alarm_while_memory_only_grows() -> None:
    fixed = msgspec.structs.replace(FACTS, context_changeable=False, prompt_cache_changeable=False)
    settings = msgspec.structs.replace(JUDGED, near_headroom_bytes=512 << 20)
    ample = msgspec.structs.replace(MEMORY, headroom_bytes=600 << 20, seconds_to_limit=10.0)
    state = look(relief.ReliefState(), 0.0, fixed, settings, ample).state
    assert look(state, 1.0, fixed, settings, ample).exhausted is None
    assert look(state, 1.0, fixed, settings, ample, MemoryState.CRITICAL).exhausted is not None
    short = msgspec.structs.replace(ample, headroom_bytes=400 << 20)
    assert look(state, 1.0, fixed, settings, short).exhausted is not None
