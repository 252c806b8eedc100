from __future__ import annotations

import pytest
from detector_scenes import (
    AMPLIFIED,
    FACTS,
    FILLING,
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
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.detector import DetectorSettings, Step
from moetuned.decide.explain import explain
from moetuned.decide.facts import BackendFacts
from moetuned.decide.signal_sources import Sight
from moetuned.decide.signals import signal_functions
from moetuned.schema.explanation import AxisExplanation, Explanation
from moetuned.schema.sample import BackendSample
from moetuned.schema.verdict import Check

SETTINGS = DetectorSettings()
SCENES = {
    "quiet": QUIET,
    "filling": FILLING,
    "streaming": STREAMING,
    "amplified": AMPLIFIED,
    "squeezed": SQUEEZED,
    "nothing known": {},
}


def explained(
    step: Step, values: dict[str, float | None], sample: BackendSample | None = None, facts: BackendFacts = FACTS
) -> Explanation:
    sight = Sight(sample or backend(), facts, 1.0)
    return explain(step.state, step.verdict, signals_at(step.verdict.at_seconds, values), sight, SETTINGS)


def axis(found: Explanation, name: str) -> AxisExplanation:
    return next(one for one in found.axes if one.axis == name)


def beyond(one: AxisExplanation, would: str) -> dict[str, Check]:
    return {check.signal: check for check in one.checks if check.beyond and check.would == would}


def test_how_long_a_sign_has_held_and_how_long_it_must() -> None:
    walk = Walk()
    walk.go(3, QUIET)
    found = axis(explained(walk.go(2, AMPLIFIED), AMPLIFIED), "paging")
    check = beyond(found, "thrashing")["bytes_per_token"]
    assert (check.held_seconds, check.needed_seconds) == (2.0, SETTINGS.thrash_hold_seconds)
    assert check.text == "bytes per token 858 MiB, limit 216 MiB, held 2 of 3 s"
    assert any(text.startswith("thrashing in 1.0 s if bytes per token stays above") for text in found.changes)


@pytest.mark.parametrize("seconds", range(1, 12))
@pytest.mark.parametrize("name", SCENES)
def test_it_tells_the_same_as_the_verdict(name: str, seconds: int) -> None:
    """A reason of the verdict that has a limit is a check that is beyond it, and none that has held long enough is missing."""
    walk = Walk()
    walk.go(3, {**QUIET, **ROOMY})
    values = {**SCENES[name], **ROOMY}
    step = walk.go(seconds, values)
    found = axis(explained(step, values), "paging")
    costs = beyond(found, "thrashing")
    reasons = {r.signal: r for r in step.verdict.reasons if r.axis == "paging" and r.limit is not None}
    for signal in reasons.keys() - {"resident_ratio", "bytes_per_token"} | (reasons.keys() & costs.keys()):
        assert signal in costs
    churns = any(check.beyond for check in found.checks if check.signal == "refault_ratio")
    ripe = [check for check in costs.values() if (check.held_seconds or 0) >= (check.needed_seconds or 0)]
    if ripe and churns and not any(check.beyond for check in found.checks if check.would in ("steady", "warming")):
        assert step.verdict.paging == "thrashing"


def test_what_ends_a_thrash() -> None:
    walk = Walk()
    found = axis(explained(walk.go(10, SQUEEZED), SQUEEZED), "paging")
    assert found.value == "thrashing"
    (change,) = found.changes
    assert change.startswith("over once cache lost is no longer above 8 %")


def test_a_prompt_sets_the_cost_of_a_token_aside() -> None:
    walk = Walk()
    step = walk.go(5, AMPLIFIED, backend(PREFILL))
    found = axis(explained(step, AMPLIFIED, backend(PREFILL)), "paging")
    asides = {check.signal for check in found.checks if check.aside is not None}
    assert {"read_amplification", "other_resident_ratio", "tokens_per_second"} <= asides


def test_unknown_names_its_source() -> None:
    walk = Walk(BackendFacts())
    step = walk.go(5, STREAMING)
    values = {**STREAMING, "read_amplification": None}
    found = explained(step, values, facts=BackendFacts())
    texts = [check.text for check in axis(found, "paging").checks]
    assert "read amplification unknown: /proc/7/io: could not be read" in texts
    assert "bytes per token 57.2 MiB; unknown: layout unknown" in texts
    assert "cache lost 0 %, limit 10 %; unknown: the size of its model is unknown" in texts
    assert any(unknown.signal == "headroom_bytes" for unknown in found.unknown)


def test_idle_says_what_left_memory() -> None:
    walk = Walk()
    walk.go(2, QUIET)
    walk.go(2, {}, backend(IDLE, resident=1_800_000_000))
    sample = backend(IDLE, resident=1_700_000_000)
    found = axis(explained(walk.go(1, {}, sample), {}, sample), "paging")
    assert found.checks[0].text.startswith("left memory while idle 5 %, limit 25 %")
    assert found.changes[0].startswith("cold once")


def test_a_cost_that_does_not_count_now_is_no_forecast() -> None:
    """Its cache stays smaller for hours; as long as hardly anything is read, no thrash follows in a few seconds."""
    walk = Walk()
    walk.go(3, {**QUIET, **ROOMY})
    values = {**QUIET, **ROOMY, "cache_lost_ratio": 0.5}
    found = axis(explained(walk.go(20, values), values), "paging")
    assert found.value == "steady"
    lost = beyond(found, "thrashing")["cache_lost_ratio"]
    assert lost.aside == "hardly anything is read"
    assert lost.text.endswith("; does not count: hardly anything is read")
    assert found.changes[0].startswith("thrashing only while process read is above 8.0 MB/s (now 0 B/s) and ")
    assert "bytes per token is above" in found.changes[0]
    assert "refault is above 30 %" in found.changes[0]
    assert found.changes[1].startswith("thrashing in 3.0 s if cache lost stays above")


def test_rules_of_one_signal_are_told_apart() -> None:
    walk = Walk()
    found = axis(explained(walk.go(5, {**AMPLIFIED, **ROOMY}), {**AMPLIFIED, **ROOMY}), "paging")
    rules = [check.rule for check in found.checks]
    assert all(rules)
    assert len(set(rules)) == len(rules)
    assert len({check.rule for check in found.checks if check.signal == "bytes_per_token"}) == 3


@pytest.mark.parametrize("values", [{**AMPLIFIED, **ROOMY}, {**STREAMING, "process_read_bytes_per_second": None}])
def test_the_part_of_a_rule_that_is_unknown_is_named(values: dict[str, float | None]) -> None:
    values = {**values, "bytes_per_token": None, "tokens_per_second": 3.0, "read_amplification": 2.0}
    walk = Walk()
    for one in explained(walk.go(5, values), values).axes:
        for check in one.checks:
            assert "another part" not in (check.unknown or "")
            if check.signal == "read_amplification":
                assert (check.unknown or "").startswith("bytes per token is unknown: ")


def test_reads_that_fill_the_page_cache_are_a_gate_too() -> None:
    walk = Walk()
    values = {**FILLING, **ROOMY, "cache_lost_ratio": 0.5}
    found = axis(explained(walk.go(5, values), values), "paging")
    assert found.changes[0] == "thrashing only while cache fill is below 30 % (now 100 %), and then:"


def test_idle_does_not_say_how_it_would_become_what_it_is() -> None:
    walk = Walk()
    walk.go(5, QUIET)
    values = {"resident_ratio": 0.5}
    sample = backend(IDLE, resident=1_000_000_000)
    found = axis(explained(walk.go(2, values, sample), values, sample), "paging")
    assert found.value == "steady"
    assert not any(text.startswith("steady once") for text in found.changes)


def test_memory_counts_its_hold_time_and_its_release() -> None:
    walk = Walk()
    low = {"headroom_bytes": 10e6, "headroom_ratio": 0.01}
    found = axis(explained(walk.go(3, low), low), "memory")
    assert found.value == "critical"
    assert {check.would for check in found.checks} == {"near_limit", "critical", "ok"}
    assert beyond(found, "critical")["headroom_bytes"].held_seconds == 3.0
    assert any(text.startswith("ok once headroom is above") for text in found.changes)


VALUE = st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False, min_value=-1e15, max_value=1e15))


@given(st.lists(st.dictionaries(st.sampled_from(sorted(signal_functions())), VALUE), min_size=1, max_size=12))
def test_any_signals_can_be_explained(rows: list[dict[str, float | None]]) -> None:
    walk = Walk()
    for values in rows:
        step = walk.go(1, values)
        for one in explained(step, values).axes:
            for check in one.checks:
                assert check.text
                assert check.beyond is not None or check.unknown or check.aside
