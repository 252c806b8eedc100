"""One word for how a backend is."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide.backend_state import STATE_WORDS, state_word
from moetuned.decide.supervision import LaunchPlan, Stage, Supervision
from moetuned.schema.verdict import Paging, Phase, Reason, Verdict

PLAN = LaunchPlan(8192)


def verdict(phase: Phase = Phase.IDLE, paging: Paging = Paging.STEADY, signal: str | None = None) -> Verdict:
    reasons = (
        ()
        if signal is None
        else (Reason(axis="phase", signal=signal, value=None, limit=None, held_seconds=None, text=""),)
    )
    return Verdict("glm", 0.0, phase, paging, reasons=reasons)


@pytest.mark.parametrize(
    ("state", "phase", "word"),
    [
        (Supervision("glm", PLAN, stage=Stage.STOPPED), Phase.ABSENT, "stopped"),
        (Supervision("glm", PLAN, stage=Stage.WAITING), Phase.ABSENT, "waiting"),
        (Supervision("glm", PLAN, stage=Stage.BROKEN), Phase.ABSENT, "broken"),
        (Supervision("glm", PLAN, stage=Stage.STOPPING), Phase.IDLE, "ending"),
        (Supervision("glm", PLAN, stage=Stage.STOPPING, next_plan=PLAN), Phase.DECODE, "restarting"),
        (Supervision("glm", PLAN, stage=Stage.LOADING, restart_began=1.0), Phase.LOADING, "restarting"),
        (Supervision("glm", PLAN, stage=Stage.LOADING), Phase.LOADING, "loading"),
        (Supervision("glm", PLAN, stage=Stage.LOADING), Phase.UNKNOWN, "starting"),
        (Supervision("glm", PLAN, stage=Stage.READY), Phase.DECODE, "answering"),
    ],
)
def test_what_supervision_does_goes_first(state: Supervision, phase: Phase, word: str) -> None:
    assert state_word(verdict(phase), state) == word


def test_who_runs_it_says_nothing() -> None:
    stopped = Supervision("glm", PLAN, stage=Stage.STOPPED)
    assert state_word(verdict(Phase.ABSENT), stopped, known=False) == "unknown"
    ready = Supervision("glm", PLAN, stage=Stage.READY)
    assert state_word(verdict(Phase.DECODE), ready, known=False) == "answering"


def test_every_stage_and_phase_has_a_word() -> None:
    for phase in Phase:
        assert state_word(verdict(phase), None)
        for stage in Stage:
            assert state_word(verdict(phase), Supervision("glm", PLAN, stage=stage))


def test_what_stands_in_its_way_goes_before_what_it_does() -> None:
    ready = Supervision("glm", PLAN, stage=Stage.READY)
    assert state_word(verdict(Phase.DECODE, Paging.THRASHING), None) == "thrashing"
    assert state_word(verdict(Phase.DECODE, Paging.THRASHING, "hung"), None) == "hung"
    assert state_word(verdict(Phase.DECODE, signal="paused"), None) == "paused"
    assert state_word(verdict(Phase.DECODE), ready, paused=True) == "paused"
    taken_over = Supervision("glm", PLAN, stage=Stage.LOADING)
    assert state_word(verdict(Phase.UNKNOWN), taken_over, paused=True) == "paused"
    ending = Supervision("glm", PLAN, stage=Stage.STOPPING)
    assert state_word(verdict(Phase.IDLE), ending, paused=True) == "ending"
    waits = msgspec.structs.replace(ready, stage=Stage.DRAINING)
    assert state_word(verdict(Phase.DECODE, Paging.THRASHING), waits) == "draining"


@given(
    st.sampled_from(Phase),
    st.sampled_from(Paging),
    st.sampled_from([None, "hung", "paused"]),
    st.none() | st.sampled_from(Stage),
    st.booleans(),
    st.booleans(),
    st.none() | st.just(1.0),
)
def test_there_is_no_other_word(
    phase: Phase,
    paging: Paging,
    signal: str | None,
    stage: Stage | None,
    paused: bool,
    known: bool,
    began: float | None,
) -> None:
    state = None if stage is None else Supervision("glm", PLAN, stage=stage, restart_began=began)
    assert state_word(verdict(phase, paging, signal), state, paused=paused, known=known) in STATE_WORDS
