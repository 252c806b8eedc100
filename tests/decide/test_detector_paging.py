from __future__ import annotations

import pytest
from detector_scenes import AMPLIFIED, FILLING, GONE, IDLE, MB, PREFILL, QUIET, SQUEEZED, STREAMING, Walk, backend

from moetuned.decide.detector_paging import PagingAxis, forget_idle, step_paging
from moetuned.decide.detector_settings import DetectorSettings
from moetuned.decide.facts import BackendFacts
from moetuned.schema.verdict import Paging, Phase


def test_a_burst_that_fades_is_warming() -> None:
    walk = Walk()
    walk.go(5, QUIET)
    assert walk.go(6, STREAMING).verdict.paging is Paging.WARMING
    assert walk.go(3, QUIET).verdict.paging is Paging.STEADY
    assert walk.events == []


def test_two_ticks_of_cost_are_no_thrash() -> None:
    walk = Walk()
    for _ in range(20):
        walk.go(2, AMPLIFIED)
        walk.go(1, QUIET)
    assert walk.events == []


def test_reading_again_after_an_eviction_is_warming_whatever_refaults_say() -> None:
    walk = Walk()
    walk.go(30, {**AMPLIFIED, **FILLING, "cache_lost_ratio": 0.8})
    assert walk.state.paging.paging is Paging.WARMING
    assert walk.events == []


def test_a_long_prompt_that_reads_for_minutes_is_no_thrash() -> None:
    walk = Walk()
    prompt = {**STREAMING, "bytes_per_token": None, "read_amplification": None, "tokens_per_second": None}
    walk.go(300, prompt, backend(PREFILL))
    assert walk.events == []


def test_a_prompt_in_the_middle_neither_ends_a_thrash_nor_flickers() -> None:
    walk = Walk()
    walk.go(5, AMPLIFIED)
    walk.go(20, {**AMPLIFIED, "bytes_per_token": None, "read_amplification": None}, backend(PREFILL))
    walk.go(20, AMPLIFIED)
    assert walk.names() == ["thrash_begin"]


UNTOLD = {**AMPLIFIED, "bytes_per_token": None, "read_amplification": None}


def test_short_requests_tell_of_the_reads_between_them() -> None:
    walk = Walk()
    for _ in range(3):
        walk.go(2, UNTOLD, backend(PREFILL))
        walk.go(1, UNTOLD)
        walk.go(1, AMPLIFIED)
    assert walk.events == [(8.0, "thrash_begin")]


def test_one_costly_second_before_a_long_prompt_is_no_thrash() -> None:
    walk = Walk()
    for _ in range(5):
        walk.go(1, AMPLIFIED)
        walk.go(30, UNTOLD, backend(PREFILL))
        walk.go(3, STREAMING)
    assert walk.names() == []


def test_a_thrash_ends_only_where_a_token_tells_so() -> None:
    walk = Walk()
    walk.go(5, AMPLIFIED)
    walk.go(2, STREAMING)
    walk.go(30, UNTOLD, backend(PREFILL))
    assert walk.names() == ["thrash_begin"]
    walk.go(1, STREAMING)
    assert walk.names() == ["thrash_begin", "thrash_end"]


def test_requests_too_short_to_tell_end_a_thrash_by_cheap_decode_calls() -> None:
    walk = Walk()
    walk.go(5, AMPLIFIED)
    walk.go(60, {**UNTOLD, "bytes_per_decode_call": 90 * MB}, backend(PREFILL))
    assert walk.names() == ["thrash_begin"]
    walk.go(8, {**UNTOLD, "bytes_per_decode_call": 20 * MB}, backend(PREFILL))
    assert walk.names() == ["thrash_begin", "thrash_end"]


def test_a_cache_that_shrinks_by_little_under_a_streaming_model_is_still_streaming() -> None:
    walk = Walk()
    walk.go(20, STREAMING)
    walk.go(20, {**STREAMING, "cache_lost_ratio": 0.05, "cache_bytes_per_second": -20 * MB})
    assert walk.state.paging.paging is Paging.STREAMING
    assert walk.events == []


