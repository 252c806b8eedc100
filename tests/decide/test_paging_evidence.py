from __future__ import annotations

import pytest
from detector_scenes import AMPLIFIED, FACTS, FILLING, MB, QUIET, SQUEEZED, STREAMING, signals_at

from moetuned.decide.detector_settings import DetectorSettings
from moetuned.decide.facts import BackendFacts
from moetuned.decide.paging_evidence import Best, Doing, Evidence, bytes_a_token, weigh
from moetuned.schema.verdict import Paging, Phase


def weighed(
    values: dict[str, float | None],
    phase: Phase = Phase.DECODE,
    paging: Paging = Paging.STEADY,
    best: Best | None = None,
    facts: BackendFacts = FACTS,
) -> Evidence:
    return weigh(signals_at(1.0, values), phase, facts, DetectorSettings(), best=best, paging=paging)


def costs(evidence: Evidence) -> set[str]:
    return {cost.signal for cost in evidence.costs}


@pytest.mark.parametrize(
    ("values", "doing"),
    [
        ({}, Doing.UNKNOWN),
        (QUIET, Doing.QUIET),
        ({**STREAMING, "process_read_bytes_per_second": 5 * MB}, Doing.QUIET),
        ({**STREAMING, "bytes_per_token": 1 * MB}, Doing.QUIET),
        (FILLING, Doing.FILLING),
        ({**STREAMING, "refault_ratio": 0.05}, Doing.FILLING),
        ({**STREAMING, "refault_ratio": None}, Doing.UNKNOWN),
        (STREAMING, Doing.CHURNING),
    ],
)
def test_what_reads_are(values: dict[str, float | None], doing: Doing) -> None:
    assert weighed(values).doing is doing


def test_streaming_at_the_forecast_costs_nothing_too_much() -> None:
    assert weighed(STREAMING).costs == ()


def test_each_sign_by_itself() -> None:
    assert costs(weighed(AMPLIFIED)) == {"bytes_per_token", "read_amplification"}
    assert costs(weighed(SQUEEZED)) == {"cache_lost_ratio"}
    assert costs(weighed({**STREAMING, "other_resident_ratio": 0.5})) == {"other_resident_ratio"}
    best = Best(1, 100.0, 0.0, 0.0)
    assert costs(weighed(STREAMING, best=best)) == {"tokens_per_second"}
    blind = {**STREAMING, "bytes_per_token": None, "bytes_per_major_fault": 9 * MB}
    assert costs(weighed(blind, Phase.UNKNOWN)) == {"bytes_per_major_fault"}


def test_a_prompt_shows_only_a_squeeze() -> None:
    assert weighed({**AMPLIFIED, "other_resident_ratio": 0.5}, Phase.PREFILL, best=Best(1, 100.0, 0.0, 0.0)).costs == ()
    assert costs(weighed(SQUEEZED, Phase.PREFILL)) == {"cache_lost_ratio"}


def test_limits_are_eased_while_it_thrashes() -> None:
    between = {**STREAMING, "bytes_per_token": 200 * MB}
    assert weighed(between).costs == ()
    assert costs(weighed(between, paging=Paging.THRASHING)) == {"bytes_per_token"}


def test_a_tiny_excess_where_little_is_missing_is_no_trouble() -> None:
    assert (
        weighed(
            {**STREAMING, "bytes_per_token": 20 * MB, "read_amplification": 30.0, "bytes_per_major_fault": 8 * MB}
        ).costs
        == ()
    )


def test_every_sign_says_value_and_limit_for_people() -> None:
    for cost in (*weighed({**AMPLIFIED, "cache_lost_ratio": 0.5, "other_resident_ratio": 0.5}).costs,):
        assert "limit" in cost.text


def test_bytes_a_token_of_requests_too_short_to_follow() -> None:
    assert bytes_a_token(signals_at(1.0, {"tokens_per_second": 50.0, "process_read_bytes_per_second": 100.0})) == 2.0
    assert bytes_a_token(signals_at(1.0, {"tokens_per_second": 0.0, "process_read_bytes_per_second": 100.0})) is None
    assert bytes_a_token(signals_at(1.0, {})) is None


def test_tokens_that_cost_next_to_nothing_are_no_thrash_however_small_the_cache() -> None:
    assert FACTS.layout is not None
    active = FACTS.layout.active_expert_bytes
    cheap = {**SQUEEZED, "bytes_per_token": 0.03 * active, "bytes_per_decode_call": 0.03 * active}
    assert weighed(cheap) == Evidence(Doing.CHURNING)
    short_requests = {**SQUEEZED, "bytes_per_token": None, "bytes_per_decode_call": 0.001 * active}
    assert weighed({**short_requests, "tokens_per_second": None}).doing is Doing.QUIET
    dear = {**SQUEEZED, "bytes_per_token": 0.01 * active, "bytes_per_decode_call": 0.5 * active}
    assert costs(weighed(dear)) == {"cache_lost_ratio"}


def test_a_small_loss_that_goes_on_counts_once_it_is_felt() -> None:
    assert FACTS.layout is not None
    active = FACTS.layout.active_expert_bytes
    shrinking = {**SQUEEZED, "cache_lost_ratio": 0.05, "cache_bytes_per_second": -20 * MB}
    assert weighed({**shrinking, "bytes_per_decode_call": 0.06 * active}) == Evidence(Doing.CHURNING)
    assert costs(weighed({**shrinking, "bytes_per_decode_call": 0.15 * active})) == {"cache_lost_ratio"}
    much = {**SQUEEZED, "cache_lost_ratio": 0.15, "bytes_per_decode_call": 0.06 * active}
    assert costs(weighed(much)) == {"cache_lost_ratio"}
