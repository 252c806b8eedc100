"""When what an earlier daemon told of is over."""

from __future__ import annotations

import pytest

from moetuned.decide.left_open import NOTHING, came_to_nothing, end_of, is_well, retired
from moetuned.schema.event import EventName, begun_by, general, has_end, may_close
from moetuned.schema.verdict import MemoryState, Paging, Phase, Reason, Verdict

WELL = Verdict("glm", 1.0, Phase.IDLE, Paging.STEADY, MemoryState.OK)
BEGUN = sorted({general(name) for name in EventName if has_end(name)})


@pytest.mark.parametrize("begun", BEGUN)
def test_each_is_over_when_all_is_well_and_has_its_end(begun: EventName) -> None:
    assert is_well(begun, WELL, ready=True)
    name, message = end_of(begun)
    assert begun in begun_by(name)
    assert message


@pytest.mark.parametrize("begun", BEGUN)
def test_nothing_is_over_by_what_is_unknown(begun: EventName) -> None:
    for phase in (Phase.UNKNOWN, Phase.ABSENT, Phase.LOADING):
        assert not is_well(begun, Verdict("glm", 1.0, phase), ready=False)
    for phase in (Phase.ABSENT, Phase.LOADING):
        gone = Verdict("glm", 1.0, phase, Paging.STEADY, MemoryState.OK)
        assert not is_well(begun, gone, ready=True)


@pytest.mark.parametrize(
    ("begun", "verdict"),
    [
        (EventName.THRASH_BEGIN, Verdict("glm", 1.0, Phase.DECODE, Paging.THRASHING, MemoryState.OK)),
        (EventName.MEMORY_NEAR_LIMIT, Verdict("glm", 1.0, Phase.DECODE, Paging.STEADY, MemoryState.NEAR_LIMIT)),
        (EventName.RELIEF_EXHAUSTED, Verdict("glm", 1.0, Phase.DECODE, Paging.STEADY, MemoryState.CRITICAL)),
        (
            EventName.BACKEND_DOWN,
            Verdict("glm", 1.0, Phase.DECODE, reasons=(Reason("phase", "hung", 61.0, 60.0, 61.0, "hung"),)),
        ),
    ],
)
def test_what_is_seen_goes_on(begun: EventName, verdict: Verdict) -> None:
    assert not is_well(begun, verdict, ready=True)


@pytest.mark.parametrize("begun", BEGUN)
def test_only_a_restart_comes_to_nothing_and_only_where_none_goes_on(begun: EventName) -> None:
    gone = Verdict("glm", 1.0, Phase.ABSENT)
    assert came_to_nothing(begun, gone, restarting=False) == (begun in may_close(NOTHING[0]))
    assert not came_to_nothing(begun, gone, restarting=True)
    for phase in (Phase.UNKNOWN, Phase.LOADING, Phase.IDLE):
        assert not came_to_nothing(begun, Verdict("glm", 1.0, phase), restarting=False)


def test_what_its_owner_takes_out_of_the_configuration_has_one_end_each() -> None:
    ends = retired(BEGUN)
    assert {begun for name in ends for begun in (*begun_by(name), *may_close(name))} >= set(BEGUN)
    assert EventName.BACKEND_RESTARTED not in ends, "nobody saw that"
    assert retired([EventName.MEMORY_NEAR_LIMIT, EventName.RELIEF_EXHAUSTED]).keys() == {EventName.MEMORY_RECOVERED}
    assert retired([]) == {}
