"""Samples one after the other: state goes in and comes out, a minute is remembered."""

from __future__ import annotations

import pytest

from moetuned.decide.detector import DetectorSettings
from moetuned.decide.facts import BackendFacts
from moetuned.decide.following import WINDOW_SECONDS, begin, follow
from moetuned.schema.sample import BackendSample, MachineSample, ProcessCounters, Sample


def sample(at: float, name: str = "a") -> Sample:
    own = BackendSample(name, ProcessCounters(7, start_ticks=1, state="S", read_bytes=int(at) * 1000))
    return Sample(at, at, MachineSample(), (own,))


def test_a_rate_needs_the_sample_before() -> None:
    first = follow(begin("a"), sample(1), BackendFacts(), DetectorSettings())
    second = follow(first.following, sample(2), BackendFacts(), DetectorSettings())
    assert first.signals.get("process_read_bytes_per_second") is None
    assert second.signals.get("process_read_bytes_per_second") == 1000
    assert second.step.verdict.at_seconds == 2


def test_no_more_than_a_minute_is_kept() -> None:
    following = begin("a")
    for at in range(200):
        following = follow(following, sample(at), BackendFacts(), DetectorSettings()).following
    assert [one.at_seconds for one in following.window] == list(range(199 - int(WINDOW_SECONDS), 200))


def test_a_sample_of_another_backend_says_nothing_of_this_one() -> None:
    with pytest.raises(LookupError, match="does not hold a"):
        follow(begin("a"), sample(1, "b"), BackendFacts(), DetectorSettings())
