"""The life of a supervised backend: no interleaving starts it twice."""

from __future__ import annotations

import msgspec
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


EVENTS = (
    "begin", "healthy", "restart", "stop", "exited", "tick", "failed",
    "drain", "drain and save", "call off", "hasten", "now", "idle", "busy", "untold", "saved", "not saved", "restored",
)  # fmt: skip


def moved(state: sv.Supervision, event: str, now: float) -> sv.Moved:
    """What an event that may come at any time does."""
    match event:
        case "begin":
            return sv.begin(state)
        case "healthy":
            return sv.healthy(state, now)
        case "restart":
            return sv.restart(state, SHORT, now)
        case "stop":
            return sv.stop(state, now)
        case "drain" | "drain and save":
            return sv.drain(state, SHORT, now, 30.0, saves=event != "drain")
        case "call off":
            return sv.call_off(state), ()
        case "saved" | "not saved":
            return sv.saved(state, now, int(event == "saved"))
        case "restored":
            return sv.restored(state, now, 1)
    return sv.tick(state, now)


def told(state: sv.Supervision, event: str, now: float) -> sv.Moved:
    """The same for what is told of a process, whether it runs or not."""
    match event:
        case "hasten" | "now":
            return sv.hasten(state, now, 0.0 if event == "now" else 4.0)
        case "idle" | "busy" | "untold":
            return sv.heard(state, {"idle": 0, "busy": 2}.get(event), now, now)
    return moved(state, event, now)


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.floats(0.1, 40.0)), max_size=80))
def test_never_two_processes(events: list[tuple[str, float]]) -> None:
    state, running, now = fresh(), False, 0.0
    for event, passes in events:
        now += passes
        if event in ("exited", "failed"):
            if not running:
                continue
            running = False
            end = sv.exited if event == "exited" else sv.failed_to_start
            state, commands = end(state, "ended", now)
        else:
            state, commands = told(state, event, now)
        for command in commands:
            if isinstance(command, sv.Start):
                assert not running
                running = True
            if isinstance(command, sv.Terminate | sv.Kill | sv.SaveSlots | sv.RestoreSlots):
                assert running
        assert_sound(state)


def assert_sound(state: sv.Supervision) -> None:
    """What holds at every moment."""
    waits = state.stage in (sv.Stage.DRAINING, sv.Stage.SAVING)
    assert waits == (state.next_plan is not None and state.stage is not sv.Stage.STOPPING)
    assert not state.holds or state.stage in (sv.Stage.STOPPING, sv.Stage.LOADING, sv.Stage.RESTORING)
    assert (state.stage in (sv.Stage.SAVING, sv.Stage.RESTORING)) == (state.stage_until is not None)


def ready(**changes: object) -> sv.Supervision:
    state, _ = sv.begin(fresh())
    state, _ = sv.healthy(state, 1.0)
    return msgspec.structs.replace(state, **changes)


def test_a_restart_waits_until_no_request_is_worked_on() -> None:
    state, commands = sv.drain(ready(busy=2), SHORT, 10.0, 30.0)
    assert (state.stage, commands) == (sv.Stage.DRAINING, ())
    assert sv.before_restart(state, 12.0) == "waits for 2 requests to end before its restart, at most 28 s"
    state, commands = sv.heard(state, 0, 9.9, 10.2)
    assert commands == (), "that answer is older than the wish"
    state, commands = sv.heard(state, 1, 10.5, 10.6)
    assert commands == ()
    assert sv.before_restart(state, 11.0) == "waits for 1 request to end before its restart, at most 29 s"
    state, commands = sv.heard(state, 0, 11.0, 11.2)
    assert (state.stage, commands, state.cut_off) == (sv.Stage.STOPPING, (sv.Terminate(),), 0)
    assert sv.before_restart(state, 12.0) is None


def test_it_does_not_wait_beyond_the_deadline_and_what_is_cut_off_is_counted_and_told() -> None:
    state, _ = sv.drain(ready(busy=2), SHORT, 10.0, 30.0)
    assert sv.tick(state, 39.9)[1] == ()
    state, commands = sv.tick(state, 40.0)
    assert (commands, state.cut_off) == ((sv.Terminate(),), 2)
    state, _ = sv.exited(state, "ended", 41.0)
    state, commands = sv.healthy(state, 50.0)
    (said,) = commands
    assert isinstance(said, sv.Say)
    assert said.message.endswith("after 10 s; 2 requests were cut off")


