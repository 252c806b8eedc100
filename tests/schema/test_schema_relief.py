"""The ladder's names and what is allowed without being asked for."""

from __future__ import annotations

from moetuned.schema.relief import DEFAULT_STEPS, ReliefStep, StepName


def test_only_a_quantised_cache_must_be_asked_for() -> None:
    assert set(StepName) - set(DEFAULT_STEPS) == {StepName.QUANTISE_KV_CACHE}


def test_a_step_is_taken_unless_it_says_why_not() -> None:
    assert ReliefStep(StepName.ONE_SLOT, "one slot").taken
    assert not ReliefStep(StepName.ONE_SLOT, "one slot", why_not="it has one").taken