def test_a_cache_that_shrinks_by_little_under_one_that_fitted_is_a_squeeze() -> None:
    walk = Walk()
    walk.go(20, QUIET)
    walk.go(4, {**STREAMING, "cache_lost_ratio": 0.05, "cache_bytes_per_second": -20 * MB})
    assert walk.names() == ["thrash_begin"]


def test_far_below_its_warm_best_because_less_is_resident() -> None:
    walk = Walk()
    walk.go(10, {**QUIET, "missing_bytes_per_token": 0.0})
    walk.go(4, STREAMING)
    assert walk.names() == []
    walk.go(2, STREAMING)
    assert walk.names() == ["thrash_begin"], "100 tokens/s at nothing a token became 3 at 60 MB"
    walk.go(200, STREAMING)
    assert walk.names() == ["thrash_begin"]


def test_another_topic_is_dearer_with_as_much_resident() -> None:
    walk = Walk()
    walk.go(10, {**QUIET, "missing_bytes_per_token": 54 * MB})
    walk.go(100, STREAMING)
    assert walk.names() == []


def test_slow_and_dearer_must_last_longest_where_residency_is_unknown() -> None:
    walk = Walk(BackendFacts())
    walk.go(10, QUIET)
    walk.go(18, {**STREAMING, "missing_bytes_per_token": None})
    assert walk.names() == []
    walk.go(2, {**STREAMING, "missing_bytes_per_token": None})
    assert walk.names() == ["thrash_begin"]


def test_slow_at_the_same_cost_is_somebody_elses_work() -> None:
    walk = Walk()
    walk.go(20, {**STREAMING, "tokens_per_second": 9.0})
    walk.go(60, {**STREAMING, "tokens_per_second": 0.5, "process_read_bytes_per_second": 30 * MB})
    assert walk.names() == []


def test_every_token_bytes_re_read_is_a_thrash() -> None:
    walk = Walk()
    walk.go(3, {**STREAMING, "other_resident_ratio": 0.7})
    assert walk.names() == ["thrash_begin"]


def test_windows_far_larger_than_slices() -> None:
    walk = Walk()
    wide = {**STREAMING, "bytes_per_token": 150 * MB, "read_amplification": 2.8}
    walk.go(60, wide)
    assert walk.names() == []
    walk.go(4, {**wide, "bytes_per_major_fault": 7 * MB})
    assert walk.names() == ["thrash_begin"]


def test_without_any_answer_large_windows_must_last_longest() -> None:
    blind = {
        **STREAMING,
        "bytes_per_token": None,
        "tokens_per_second": None,
        "read_amplification": None,
        "bytes_per_major_fault": 8 * MB,
    }
    walk = Walk()
    walk.go(18, blind, backend(None, None))
    assert walk.names() == []
    walk.go(3, blind, backend(None, None))
    assert walk.names() == ["thrash_begin"]


def test_without_a_layout_a_squeeze_is_still_seen_and_streaming_is_no_alarm() -> None:
    facts = BackendFacts(model_bytes=1_840_000_000)
    streaming = Walk(facts)
    streaming.go(120, STREAMING)
    assert streaming.events == []
    squeezed = Walk(facts)
    squeezed.go(4, SQUEEZED)
    assert squeezed.names() == ["thrash_begin"]


def test_a_thrash_that_got_cheap_but_still_reads_becomes_streaming() -> None:
    walk = Walk()
    walk.go(10, AMPLIFIED)
    walk.go(6, STREAMING)
    assert walk.names() == ["thrash_begin"]
    assert walk.go(6, STREAMING).verdict.paging is Paging.STREAMING
    assert walk.names() == ["thrash_begin", "thrash_end"]


def test_a_thrash_is_over_after_some_idle_time_only() -> None:
    walk = Walk()
    walk.go(5, AMPLIFIED)
    walk.go(10, {}, backend(IDLE))
    assert walk.names() == ["thrash_begin"]
    verdict = walk.go(10, {}, backend(IDLE)).verdict
    assert walk.names() == ["thrash_begin", "thrash_end"]
    assert verdict.paging is Paging.UNKNOWN