def test_no_time_to_wait_is_a_restart_at_once() -> None:
    for seconds in (0.0, -1.0):
        assert sv.drain(ready(), SHORT, 10.0, seconds, saves=True)[1] == (sv.Terminate(),)


def test_where_nobody_tells_what_is_worked_on_it_waits_a_moment_only() -> None:
    state, _ = sv.drain(ready(), SHORT, 10.0, 30.0)
    assert sv.heard(state, None, None, 11.9)[1] == ()
    state, commands = sv.heard(state, None, None, 12.0)
    assert (commands, state.cut_off) == ((sv.Terminate(),), None)


def test_the_deadline_is_shortened_and_never_put_off() -> None:
    state, _ = sv.drain(ready(busy=1), SHORT, 10.0, 30.0)
    state, _ = sv.hasten(state, 11.0, 5.0)
    assert state.drain_until == 16.0
    state, _ = sv.hasten(state, 12.0, 30.0)
    assert state.drain_until == 16.0
    assert sv.hasten(state, 12.0, 0.0)[1] == (sv.Terminate(),)
    assert sv.hasten(ready(), 12.0, 0.0) == (ready(), ())


def test_called_off_it_is_as_if_nothing_had_been() -> None:
    before = ready(busy=1, later_plan=SHORT)
    for saves in (False, True):
        state, _ = sv.drain(before, SHORT, 10.0, 30.0, saves=saves)
        if saves:
            state, _ = sv.tick(state, 40.0)
            assert state.stage is sv.Stage.SAVING
        off = sv.call_off(state)
        assert msgspec.structs.replace(off, saves=False) == before
    stopping, _ = sv.restart(before, SHORT, 10.0)
    assert sv.call_off(stopping) == stopping


def test_conversations_are_saved_after_the_drain_and_read_again_before_it_is_told_healthy() -> None:
    state, _ = sv.drain(ready(busy=0), SHORT, 10.0, 30.0, saves=True)
    state, commands = sv.heard(state, 0, 11.0, 11.0)
    until = 11.0 + sv.Timing().save_seconds
    assert (state.stage, commands) == (sv.Stage.SAVING, (sv.SaveSlots(SHORT, until),))
    state, commands = sv.saved(state, 12.0, 2)
    assert (commands, state.holds) == ((sv.Terminate(),), True)
    state, _ = sv.exited(state, "ended", 13.0)
    state, commands = sv.healthy(state, 20.0)
    assert (state.stage, commands) == (sv.Stage.RESTORING, (sv.RestoreSlots(20.0 + sv.Timing().restore_seconds),))
    assert "reads its conversations" in (sv.before_restart(state, 20.0) or "")
    state, commands = sv.restored(state, 21.0, 1, 1)
    assert (state.stage, state.holds) == (sv.Stage.READY, False)
    (said,) = commands
    assert isinstance(said, sv.Say)
    assert said.message.endswith("; 1 conversation goes on; 1 conversation was lost")


def test_neither_saving_nor_reading_is_waited_for_for_ever() -> None:
    state, _ = sv.drain(ready(busy=0), SHORT, 10.0, 30.0, saves=True)
    state, _ = sv.heard(state, 0, 11.0, 11.0)
    late, commands = sv.tick(state, 11.0 + sv.Timing().save_seconds)
    assert (commands, late.holds) == ((sv.Terminate(),), False)
    assert sv.saved(late, 60.0, 3) == (late, ())
    state, _ = sv.saved(state, 12.0, 1)
    state, _ = sv.exited(state, "ended", 13.0)
    state, _ = sv.healthy(state, 20.0)
    state, commands = sv.tick(state, 20.0 + sv.Timing().restore_seconds)
    assert state.stage is sv.Stage.READY
    assert [each.name for each in commands if isinstance(each, sv.Say)] == [EventName.BACKEND_RESTARTED]


def test_one_that_ends_by_itself_while_it_drains_comes_back_with_less() -> None:
    state, _ = sv.drain(ready(busy=1), SHORT, 10.0, 30.0)
    state, commands = sv.exited(state, "was ended by SIGKILL", 11.0)
    assert (state.stage, state.plan, len(state.exits)) == (sv.Stage.WAITING, SHORT, 1)
    assert [each.name for each in commands if isinstance(each, sv.Say)] == [EventName.BACKEND_DOWN]
    state, commands = sv.tick(state, 12.0)
    assert commands == (sv.Start(SHORT),)
    assert sv.healthy(state, 13.0)[0].stage is sv.Stage.READY
