"""The life of a supervised backend: no interleaving starts it twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide import supervision as sv
from moetuned.schema.event import EventName

PLAN = sv.LaunchPlan(8192, 1024)
SHORT = sv.LaunchPlan(2048, 0)


def fresh() -> sv.Supervision:
    return sv.Supervision("glm", PLAN)


def test_start_load_ready() -> None:
    state, commands = sv.begin(fresh())
    assert commands == (sv.Start(PLAN),)
    state, commands = sv.healthy(state, 5.0)
    assert state.stage == sv.Stage.READY
    assert commands == ()


def test_restart_waits_for_the_exit_and_says_how_long_it_took() -> None:
    state, _ = sv.begin(fresh())
    state, _ = sv.healthy(state, 1.0)
    state, commands = sv.restart(state, SHORT, 10.0)
    assert commands == (sv.Terminate(),)
    state, commands = sv.exited(state, "exited with code 0", 12.0)
    assert commands == (sv.Start(SHORT),)
    state, commands = sv.healthy(state, 20.0)
    assert [c.name for c in commands if isinstance(c, sv.Say)] == [EventName.BACKEND_RESTARTED]
    assert "2048" in commands[0].message
    assert "10 s" in commands[0].message
    assert state.restarts == 1


def test_a_backend_that_refuses_to_end_is_killed() -> None:
    state, _ = sv.begin(fresh())
    state, _ = sv.stop(state, 0.0)
    state, commands = sv.tick(state, sv.Timing().terminate_seconds - 0.1)
    assert commands == ()
    state, commands = sv.tick(state, sv.Timing().terminate_seconds)
    assert commands == (sv.Kill(),)
    state, commands = sv.exited(state, "was killed", 20.0)
    assert state.stage == sv.Stage.STOPPED
    assert commands == ()


def test_crash_loop_trips_the_breaker() -> None:
    state, _ = sv.begin(fresh())
    now = 0.0
    for _ in range(sv.Timing().breaker_exits - 1):
        state, commands = sv.exited(state, "exited with code 1", now)
        assert state.stage == sv.Stage.WAITING
        assert state.retry_at is not None
        now = state.retry_at
        state, commands = sv.tick(state, now)
        assert commands == (sv.Start(PLAN),)
    state, commands = sv.exited(state, "exited with code 1", now)
    assert state.stage == sv.Stage.BROKEN
    assert "leaves it stopped" in commands[0].message
    assert sv.tick(state, now + 1e6) == (state, ())


def test_recovery_after_a_crash_is_said_once() -> None:
    state, _ = sv.begin(fresh())
    state, _ = sv.exited(state, "was killed by signal 9", 0.0)
    state, _ = sv.tick(state, 5.0)
    state, commands = sv.healthy(state, 9.0)
    assert [c.name for c in commands if isinstance(c, sv.Say)] == [EventName.BACKEND_RECOVERED]
    assert sv.healthy(state, 10.0)[1] == ()


def test_adopted_keeps_the_plan_it_runs_with() -> None:
    state = sv.adopt(fresh(), SHORT)
    state, commands = sv.healthy(state, 1.0)
    assert commands == ()
    assert state.plan == SHORT


@given(st.lists(st.sampled_from(["begin", "healthy", "restart", "stop", "exited", "tick", "failed"]), max_size=60))
def test_never_two_processes(events: list[str]) -> None:
    state, running, now = fresh(), False, 0.0
    for event in events:
        now += 20.0
        moved: sv.Moved
        match event:
            case "begin":
                moved = sv.begin(state)
            case "healthy":
                moved = sv.healthy(state, now)
            case "restart":
                moved = sv.restart(state, SHORT, now)
            case "stop":
                moved = sv.stop(state, now)
            case "tick":
                moved = sv.tick(state, now)
            case _ if not running:
                continue
            case "exited":
                running = False
                moved = sv.exited(state, "ended", now)
            case _:
                running = False
                moved = sv.failed_to_start(state, "no such file", now)
        state, commands = moved
        for command in commands:
            if isinstance(command, sv.Start):
                assert not running
                running = True
            if isinstance(command, sv.Terminate | sv.Kill):
                assert running
