from __future__ import annotations

import pytest
from detector_scenes import DECODE, IDLE, MB, PREFILL, QUIET, ROOMY, Walk, backend, signals_at
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.detector_settings import DetectorSettings
from moetuned.decide.paging_swap import swap_check
from moetuned.schema.verdict import Phase

SWAPS = {
    **QUIET,
    **ROOMY,
    "own_swap_in_bytes_per_second": 30 * MB,
    "own_swap_out_bytes_per_second": 30 * MB,
    "swapped_growth_bytes_per_second": 0.0,
    "anonymous_bytes": 900 * MB,
    "process_read_bytes_per_second": 30 * MB,
    "cache_fill_ratio": 0.0,
}
RETURNS = {**SWAPS, "own_swap_out_bytes_per_second": 0.0, "swapped_growth_bytes_per_second": -30 * MB}


def beyond(phase: Phase = Phase.DECODE, **more: float | None) -> bool | None:
    return swap_check(signals_at(1.0, {**SWAPS, **more}), phase, DetectorSettings(), 1.0).beyond


def test_its_own_memory_goes_out_and_in_for_as_long_as_it_works() -> None:
    walk = Walk()
    walk.go(20, {**QUIET, **ROOMY})
    step = walk.go(5, SWAPS)
    assert walk.events == [(23.0, "thrash_begin")]
    assert "swapped in at 30 MB/s and out again at 30 MB/s" in step.verdict.reasons[1].text
    walk.go(10, {**QUIET, **ROOMY})
    assert walk.names() == ["thrash_begin", "thrash_end"]


def test_what_was_pushed_out_while_idle_comes_back_with_the_next_request() -> None:
    walk = Walk()
    walk.go(60, {**QUIET, **ROOMY}, backend(IDLE))
    walk.go(5, RETURNS, backend(PREFILL))
    walk.go(20, RETURNS, backend(DECODE))
    assert walk.names() == []


def test_a_prompt_that_is_read_at_a_crawl_is_one_too() -> None:
    walk = Walk()
    walk.go(20, {**QUIET, **ROOMY})
    walk.go(5, SWAPS, backend(PREFILL))
    assert walk.events == [(23.0, "thrash_begin")]


def test_nobody_asks_anything() -> None:
    walk = Walk()
    walk.go(60, SWAPS, backend(IDLE))
    assert walk.names() == []


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, True),
        ({"own_swap_in_bytes_per_second": None}, None),
        ({"own_swap_in_bytes_per_second": 3 * MB}, False),
        ({"own_swap_out_bytes_per_second": 1 * MB}, False),
        ({"own_swap_out_bytes_per_second": None}, True),
        ({"own_swap_out_bytes_per_second": None, "swapped_growth_bytes_per_second": -29 * MB}, False),
        ({"own_swap_out_bytes_per_second": None, "swapped_growth_bytes_per_second": None}, False),
        ({"stall_memory_some_ratio": 0.01}, False),
        ({"stall_memory_some_ratio": 0.3}, True),
    ],
)
def test_each_figure(more: dict[str, float | None], expected: bool | None) -> None:
    assert beyond(**more) is expected


def test_what_is_not_beyond_says_why() -> None:
    check = swap_check(
        signals_at(1.0, {**SWAPS, "stall_memory_some_ratio": 0.01}), Phase.DECODE, DetectorSettings(), 1.0
    )
    assert check.aside is not None
    assert "fast enough" in check.aside


@pytest.mark.parametrize("phase", list(Phase))
def test_without_an_answer_of_what_it_does_it_must_last_longer(phase: Phase) -> None:
    check = swap_check(signals_at(1.0, SWAPS), phase, DetectorSettings(), 1.0)
    assert (check.weak, check.blind) == (phase is Phase.UNKNOWN, False)


NUMBER = st.none() | st.floats(-1e12, 1e12)


@given(st.sampled_from(list(Phase)), NUMBER, NUMBER, NUMBER, NUMBER, st.sampled_from([0.8, 1.0]))
def test_any_figures(
    phase: Phase, back: float | None, out: float | None, growth: float | None, stall: float | None, ease: float
) -> None:
    values = {
        "own_swap_in_bytes_per_second": back,
        "own_swap_out_bytes_per_second": out,
        "swapped_growth_bytes_per_second": growth,
        "stall_memory_some_ratio": stall,
    }
    check = swap_check(signals_at(1.0, values), phase, DetectorSettings(), ease)
    assert (check.beyond is None) is (back is None)
    assert bool(check.text) is (check.beyond is True)
