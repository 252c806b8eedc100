"""Slow because others take the processor: told as that, and no cost of what it reads meanwhile begins a thrash."""

from __future__ import annotations

import msgspec
import pytest
from detector_scenes import FACTS, MB, QUIET, STREAMING, Walk, backend, signals_at
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.detector_settings import DetectorSettings
from moetuned.decide.explain import explain
from moetuned.decide.paging_evidence import Best
from moetuned.decide.paging_starved import MAX_SECONDS, SIGNAL, starved_seconds, starves
from moetuned.decide.signal_sources import Sight
from moetuned.schema.sample import BackendSample
from moetuned.schema.verdict import Paging, Phase

SETTINGS = DetectorSettings()
BEST = Best(1, 27.0, 0.0)
SLOW = {**QUIET, "tokens_per_second": 0.7, "cpu_ratio": 0.3}
SIPS = {
    **STREAMING,
    "process_read_bytes_per_second": 15 * MB,
    "cache_lost_ratio": 0.48,
    "tokens_per_second": 0.7,
    "bytes_per_token": 20 * MB,
    "cpu_ratio": 0.3,
    "device_busy_ratio": 0.01,
    "machine_stall_io_some_ratio": 0.04,
}


def in_state(state: str | None) -> BackendSample:
    sample = backend()
    assert sample.process is not None
    return msgspec.structs.replace(sample, process=msgspec.structs.replace(sample.process, state=state))


@pytest.mark.parametrize(
    ("shows", "state", "change"),
    [
        (True, "R", {}),
        (True, "R", {"process_read_bytes_per_second": 15 * MB, "device_busy_ratio": 0.01}),
        (False, "R", {"process_read_bytes_per_second": 15 * MB, "device_busy_ratio": 0.5}),
        (False, "R", {"process_read_bytes_per_second": 15 * MB}),
        (False, "R", {"tokens_per_second": 20.0}),
        (False, "R", {"cpu_ratio": 1.9}),
        (False, "D", {}),
        (None, "S", {}),
        (None, None, {}),
        (None, "R", {"tokens_per_second": None}),
        (None, "R", {"cpu_ratio": None}),
    ],
)
def test_one_tick(shows: bool | None, state: str | None, change: dict[str, float | None]) -> None:
    signals = signals_at(1.0, {**SLOW, **change})
    assert starves(signals, in_state(state), Phase.DECODE, SETTINGS, BEST) is shows
    assert starves(signals, in_state(state), Phase.PREFILL, SETTINGS, BEST) is None
    assert starves(signals, in_state(state), Phase.DECODE, SETTINGS, None) is None


def told(walk: Walk) -> list[str]:
    assert walk.last is not None
    return [reason.text for reason in walk.last.verdict.reasons if reason.signal == SIGNAL]


def test_said_after_its_hold_and_no_longer_when_it_is_fast_again() -> None:
    walk = Walk()
    walk.go(10, {**QUIET, "tokens_per_second": 27.0, "cpu_ratio": 2.0}, in_state("R"))
    walk.go(2, SLOW, in_state("R"))
    assert told(walk) == []
    verdict = walk.go(1, SLOW, in_state("R")).verdict
    assert told(walk)[0].startswith(
        "slower than its own best 27.0 tokens/s; it waits for the processor, not for memory"
    )
    assert verdict.paging is Paging.STEADY, "as its reads say"
    walk.go(2, {**QUIET, "tokens_per_second": 27.0, "cpu_ratio": 2.0}, in_state("R"))
    assert told(walk) == []


def test_what_it_reads_meanwhile_is_no_thrash() -> None:
    walk, starts = Walk(), in_state("R")
    walk.go(10, {**QUIET, "tokens_per_second": 27.0, "missing_bytes_per_token": 0.0}, starts)
    walk.go(10, SLOW, starts)
    for _ in range(10):
        walk.go(5, SIPS, starts)
        walk.go(3, SLOW, starts)
    assert walk.events == []


def test_a_thrash_that_comes_on_top_is_seen_when_it_waits_for_the_disk() -> None:
    walk = Walk()
    walk.go(10, {**QUIET, "tokens_per_second": 27.0}, in_state("R"))
    walk.go(60, SLOW, in_state("R"))
    thrash = {**SIPS, "process_read_bytes_per_second": 200 * MB, "device_busy_ratio": 0.6, "bytes_per_token": 300 * MB}
    walk.go(8, thrash, in_state("D"))
    assert walk.names() == ["thrash_begin"]


def test_memory_that_is_swapped_counts_all_the_same() -> None:
    walk = Walk()
    walk.go(10, {**QUIET, "tokens_per_second": 27.0}, in_state("R"))
    walk.go(20, SLOW, in_state("R"))
    swaps = {"own_swap_in_bytes_per_second": 30 * MB, "own_swap_out_bytes_per_second": 30 * MB}
    walk.go(4, {**SLOW, **swaps}, in_state("R"))
    assert walk.names() == ["thrash_begin"]


def test_explain_sets_the_costs_aside() -> None:
    walk = Walk()
    walk.go(10, {**QUIET, "tokens_per_second": 27.0}, in_state("R"))
    walk.go(10, SLOW, in_state("R"))
    step = walk.go(1, SIPS, in_state("R"))
    sight = Sight(in_state("R"), FACTS)
    explained = explain(step.state, step.verdict, signals_at(walk.at, SIPS), sight, SETTINGS)
    paging = next(axis for axis in explained.axes if axis.axis == "paging")
    assert any("waits for the processor" in (check.aside or "") for check in paging.checks)


@given(st.lists(st.tuples(st.sampled_from([True, False, None]), st.floats(0, 5))))
def test_it_is_never_remembered_for_long(ticks: list[tuple[bool | None, float]]) -> None:
    seconds = 0.0
    for shows, dt in ticks:
        seconds = starved_seconds(seconds, shows, dt)
        assert 0.0 <= seconds <= MAX_SECONDS
    assert starved_seconds(seconds, False, MAX_SECONDS / 2) == 0.0
