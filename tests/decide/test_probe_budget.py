"""One budget for dear looks: spent at once, filled evenly, never more than an hour's worth."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.probe_budget import PERIOD_SECONDS, charge, full, left_seconds, may_look


def test_it_begins_full_and_is_paid_back() -> None:
    budget = full(100.0, share=0.01)
    assert left_seconds(budget, 100.0) == 36.0
    budget = charge(budget, "backends", 40.0, 100.0)
    assert not may_look(budget, 100.0)
    assert not may_look(budget, 499.0)
    assert may_look(budget, 501.0)
    assert left_seconds(budget, 100.0 + 10 * PERIOD_SECONDS) == 36.0


def test_it_tells_by_kind_also_what_has_a_limit_of_its_own() -> None:
    budget = full(0.0, share=0.01)
    budget = charge(budget, "residency", 30.0, 1.0, counts=False)
    budget = charge(budget, "backends", 1.0, 1.0)
    budget = charge(budget, "backends", 2.0, 1.0)
    assert budget.spent == {"residency": 30.0, "backends": 3.0}
    assert left_seconds(budget, 1.0) == pytest.approx(33.0, abs=0.02)


@given(st.lists(st.tuples(st.floats(0, 600), st.floats(-1, 20)), max_size=60))
def test_over_any_time_no_more_than_the_share_and_one_look(looks: list[tuple[float, float]]) -> None:
    now, budget, spent, largest = 0.0, full(0.0), 0.0, 0.0
    for wait, cost in looks:
        now += wait
        if may_look(budget, now):
            budget = charge(budget, "backends", cost, now)
            spent, largest = spent + max(0.0, cost), max(largest, cost)
        assert left_seconds(budget, now) <= budget.share * PERIOD_SECONDS
    assert spent <= budget.share * (PERIOD_SECONDS + now) + largest + 1e-6
    assert sum(budget.spent.values()) == pytest.approx(spent)
