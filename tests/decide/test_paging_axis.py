from __future__ import annotations

from detector_scenes import signals_at

from moetuned.decide.paging_axis import PagingAxis, become, held
from moetuned.schema.verdict import Check, Paging


def test_since_is_when_the_verdict_became_another() -> None:
    steady = become(PagingAxis(), Paging.STEADY, signals_at(5.0, {}))
    assert (steady.paging, steady.since) == (Paging.STEADY, 5.0)
    assert become(steady, Paging.STEADY, signals_at(9.0, {}), calm_seconds=2.0).since == 5.0
    assert become(steady, Paging.COLD, signals_at(9.0, {})).since == 9.0


def test_what_is_not_beyond_its_limit_was_held_for_nothing() -> None:
    assert held(Check("x", 1.0, 2.0, beyond=False), 4.0, 3.0, "cold").held_seconds == 0.0
    assert held(Check("x", 3.0, 2.0, beyond=True), 4.0, 3.0, "cold").held_seconds == 4.0