def test_a_thrash_ends_with_its_process() -> None:
    walk = Walk()
    walk.go(5, AMPLIFIED)
    walk.go(1, {}, GONE)
    assert walk.names() == ["thrash_begin", "backend_down", "thrash_end"]


GB = 1 << 30


@pytest.mark.parametrize(
    ("before", "after"),
    [({"rss_file": GB}, {"rss_file": GB // 4}), ({"resident": GB}, {"resident": GB // 4})],
)
def test_evicted_while_idle_is_told_once(before: dict[str, int], after: dict[str, int]) -> None:
    walk = Walk()
    walk.go(5, {}, backend(IDLE, **before))
    verdict = walk.go(20, {}, backend(IDLE, **after)).verdict
    assert walk.events == [(6.0, "cache_evicted")]
    assert verdict.paging is Paging.COLD


def test_what_we_paged_out_ourselves_nobody_evicted() -> None:
    axis = PagingAxis(
        idle_seconds=9.0, evicted_seconds=1.0, idle_mapped_bytes=GB, idle_resident_bytes=GB, resident_bytes=GB
    )
    assert forget_idle(axis) == PagingAxis()


def test_evicted_again_after_it_worked_is_told_again() -> None:
    walk = Walk()
    for _ in range(2):
        walk.go(5, {}, backend(IDLE, rss_file=GB))
        walk.go(5, {}, backend(IDLE, rss_file=0))
        walk.go(5, FILLING)
    assert walk.names() == ["cache_evicted", "cache_evicted"]


def test_what_was_lost_while_it_worked_is_no_eviction() -> None:
    walk = Walk()
    walk.go(5, QUIET, backend(rss_file=GB))
    walk.go(20, {}, backend(IDLE, rss_file=GB // 8))
    assert walk.events == []


def test_a_scan_between_others_is_remembered_while_idle() -> None:
    walk = Walk()
    walk.go(1, {}, backend(IDLE, resident=GB))
    walk.go(4, {}, backend(IDLE))
    walk.go(1, {}, backend(IDLE, resident=GB // 4))
    walk.go(1, {}, backend(IDLE))
    assert walk.names() == ["cache_evicted"]


def test_no_earlier_sample_keeps_what_was() -> None:
    from detector_scenes import FACTS, signals_at

    axis = PagingAxis(paging=Paging.STREAMING, since=1.0)
    stepped = step_paging(
        axis, signals_at(9.0, AMPLIFIED, None), backend(), Phase.DECODE, FACTS, DetectorSettings(), same_process=True
    )
    assert stepped.axis == axis
    assert stepped.begun == ()


LULL = {**QUIET, "process_read_bytes_per_second": 3.5 * MB, "tokens_per_second": None, "bytes_per_token": None}


def test_gaps_between_requests_end_no_thrash() -> None:
    walk = Walk()
    walk.go(10, {**QUIET, "missing_bytes_per_token": 0.0})
    for _ in range(5):
        walk.go(5, AMPLIFIED)
        walk.go(4, LULL)
        walk.go(2, LULL, backend(IDLE))
    assert walk.names() == ["thrash_begin"]


def test_a_thrash_is_not_over_while_it_crawls() -> None:
    walk = Walk()
    walk.go(10, {**QUIET, "missing_bytes_per_token": 0.0})
    walk.go(5, AMPLIFIED)
    walk.go(6, {**QUIET, "tokens_per_second": 0.3})
    assert walk.names() == ["thrash_begin"]
    walk.go(3, {**QUIET, "tokens_per_second": 90.0})
    assert walk.names() == ["thrash_begin", "thrash_end"], "as fast as ever it is over soon"


def test_a_lull_that_lasts_ends_it() -> None:
    walk = Walk()
    walk.go(5, AMPLIFIED)
    walk.go(7, LULL)
    assert walk.names() == ["thrash_begin"]
    walk.go(2, LULL)
    assert walk.names() == ["thrash_begin", "thrash_end"]


def test_gaps_begin_none() -> None:
    walk = Walk()
    walk.go(10, QUIET)
    for _ in range(10):
        walk.go(2, AMPLIFIED)
        walk.go(1, LULL)
        walk.go(5, LULL, backend(IDLE))
    assert walk.names() == []
