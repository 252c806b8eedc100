from __future__ import annotations

import pytest
from detector_scenes import (
    AMPLIFIED,
    DECODE,
    FACTS,
    FILLING,
    GONE,
    IDLE,
    PREFILL,
    QUIET,
    ROOMY,
    SQUEEZED,
    STREAMING,
    Walk,
    backend,
    signals_at,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from moetuned.decide.detector import DetectorSettings, initial, step
from moetuned.decide.detector_paging import MAX_BESTS
from moetuned.decide.facts import BackendFacts
from moetuned.decide.paging_evidence import Best
from moetuned.decide.signals import signal_functions
from moetuned.schema.event import EventName
from moetuned.schema.sample import BackendSample
from moetuned.schema.verdict import MemoryState, Paging, Phase


def test_the_first_tick_knows_nothing_and_begins_nothing() -> None:
    stepped = step(
        initial("one"), signals_at(5.0, {}, dt=None), BackendSample("one"), BackendFacts(), DetectorSettings()
    )
    verdict = stepped.verdict
    assert (verdict.phase, verdict.paging, verdict.memory) == (Phase.UNKNOWN, Paging.UNKNOWN, MemoryState.UNKNOWN)
    assert stepped.begun == ()
    assert {reason.axis for reason in verdict.reasons} == {"phase", "paging", "memory"}


def test_a_thrash_that_is_found_under_way_is_known_by_the_best_of_before() -> None:
    forgetful, remembering = Walk(), Walk()
    remembering.state = initial("one", best=(Best(1, 100.0, 0.0, 0.0),))
    assert forgetful.go(60, STREAMING).verdict.paging is Paging.STREAMING
    assert remembering.go(10, STREAMING).verdict.paging is Paging.THRASHING
    assert remembering.names() == ["thrash_begin"]


def test_a_thrash_that_was_told_before_is_not_told_again_and_its_end_is() -> None:
    walk = Walk()
    walk.at = 100.0
    walk.state = initial("one", thrash_since=60.0)
    found = walk.go(30, SQUEEZED)
    assert (found.verdict.paging, found.verdict.paging_since) == (Paging.THRASHING, 60.0)
    assert walk.events == []
    walk.go(10, QUIET)
    assert walk.names() == ["thrash_end"]


def test_no_more_bests_are_taken_over_than_are_kept() -> None:
    assert len(initial("one", tuple(Best(slots, 1.0, 0.0) for slots in range(99))).paging.best) == MAX_BESTS


def test_the_life_of_a_backend_that_fits() -> None:
    walk = Walk()
    assert walk.go(3, FILLING, backend(None, "loading")).verdict.paging is Paging.COLD
    assert walk.go(2, FILLING).verdict.paging is Paging.WARMING
    assert walk.go(3, {**QUIET, **ROOMY}).verdict.paging is Paging.STEADY
    verdict = walk.go(30, {**QUIET, "resident_ratio": 1.0, **ROOMY}, backend(IDLE)).verdict
    assert (verdict.phase, verdict.paging, verdict.memory) == (Phase.IDLE, Paging.STEADY, MemoryState.OK)
    assert walk.events == []


def test_three_axes_with_a_reason_each_and_since_when() -> None:
    walk = Walk()
    verdict = walk.go(10, {**QUIET, **ROOMY}).verdict
    assert verdict.at_seconds == 10.0
    assert (verdict.phase_since, verdict.memory_since, verdict.paging_since) == (1.0, 1.0, 2.0)
    assert all(reason.text for reason in verdict.reasons)


def test_a_thrash_begins_once_with_reasons_and_ends_once() -> None:
    walk = Walk()
    walk.go(5, QUIET)
    stepped = walk.go(3, AMPLIFIED)
    assert [begun.name for begun in stepped.begun] == [EventName.THRASH_BEGIN]
    assert "refaults 180 MB/s of 180 MB/s read for 3.0 s" in stepped.begun[0].message
    assert {reason.axis for reason in stepped.begun[0].reasons} == {"paging"}
    walk.go(60, AMPLIFIED)
    walk.go(10, QUIET)
    assert walk.names() == ["thrash_begin", "thrash_end"]


def test_an_ended_process_is_down_and_a_new_one_recovered() -> None:
    walk = Walk()
    walk.go(3, QUIET)
    stepped = walk.go(3, {}, GONE)
    assert (stepped.verdict.phase, stepped.verdict.paging) == (Phase.ABSENT, Paging.UNKNOWN)
    walk.go(3, FILLING, backend(None, "loading", pid=8))
    walk.go(3, QUIET, backend(DECODE, pid=8))
    assert walk.events == [(4.0, "backend_down"), (10.0, "backend_recovered")]


@pytest.mark.parametrize("missing", ["process_read_bytes_per_second", "refault_ratio"])
def test_unknown_reads_or_refaults_begin_nothing(missing: str) -> None:
    walk = Walk()
    walk.go(60, {**AMPLIFIED, "cache_lost_ratio": 0.5, missing: None})
    assert walk.names() == []


VALUES = st.none() | st.floats(-10, 10) | st.floats(-1e12, 1e12)
SAMPLES = st.sampled_from(
    [
        backend(PREFILL),
        backend(DECODE),
        backend(IDLE),
        backend(None, "busy"),
        backend(None, "loading"),
        GONE,
        BackendSample("one"),
    ]
)


SCENES = st.sampled_from(
    [
        {},
        QUIET,
        FILLING,
        STREAMING,
        AMPLIFIED,
        SQUEEZED,
        {**AMPLIFIED, "headroom_ratio": 0.01, "headroom_bytes": 1e6},
        ROOMY,
    ]
)
ODD = st.dictionaries(st.sampled_from(sorted(signal_functions())), VALUES, max_size=3)


@settings(max_examples=150)
@given(st.lists(st.tuples(SCENES, ODD, SAMPLES, st.none() | st.floats(0.1, 5), st.integers(1, 6)), max_size=12))
def test_whatever_is_seen_begin_and_end_take_turns(
    given_ticks: list[tuple[dict[str, float | None], dict[str, float | None], BackendSample, float | None, int]],
) -> None:
    state, at = initial("one"), 0.0
    open_thrash = open_memory = open_down = False
    ticks = [({**scene, **odd}, sample, dt) for scene, odd, sample, dt, times in given_ticks for _ in range(times)]
    for values, sample, dt in ticks:
        at += dt or 10.0
        stepped = step(state, signals_at(at, values, dt), sample, FACTS, DetectorSettings())
        state = stepped.state
        for begun in stepped.begun:
            assert begun.message
            assert not begun.message.endswith(".")
            match begun.name:
                case EventName.THRASH_BEGIN:
                    assert not open_thrash
                    open_thrash = True
                case EventName.THRASH_END:
                    assert open_thrash
                    open_thrash = False
                case EventName.MEMORY_NEAR_LIMIT:
                    assert not open_memory
                    open_memory = True
                case EventName.MEMORY_RECOVERED:
                    assert open_memory
                    open_memory = False
                case EventName.BACKEND_DOWN:
                    assert not open_down
                    open_down = True
                case EventName.BACKEND_RECOVERED:
                    assert open_down
                    open_down = False
        verdict = stepped.verdict
        assert open_thrash == (verdict.paging is Paging.THRASHING)
        for since in (verdict.phase_since, verdict.paging_since, verdict.memory_since):
            assert since is None or since <= at
        assert all(reason.text for reason in verdict.reasons)


@given(
    st.lists(st.tuples(st.sampled_from([{}, {"busy_slots": 1.0}, {"tokens_per_second": 3.0}]), SAMPLES), max_size=40)
)
def test_unknown_signals_never_begin_a_thrash_or_a_memory_alarm(
    ticks: list[tuple[dict[str, float | None], BackendSample]],
) -> None:
    walk = Walk()
    for values, sample in ticks:
        walk.go(1, values, sample)
    assert set(walk.names()) <= {"backend_down", "backend_recovered"}


def test_streaming_and_a_squeeze_are_told_apart() -> None:
    streaming, squeezed = Walk(), Walk()
    assert streaming.go(120, STREAMING).verdict.paging is Paging.STREAMING
    assert streaming.events == []
    squeezed.go(20, QUIET)
    squeezed.go(5, SQUEEZED, backend(PREFILL))
    assert squeezed.events == [(23.0, "thrash_begin")]
