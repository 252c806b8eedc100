"""What may be asked of a backend by hand."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide import supervision as sv
from moetuned.decide.manual_action import ManualActionFacts, most_context, plan_of, refusal
from moetuned.decide.supervision import LaunchPlan, Stage, Supervision
from moetuned.schema.supervision import BackendDo

READY = Supervision("glm", LaunchPlan(8192, 64, 2), stage=Stage.READY)
FACTS = ManualActionFacts(
    "glm", READY, runs=True, context_changeable=True, minimum_context=1024, most_context=16384
)  # fmt: skip


def with_state(**changes: object) -> ManualActionFacts:
    return msgspec.structs.replace(FACTS, state=msgspec.structs.replace(READY, **changes))


def test_one_that_runs_may_be_restarted_and_paused_and_not_resumed() -> None:
    assert refusal(FACTS, BackendDo.RESTART) is None
    assert refusal(FACTS, BackendDo.RESTART, 1024) is None
    assert refusal(FACTS, BackendDo.RESTART, 16384) is None
    assert refusal(FACTS, BackendDo.PAUSE) is None
    assert refusal(FACTS, BackendDo.RESUME) == "glm is not paused"
    paused = msgspec.structs.replace(FACTS, paused=True)
    assert refusal(paused, BackendDo.RESUME) is None
    assert refusal(paused, BackendDo.PAUSE) == "glm is paused already"
    assert refusal(paused, BackendDo.RESTART) is None


@pytest.mark.parametrize("do", list(BackendDo))
def test_what_is_only_watched_is_its_owners(do: BackendDo) -> None:
    assert f"cannot {do.value} it" in (refusal(ManualActionFacts("glm"), do) or "")


@pytest.mark.parametrize(
    ("facts", "context", "why"),
    [
        (FACTS, 1023, "fewer than the 1024"),
        (FACTS, 16385, "more than the 16384"),
        (msgspec.structs.replace(FACTS, context_changeable=False), 8192, "starts it takes none"),
        (msgspec.structs.replace(FACTS, waiting=True), None, "--now"),
        (with_state(stage=Stage.STOPPING), None, "being ended already"),
        (with_state(stage=Stage.STOPPING, next_plan=LaunchPlan(1)), None, "being restarted already"),
        (with_state(stage=Stage.LOADING, restart_began=1.0), None, "loads its model"),
    ],
)
def test_a_restart_is_refused_in_a_sentence(facts: ManualActionFacts, context: int | None, why: str) -> None:
    assert why in (refusal(facts, BackendDo.RESTART, context) or "")


@pytest.mark.parametrize("stage", [Stage.BROKEN, Stage.WAITING, Stage.STOPPED, Stage.LOADING])
def test_one_that_failed_or_loads_for_the_first_time_may_be_restarted_but_not_paused(stage: Stage) -> None:
    facts = msgspec.structs.replace(with_state(stage=stage), runs=False)
    assert refusal(facts, BackendDo.RESTART) is None
    assert refusal(facts, BackendDo.PAUSE) == "glm is not running"
    assert refusal(facts, BackendDo.RESUME) == "glm is not running"


def test_one_that_is_about_to_be_restarted_is_not_paused() -> None:
    assert "about to be" in (refusal(msgspec.structs.replace(FACTS, waiting=True), BackendDo.PAUSE) or "")


def test_it_is_started_with_what_the_config_wants_by_now_and_the_context_asked_for() -> None:
    assert plan_of(READY, None) == READY.plan
    assert plan_of(READY, 2048) == LaunchPlan(2048, 64, 2)
    changed = msgspec.structs.replace(READY, later_plan=LaunchPlan(4096, 0))
    assert plan_of(changed, None) == LaunchPlan(4096, 0)
    assert plan_of(changed, 2048) == LaunchPlan(2048, 0)
    waits = msgspec.structs.replace(changed, stage=Stage.DRAINING, next_plan=LaunchPlan(1024, 0))
    assert plan_of(waits, None) == LaunchPlan(1024, 0), "--now does not take back the context that was asked for"


@pytest.mark.parametrize(
    ("trained", "slots", "command", "most"),
    [
        (4096, None, (), 4096),
        (4096, 4, (), 16384),
        (None, 4, (), None),
        (4096, 1, ("llama-server", "--rope-scaling", "yarn"), None),
        (4096, 1, ("llama-server", "--yarn-orig-ctx=4096"), None),
    ],
)
def test_slots_share_the_context(trained: int | None, slots: int | None, command: tuple[str, ...], most: int) -> None:
    assert most_context(trained, slots, command) == most


@given(st.lists(st.sampled_from(["restart", "exit", "healthy", "tick", "stop"]), max_size=30), st.integers(0, 32768))
def test_what_is_not_refused_leads_to_one_process_with_the_context_asked_for(steps: list[str], context: int) -> None:
    state, commands = sv.begin(Supervision("glm", LaunchPlan(8192)))
    running, now = True, 0.0
    for step in steps:
        now += 1.0
        if step == "restart":
            facts = ManualActionFacts("glm", state, context_changeable=True, minimum_context=1024, most_context=16384)
            if refusal(facts, BackendDo.RESTART, context) is not None:
                continue
            assert 1024 <= context <= 16384
            state, commands = sv.restart(state, plan_of(state, context), now, hurry=False)
            assert (state.next_plan or state.plan).context_length == context
        elif step == "exit" and running:
            running = False
            state, commands = sv.exited(state, "exited", now)
        elif step == "healthy":
            state, commands = sv.healthy(state, now)
        elif step == "tick":
            state, commands = sv.tick(state, now)
        elif step == "stop":
            state, commands = sv.stop(state, now)
        else:
            continue
        for command in commands:
            if isinstance(command, sv.Start):
                assert not running
                running = True
