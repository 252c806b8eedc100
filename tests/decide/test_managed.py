"""A backend that another manager runs: what is asked of it, and what is told."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide import managed
from moetuned.decide import supervision as sv
from moetuned.decide.supervision import UP, Ask, Kill, LaunchPlan, Note, Say, Stage, Supervision
from moetuned.schema.event import EventName, is_kind_of, may_close

UNIT = "the unit llama.service"
SMALL = LaunchPlan(2048)


def state(stage: Stage = Stage.READY, **changes: object) -> Supervision:
    return msgspec.structs.replace(Supervision("glm", LaunchPlan(8192), managed=True), stage=stage, **changes)


def test_a_restart_is_asked_for_once_and_ends_healthy() -> None:
    now, commands = sv.restart(state(), SMALL, 10.0)
    assert commands == (Ask(SMALL),)
    assert sv.restart(now, SMALL, 11.0) == (now, ())
    now, commands = managed.ended(now, "ended", 12.0, UNIT)
    assert commands == ()
    now, _ = managed.appeared(now)
    assert (now.stage, now.plan, now.next_plan, now.restarts) == (Stage.LOADING, SMALL, None, 1)
    now, commands = sv.healthy(now, 20.0)
    assert isinstance(commands[0], Say)
    assert commands[0].name is EventName.BACKEND_RESTARTED
    assert "2048 tokens" in commands[0].message


def test_what_does_not_end_is_killed_and_what_does_not_appear_is_told() -> None:
    now, _ = sv.restart(state(), SMALL, 10.0)
    due = 10.0 + now.timing.restart_seconds
    assert managed.tick(now, due - 0.1, UNIT) == (now, ())
    now, commands = managed.tick(now, due, UNIT)
    assert commands == (Kill(),)
    now, _ = managed.ended(now, "was ended by SIGKILL", 16.0, UNIT)
    assert managed.tick(now, 16.0 + managed.APPEAR_SECONDS - 1, UNIT) == (now, ())
    now, commands = managed.tick(now, 16.0 + managed.APPEAR_SECONDS, UNIT)
    assert (now.stage, now.down) == (Stage.STOPPED, True)
    assert isinstance(commands[0], Say)
    assert commands[0].name is EventName.BACKEND_DOWN
    assert UNIT in commands[0].message
    assert managed.tick(now, 9999.0, UNIT) == (now, ())


def test_a_manager_that_refuses_leaves_it_as_it_was() -> None:
    now, _ = sv.restart(state(), SMALL, 10.0)
    now, commands = managed.refused(now, "systemctl did not end within 20 s", 11.0, running=True)
    assert (now.stage, now.plan, now.next_plan) == (Stage.READY, LaunchPlan(8192), None)
    assert isinstance(commands[0], Say)
    assert commands[0].name is EventName.RELIEF_EXHAUSTED
    assert managed.refused(now, "again", 12.0, running=True) == (now, ())


@pytest.mark.parametrize("hurry", [True, False])
def test_one_whose_manager_refused_and_started_it_again_is_not_down(hurry: bool) -> None:
    now, _ = sv.restart(state(), SMALL, 10.0, hurry=hurry)
    now, _ = managed.ended(now, "ended", 11.0, UNIT)
    now, commands = managed.refused(now, "the port is taken", 12.0, running=False)
    assert (now.stage, commands) == (Stage.STOPPING, ()), "what became of it is not known yet"
    now, commands = managed.appeared(now)
    name = EventName.RELIEF_EXHAUSTED if hurry else EventName.BACKEND_NOT_RESTARTED
    assert commands == (Say(name, "glm could not be restarted: the port is taken; it was started again"),)
    assert (now.stage, now.plan, now.next_plan, now.restarts, now.down) == (
        Stage.LOADING, LaunchPlan(8192), None, 0, False,
    )  # fmt: skip
    assert (now.refusal, now.restart_began) == (None, None)
    assert sv.healthy(now, 20.0)[1] == ()


@pytest.mark.parametrize("told", [True, False])
def test_one_whose_manager_refused_and_that_does_not_run_is_down(told: bool) -> None:
    now, _ = managed.ended(sv.restart(state(), SMALL, 10.0)[0], "ended", 11.0, UNIT)
    assert managed.absent(now) == (now, ()), "the next one is to come"
    now, _ = managed.refused(now, "the port is taken", 12.0, running=False)
    assert managed.tick(now, 12.0 + managed.SETTLE_SECONDS - 0.1, UNIT) == (now, ())
    now, commands = managed.absent(now) if told else managed.tick(now, 12.0 + managed.SETTLE_SECONDS, UNIT)
    message = "glm could not be restarted: the port is taken; it does not run"
    assert commands == (Say(EventName.BACKEND_DOWN, message),)
    assert (now.stage, now.down, now.refusal) == (Stage.STOPPED, True, None)
    now, commands = managed.appeared(now)
    assert (now.stage, commands) == (Stage.LOADING, ())
    assert [each.name for each in sv.healthy(now, 30.0)[1] if isinstance(each, Say)] == [EventName.BACKEND_RECOVERED]


def test_its_conversations_are_read_again_also_where_it_was_started_as_before() -> None:
    now, _ = managed.ended(sv.restart(state(), SMALL, 10.0)[0], "ended", 11.0, UNIT)
    now, _ = managed.refused(msgspec.structs.replace(now, holds=True), "no", 12.0, running=False)
    now, commands = sv.healthy(managed.appeared(now)[0], 20.0)
    assert commands == (sv.RestoreSlots(20.0 + now.timing.restore_seconds),)


@given(
    st.lists(
        st.sampled_from(["appeared", "ended", "restart", "refused", "absent", "stopped", "healthy"])
        | st.floats(0.1, 300.0)
    )
)
def test_down_is_told_only_of_one_that_does_not_run_and_what_was_refused_comes_to_an_end(
    events: list[str | float],
) -> None:
    now, at, runs = state(), 0.0, True
    for event in events:
        at += event if isinstance(event, float) else 0.0
        if event == ("appeared" if runs else "ended") or (event in ("absent", "stopped") and runs):
            continue
        runs = {"appeared": True, "ended": False}.get(str(event), runs)
        event = "refused_gone" if event == "refused" and not runs else event
        now, commands = _happens(now, event, at)
        for command in commands:
            if isinstance(command, Say) and is_kind_of(command.name, EventName.BACKEND_DOWN):
                assert not runs
            if isinstance(command, Say) and "could not be restarted" in command.message:
                by_owner = event == "stopped"
                assert ("does not run" in command.message or by_owner) == (not runs)
        if now.refusal is not None:
            assert (now.stage, now.kill_at, runs) == (Stage.STOPPING, None, False)
            assert now.retry_at is not None
            assert now.retry_at <= at + managed.SETTLE_SECONDS
    now, _ = managed.tick(now, at + managed.SETTLE_SECONDS, UNIT)
    assert now.refusal is None


def test_one_that_its_owner_stopped_is_nobodys_alarm() -> None:
    now, commands = managed.ended(state(), "ended", 10.0, UNIT, by_owner=True)
    assert (now.stage, now.down) == (Stage.STOPPED, False)
    assert isinstance(commands[0], Note)


def test_one_that_its_owner_has_restarted_is_not_said_to_be_left_stopped() -> None:
    now, commands = managed.ended(state(), "ended", 10.0, UNIT, by_owner=True, goes_on=True)
    assert (now.stage, now.down, now.exits) == (Stage.STOPPED, False, ())
    assert commands == (Note("glm ended; somebody stops it or has it restarted"),)
    assert (managed.appeared(now)[0].stage, managed.appeared(now)[0].down) == (Stage.LOADING, False)


def test_one_that_its_owner_stops_while_it_is_restarted_is_not_said_to_be_restarted_for_ever() -> None:
    now, _ = sv.restart(state(), SMALL, 10.0)
    now, _ = managed.appeared(managed.ended(now, "ended", 11.0, UNIT)[0])
    now, commands = managed.ended(now, "ended", 12.0, UNIT, by_owner=True)
    message = "glm ended; its owner stopped it, so it is left stopped"
    assert (now.down, commands) == (False, (Say(EventName.BACKEND_NOT_RESTARTED, message),))


def test_one_that_its_owner_stopped_meanwhile_is_not_waited_for() -> None:
    now, _ = sv.restart(state(), SMALL, 10.0)
    assert managed.absent(now, by_owner=True) == (now, ()), "the old process is not known to have ended"
    now, commands = managed.absent(managed.ended(now, "ended", 11.0, UNIT)[0], by_owner=True)
    message = "glm could not be restarted: its owner stopped it meanwhile, so it is left stopped"
    assert commands == (Say(EventName.BACKEND_NOT_RESTARTED, message),)
    assert (now.stage, now.down, now.restart_began) == (Stage.STOPPED, False, None)


def test_what_an_earlier_daemon_had_restarted_must_appear_in_time() -> None:
    now = managed.goes_on(state(Stage.STOPPED), SMALL, 10.0, hurry=False)
    assert (now.stage, now.next_plan, now.kill_at) == (Stage.STOPPING, SMALL, None)
    assert managed.tick(now, 9.0 + managed.APPEAR_SECONDS, UNIT) == (now, ())
    _, commands = managed.tick(now, 10.0 + managed.APPEAR_SECONDS, UNIT)
    assert [each.name for each in commands if isinstance(each, Say)] == [EventName.BACKEND_DOWN]
    now, _ = managed.appeared(now)
    assert [each.name for each in sv.healthy(now, 20.0)[1] if isinstance(each, Say)] == [EventName.BACKEND_RESTARTED]


def test_a_crash_loop_is_told_once_more() -> None:
    now, told = state(), []
    for at in range(8):
        now, commands = managed.ended(now, "exited with code 1", 10.0 + at, UNIT)
        told += [command for command in commands if isinstance(command, Say)]
        now, _ = managed.appeared(now)
    assert [each.name for each in told] == [EventName.BACKEND_DOWN, EventName.BACKEND_DOWN]
    assert "5 times" in told[1].message
    now, commands = sv.healthy(now, 30.0)
    assert isinstance(commands[0], Say)
    assert commands[0].name is EventName.BACKEND_RECOVERED


def _happens(now: Supervision, event: str | float, at: float) -> sv.Moved:
    if isinstance(event, float):
        return managed.tick(now, at, UNIT)
    moves = {
        "appeared": lambda: managed.appeared(now),
        "ended": lambda: managed.ended(now, "ended", at, UNIT),
        "by_owner": lambda: managed.ended(now, "ended", at, UNIT, by_owner=True),
        "restart": lambda: sv.restart(now, SMALL, at),
        "drain": lambda: sv.drain(now, SMALL, at, 30.0, saves=True),
        "hasten": lambda: sv.hasten(now, at, 0.0),
        "call_off": lambda: (sv.call_off(now), ()),
        "idle": lambda: sv.heard(now, 0, at, at),
        "saved": lambda: sv.saved(now, at, 1),
        "refused": lambda: managed.refused(now, "no", at, running=True),
        "refused_gone": lambda: managed.refused(now, "no", at, running=False),
        "absent": lambda: managed.absent(now),
        "stopped": lambda: managed.absent(now, by_owner=True),
        "healthy": lambda: sv.healthy(now, at),
    }
    return moves[event]()


@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                [
                    "appeared",
                    "ended",
                    "by_owner",
                    "restart",
                    "drain",
                    "hasten",
                    "call_off",
                    "idle",
                    "saved",
                    "refused",
                    "refused_gone",
                    "absent",
                    "stopped",
                    "healthy",
                ]
            ),
            st.floats(0.1, 300.0),
        ),
        max_size=60,
    )
)
def test_it_is_never_started_by_moetuned_and_asked_once_a_restart(
    events: list[str | float],
) -> None:
    now, at, asked = state(Stage.STOPPED), 0.0, False
    for event in [*events, *[60.0] * 10]:
        at += event if isinstance(event, float) else 0.0
        before = now
        now, commands = _happens(now, event, at)
        if before.restart_began is not None and now.restart_began is None:
            said = [command.name for command in commands if isinstance(command, Say)]
            assert any(name is EventName.BACKEND_RESTARTED or may_close(name) for name in said), (
                "how it came out is told"
            )
        assert not any(isinstance(command, sv.Start | sv.Terminate) for command in commands)
        asks = [command for command in commands if isinstance(command, Ask)]
        assert not (asks and asked), "asked again while a restart is under way"
        asked = now.stage is Stage.STOPPING
        assert (now.next_plan is not None) == (asked or now.stage in (Stage.DRAINING, Stage.SAVING))
        if now.stage not in (Stage.LOADING, *UP, Stage.STOPPING):
            assert now.stage is Stage.STOPPED
