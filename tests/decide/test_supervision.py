"""The life of a supervised backend: no interleaving starts it twice."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from moetuned.decide import supervision as sv
from moetuned.decide import supervision_words as words
from moetuned.decide.cutting_off import UNKNOWN, CutOff
from moetuned.decide.exit_cause import EVENT_OF, WAITS_FOR, Cause, Obstacle
from moetuned.schema.event import EventName, is_kind_of, may_close

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


def test_a_config_that_changes_while_relief_ends_it_gives_no_more_than_relief_did() -> None:
    for wanted, hurry, expected in ((16384, True, SHORT), (1024, True, None), (16384, False, None)):
        state, _ = sv.restart(ready(), SHORT, 10.0, hurry=hurry)
        state, commands = sv.exited(sv.reconfigure(state, sv.LaunchPlan(wanted)), "exited with code 0", 12.0)
        assert commands == (sv.Start(expected or sv.LaunchPlan(wanted)),)
        assert state.later_plan is None


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
            running, before = False, state
            end = sv.exited if event == "exited" else sv.failed_to_start
            state, commands = end(state, "ended", now)
        else:
            before = state
            state, commands = told(state, event, now)
        if before.restart_began is not None and state.restart_began is None:
            said = [each.name for each in commands if isinstance(each, sv.Say)]
            assert any(name is EventName.BACKEND_RESTARTED or may_close(name) for name in said), (
                "how it came out is told"
            )
        for command in commands:
            if isinstance(command, sv.Start):
                assert not running
                running = True
            if isinstance(command, sv.Terminate | sv.Kill | sv.SaveSlots | sv.RestoreSlots):
                assert running
        assert_sound(state)


@pytest.mark.parametrize("obstacle", [None, Obstacle(Cause.MODEL_MISSING, "its model is not there")])
def test_how_a_restart_came_out_is_told_also_of_one_that_was_down(obstacle: Obstacle | None) -> None:
    def fails(state: sv.Supervision) -> sv.Moved:
        return sv.exited(state, "exited", 3.0) if obstacle is None else sv.obstructed(state, obstacle, 3.0)

    state, _ = fails(sv.begin(fresh())[0])
    state, commands = fails(sv.begin(state)[0])
    assert not any(isinstance(each, sv.Say) for each in commands), "that is known"
    state, commands = fails(sv.restart(state, SHORT, 2.0, hurry=False)[0])
    assert [may_close(each.name) for each in commands if isinstance(each, sv.Say)] == [(EventName.BACKEND_RESTARTING,)]
    state, commands = fails(sv.begin(state)[0])
    assert not any(isinstance(each, sv.Say) for each in commands)


def assert_sound(state: sv.Supervision) -> None:
    """What holds at every moment."""
    waits = state.stage in (sv.Stage.DRAINING, sv.Stage.SAVING)
    assert waits == (state.next_plan is not None and state.stage is not sv.Stage.STOPPING)
    assert not state.holds or state.stage in (
        sv.Stage.DRAINING,
        sv.Stage.STOPPING,
        sv.Stage.LOADING,
        sv.Stage.RESTORING,
    )
    assert not (state.holds and state.saves and state.stage is sv.Stage.DRAINING), "it saves once"
    assert (state.stage in (sv.Stage.SAVING, sv.Stage.RESTORING)) == (state.stage_until is not None)


def ready(**changes: object) -> sv.Supervision:
    state, _ = sv.begin(fresh())
    state, _ = sv.healthy(state, 1.0)
    return msgspec.structs.replace(state, **changes)


def test_a_restart_waits_until_no_request_is_worked_on() -> None:
    state, commands = sv.drain(ready(busy=2), SHORT, 10.0, 30.0)
    assert (state.stage, commands) == (sv.Stage.DRAINING, ())
    assert words.before_restart(state, 12.0) == "waits for 2 requests to end before its restart, at most 28 s"
    state, commands = sv.heard(state, 0, 9.9, 10.2)
    assert commands == (), "that answer is older than the wish"
    state, commands = sv.heard(state, 1, 10.5, 10.6)
    assert commands == ()
    assert words.before_restart(state, 11.0) == "waits for 1 request to end before its restart, at most 29 s"
    state, commands = sv.heard(state, 0, 11.0, 11.2)
    assert (state.stage, commands, state.cut_off.requests) == (sv.Stage.STOPPING, (sv.Terminate(),), 0)
    assert words.before_restart(state, 12.0) is None


def test_it_does_not_wait_beyond_the_deadline_and_what_is_cut_off_is_counted_and_told() -> None:
    state, _ = sv.drain(ready(busy=2), SHORT, 10.0, 30.0)
    assert sv.tick(state, 39.9)[1] == ()
    unheard, commands = sv.tick(state, 40.0)
    assert (commands, unheard.cut_off.requests) == ((sv.Terminate(),), None), "what it last said is from before"
    state, commands = sv.heard(state, 2, 39.9, 40.0)
    assert (commands, state.cut_off.requests) == ((sv.Terminate(),), 2)
    state, _ = sv.exited(state, "ended", 41.0)
    state, commands = sv.healthy(state, 50.0)
    (said,) = commands
    assert isinstance(said, sv.Say)
    assert said.message.endswith("after 10 s; 2 requests were cut off")


def test_an_answer_right_before_the_deadline_ends_the_wait_so_that_what_is_cut_off_is_known() -> None:
    state, _ = sv.drain(ready(busy=0), SHORT, 10.0, 30.0)
    late = 40.0 - sv.Timing().last_look_seconds
    assert sv.heard(state, 1, 39.0, late - 0.01)[1] == ()
    assert sv.heard(state, 1, 9.9, late)[1] == (), "that answer is older than the wish"
    ended, commands = sv.heard(state, 1, 39.0, late)
    assert (commands, ended.cut_off.requests) == ((sv.Terminate(),), 1)


def test_no_time_to_wait_is_a_restart_at_once() -> None:
    for seconds in (0.0, -1.0):
        assert sv.drain(ready(), SHORT, 10.0, seconds, saves=True)[1] == (sv.Terminate(),)


def test_where_its_limit_comes_soon_it_is_killed_soon() -> None:
    for seconds, due in ((0.5, 10.5), (60.0, 10.0 + sv.Timing().restart_seconds)):
        state, _ = sv.drain(ready(), SHORT, 10.0, 0.0, end_seconds=seconds)
        assert state.kill_at == due


def test_where_nobody_tells_what_is_worked_on_it_waits_a_moment_only() -> None:
    state, _ = sv.drain(ready(), SHORT, 10.0, 30.0)
    assert sv.heard(state, None, None, 11.9)[1] == ()
    state, commands = sv.heard(state, None, None, 12.0)
    assert (commands, state.cut_off.requests) == ((sv.Terminate(),), None)


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
        assert msgspec.structs.replace(off, saves=False, busy=1) == before
    state, _ = sv.drain(before, SHORT, 10.0, 30.0, saves=True)
    state, _ = sv.heard(state, 0, 11.0, 11.0)
    state, _ = sv.saved(state, 12.0, 2, 1)
    for again in (state, sv.heard(state, 1, 12.0, 12.1)[0]):
        assert again.holds
        off = sv.call_off(again)
        assert msgspec.structs.replace(off, saves=False, busy=1) == before
    stopping, _ = sv.restart(before, SHORT, 10.0)
    assert sv.call_off(stopping) == stopping


def test_conversations_are_saved_after_the_drain_and_read_again_before_it_is_told_healthy() -> None:
    state, _ = sv.drain(ready(busy=0), SHORT, 10.0, 30.0, saves=True)
    state, commands = sv.heard(state, 0, 11.0, 11.0)
    until = 11.0 + sv.Timing().save_seconds
    assert (state.stage, commands) == (sv.Stage.SAVING, (sv.SaveSlots(SHORT, until),))
    state, commands = sv.saved(state, 12.0, 2)
    assert (state.stage, commands, state.holds) == (sv.Stage.DRAINING, (), True), "it may be asked something meanwhile"
    assert sv.heard(state, 0, 11.9, 12.1)[1] == (), "that answer is from before they were saved"
    state, commands = sv.heard(state, 0, 12.0, 12.1)
    assert (commands, state.holds, state.cut_off.requests) == ((sv.Terminate(),), True, 0)
    state, _ = sv.exited(state, "ended", 13.0)
    state, commands = sv.healthy(state, 20.0)
    assert (state.stage, commands) == (sv.Stage.RESTORING, (sv.RestoreSlots(20.0 + sv.Timing().restore_seconds),))
    assert "reads its conversations" in (words.before_restart(state, 20.0) or "")
    state, commands = sv.restored(state, 21.0, 1, 1)
    assert (state.stage, state.holds) == (sv.Stage.READY, False)
    (said,) = commands
    assert isinstance(said, sv.Say)
    assert said.message.endswith("; 1 conversation goes on; 1 conversation was lost; no request was cut off")


def test_neither_saving_nor_reading_is_waited_for_for_ever() -> None:
    state, _ = sv.drain(ready(busy=0), SHORT, 10.0, 30.0, saves=True)
    state, _ = sv.heard(state, 0, 11.0, 11.0)
    late, commands = sv.tick(state, 11.0 + sv.Timing().save_seconds)
    assert (commands, late.holds) == ((sv.Terminate(),), False)
    assert sv.saved(late, 60.0, 3) == (late, ())
    state, _ = sv.hasten(sv.saved(state, 12.0, 1)[0], 12.0, 0.0)
    state, _ = sv.exited(state, "ended", 13.0)
    state, _ = sv.healthy(state, 20.0)
    state, commands = sv.tick(state, 20.0 + sv.Timing().restore_seconds)
    assert state.stage is sv.Stage.READY
    assert [each.name for each in commands if isinstance(each, sv.Say)] == [EventName.BACKEND_RESTARTED]


def saved_at(now: float, busy: int | None = 0) -> sv.Supervision:
    """Its restart waits until 40; what it says at 12 begins the saving, which is done at `now`."""
    state, _ = sv.drain(ready(busy=busy), SHORT, 10.0, 30.0, saves=True)
    state, _ = sv.heard(state, busy, 12.0, 12.0)
    assert state.stage is sv.Stage.SAVING
    return sv.saved(state, now, 1)[0]


def test_a_request_that_comes_while_conversations_are_saved_is_waited_for_and_they_are_kept() -> None:
    state, commands = sv.heard(saved_at(20.0), 1, 20.0, 20.1)
    assert (state.stage, commands, state.holds) == (sv.Stage.DRAINING, (), True)
    assert words.before_restart(state, 21.0) == "waits for 1 request to end before its restart, at most 19 s"
    state, commands = sv.heard(state, 0, 25.0, 25.1)
    assert (commands, state.holds, state.cut_off.requests) == ((sv.Terminate(),), True, 0), "they are not saved again"


def test_once_more_it_is_not_waited_beyond_the_deadline() -> None:
    busy, _ = sv.heard(saved_at(20.0), 1, 20.0, 20.1)
    ended, commands = sv.tick(busy, 40.0)
    assert (commands, ended.holds, ended.cut_off.requests) == ((sv.Terminate(),), True, None)
    assert sv.hasten(busy, 21.0, 0.0)[1] == (sv.Terminate(),)
    soon, _ = sv.hasten(busy, 21.0, 5.0)
    assert sv.tick(soon, 26.0)[1] == (sv.Terminate(),)


def test_where_no_time_is_left_or_nobody_tells_it_is_not_looked_once_more() -> None:
    assert saved_at(39.8).stage is sv.Stage.STOPPING
    assert saved_at(20.0, busy=None).stage is sv.Stage.STOPPING
    state, _ = sv.drain(ready(busy=0), SHORT, 10.0, 30.0, saves=True)
    state, _ = sv.heard(state, 0, 11.0, 11.0)
    state, _ = sv.hasten(state, 12.0, 3.0)
    assert (state.stage_until, state.drain_until) == (15.0, 15.0)
    assert sv.saved(state, 14.9, 1)[1] == (sv.Terminate(),)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["idle", "busy", "untold", "saved", "not saved", "tick", "hasten"]), st.floats(0.0, 9.0)
        )
    ),
    st.floats(0.1, 60.0),
)
def test_whatever_comes_it_is_told_to_end_within_the_wait_and_the_saving(
    events: list[tuple[str, float]], seconds: float
) -> None:
    state, _ = sv.drain(ready(busy=1), SHORT, 10.0, seconds, saves=True)
    now, longest, saving = 10.0, 10.0 + seconds, 0
    for event, passes in events:
        due = min(at for at in (state.drain_until, state.stage_until, longest) if at is not None)
        now = max(now, min(now + passes, due))  # What waits is not left to the next look.
        before = state.stage
        state, commands = sv.tick(*((state, now))) if now >= due else (state, ())
        if state.stage is not sv.Stage.STOPPING:
            state, more = told(state, event, now)
            commands = (*commands, *more)
        saving += sum(isinstance(one, sv.SaveSlots) for one in commands)
        if any(isinstance(one, sv.SaveSlots) for one in commands):
            longest = max(longest, now + state.timing.save_seconds)
        if state.stage is sv.Stage.STOPPING:
            assert before is not sv.Stage.STOPPING
            break
        assert state.drain_until is None or state.drain_until <= 10.0 + seconds
    assert saving <= 1
    if state.stage is not sv.Stage.STOPPING:
        for _ in range(2):
            state, _ = sv.tick(state, longest)
            longest += state.timing.save_seconds
        assert state.stage is sv.Stage.STOPPING


def test_one_that_ends_by_itself_while_it_drains_comes_back_with_less() -> None:
    state, _ = sv.drain(ready(busy=1), SHORT, 10.0, 30.0)
    state, commands = sv.exited(state, "was ended by SIGKILL", 11.0)
    assert (state.stage, state.plan, len(state.exits)) == (sv.Stage.WAITING, SHORT, 1)
    assert [each.name for each in commands if isinstance(each, sv.Say)] == [EventName.BACKEND_DOWN]
    state, commands = sv.tick(state, 12.0)
    assert commands == (sv.Start(SHORT),)
    assert sv.healthy(state, 13.0)[0].stage is sv.Stage.READY


def names(commands: tuple[sv.Command, ...]) -> list[EventName]:
    return [command.name for command in commands if isinstance(command, sv.Say)]


def test_each_cause_has_its_event_and_all_but_two_are_tried_again_after_a_while() -> None:
    loading, _ = sv.begin(fresh())
    for cause, event in EVENT_OF.items():
        state, commands = sv.exited(loading, "ended", 0.0, cause)
        assert names(commands) == [event]
        counts = cause not in WAITS_FOR
        assert (len(state.exits), state.fruitless) == ((1, 1) if counts else (0, 0))
        assert state.retry_at == (1.0 if counts else sv.Timing().look_seconds)


MISSING = Obstacle(Cause.MODEL_MISSING, "its model /m.gguf is not there")


def test_what_lets_it_not_start_is_said_once_and_never_counts() -> None:
    state, said = fresh(), []
    for n in range(50):
        state, commands = sv.begin(state) if n == 0 else sv.tick(state, n * 5.0)
        assert commands == (sv.Start(PLAN),)
        assert (
            "its model /m.gguf is not there; it is started once it can be read" in (words.absence(state, 0.0) or "")
            or n == 0
        )
        state, commands = sv.obstructed(state, MISSING, n * 5.0)
        said += commands
        assert state.stage is sv.Stage.WAITING
    assert [name.name for name in said] == [EventName.BACKEND_MODEL_MISSING]
    assert said[0].message == (
        "glm cannot be started: its model /m.gguf is not there; it is started once it can be read"
    )
    state, _ = sv.begin(state)
    state = sv.launched(state, PLAN)
    assert words.absence(state, 0.0) is None
    assert names(sv.healthy(state, 300.0)[1]) == [EventName.BACKEND_RECOVERED]


def test_one_that_is_stopped_while_that_is_found_is_stopped() -> None:
    state, _ = sv.begin(fresh())
    state, _ = sv.stop(state, 0.0)
    assert sv.obstructed(state, MISSING, 1.0)[0].stage is sv.Stage.STOPPED


def test_one_that_takes_long_to_fail_and_is_never_ready_trips_the_breaker_too() -> None:
    state, commands = sv.begin(fresh())
    now = 0.0
    for _ in range(sv.Timing().breaker_exits):
        assert state.stage is sv.Stage.LOADING
        now += sv.Timing().breaker_seconds
        state, commands = sv.exited(state, "was ended by SIGKILL", now, Cause.OOM_KILLED)
        if state.retry_at is not None:
            now = state.retry_at
            state, _ = sv.tick(state, now)
    assert state.stage is sv.Stage.BROKEN
    assert names(commands) == [EventName.BACKEND_CRASH_LOOP]
    assert "5 times in a row without getting ready" in commands[0].message
    assert "moetunectl backend restart glm" in commands[0].message
    state, commands = sv.restart(state, PLAN, now)
    assert commands == (sv.Start(PLAN),)
    assert (state.exits, state.fruitless) == ((), 0), "who tries again gets all tries"


@pytest.mark.parametrize("cause", sorted(WAITS_FOR))
def test_what_was_in_the_way_before_it_was_ready_is_told_again_when_it_comes_back(cause: Cause) -> None:
    state, _ = sv.begin(fresh())
    state, commands = sv.exited(state, "ended", 1.0, cause)
    assert names(commands) == [EVENT_OF[cause]]
    state, _ = sv.tick(state, 10.0)
    state, commands = sv.healthy(state, 11.0)
    assert names(commands) == [EventName.BACKEND_RECOVERED]
    state, commands = sv.exited(state, "ended", 12.0, cause)
    assert names(commands) == [EVENT_OF[cause]]


def test_being_ready_in_between_is_no_such_row() -> None:
    state, _ = sv.begin(fresh())
    now = 0.0
    for _ in range(3 * sv.Timing().breaker_exits):
        state, _ = sv.healthy(state, now)
        now += sv.Timing().breaker_seconds
        state, _ = sv.exited(state, "ended", now)
        assert state.stage is sv.Stage.WAITING
        state, _ = sv.tick(state, now + 60.0)


def test_one_that_hangs_is_ended_killed_and_started_again() -> None:
    state, _ = sv.begin(fresh())
    assert sv.hung(state, 0.0) == (state, ()), "one that loads hangs not"
    state, _ = sv.healthy(state, 1.0)
    state, commands = sv.hung(state, 100.0)
    assert commands == (sv.Terminate(),)
    state, commands = sv.tick(state, 100.0 + sv.Timing().terminate_seconds)
    assert commands == (sv.Kill(),)
    state, commands = sv.exited(state, "was ended by SIGKILL", 116.0)
    assert commands == (sv.Note("glm hung and was ended; it is started again in 1.0 s"),), "that it hangs was told"
    assert state.exits == (116.0,)
    state, commands = sv.tick(state, 117.0)
    assert commands == (sv.Start(PLAN),)
    assert names(sv.healthy(state, 120.0)[1]) == [EventName.BACKEND_RECOVERED]


def test_hanging_again_and_again_trips_the_breaker() -> None:
    state, _ = sv.begin(fresh())
    now = 0.0
    for _ in range(sv.Timing().breaker_exits):
        state, _ = sv.healthy(state, now)
        state, _ = sv.hung(state, now)
        state, commands = sv.exited(state, "ended", now)
        now += 60.0
        if state.stage is sv.Stage.WAITING:
            state, _ = sv.tick(state, now)
    assert state.stage is sv.Stage.BROKEN
    assert names(commands) == [EventName.BACKEND_CRASH_LOOP]


def test_how_many_requests_a_restart_cut_off() -> None:
    def told(state: sv.Supervision) -> str:
        state, commands = sv.healthy(state, 9.0)
        assert state.cut_off == UNKNOWN
        return str(commands[0].message).partition("; ")[2]

    ready, _ = sv.healthy(sv.begin(fresh())[0], 1.0)
    again = sv.exited(sv.restart(ready, SHORT, 2.0)[0], "ended", 3.0)[0]
    assert told(again) == "whether a request was cut off is not known"
    assert told(msgspec.structs.replace(again, cut_off=CutOff(3))) == "3 requests were cut off"
    assert told(sv.restart(fresh(), SHORT, 2.0)[0]) == "no request was cut off", "there was none to be"


def test_what_is_connected_goes_before_what_was_heard() -> None:
    state, _ = sv.restart(ready(busy=0), SHORT, 2.0)
    state = sv.counted(state, 2)
    assert state.cut_off == CutOff(None, 2)
    state = sv.counted_on(state, 1)
    assert state.cut_off == CutOff(None, 3)
    later, _ = sv.restart(sv.healthy(sv.exited(state, "ended", 3.0)[0], 4.0)[0], SHORT, 5.0)
    assert later.cut_off == UNKNOWN
    assert sv.counted(ready(), 3) == sv.counted_on(ready(), 3) == ready(), "only while it ends"


def test_where_its_manager_ends_it_later_what_comes_until_then_counts() -> None:
    for heard in (0, 1, None):
        state, _ = sv.restart(ready(busy=heard, managed=True), SHORT, 2.0)
        state = sv.counted(state, 0)
        assert state.cut_off == CutOff(0)
        assert sv.counted_on(state, 2).cut_off == CutOff(None, 2)


def test_an_obstacle_of_before_it_was_ready_silences_no_later_one() -> None:
    obstacle = Obstacle(Cause.MODEL_MISSING, "its model /m.gguf is not there")
    state = msgspec.structs.replace(sv.begin(fresh())[0], obstacle=obstacle)
    state, _ = sv.healthy(state, 1.0)
    state, _ = sv.exited(sv.stop(state, 2.0)[0], "ended", 3.0)
    state, commands = sv.obstructed(sv.begin(state)[0], obstacle, 4.0)
    assert names(commands) == [EventName.BACKEND_MODEL_MISSING]


class Life(RuleBasedStateMachine):
    """A supervisor's side of the contract: what it does with the commands, and when it tells what."""

    def __init__(self) -> None:
        super().__init__()
        self.state = fresh()
        self.now = 0.0
        self.lives = False
        """Whether a process runs."""
        self.wanted = False
        """Whether anybody wants it to run: nobody has stopped it."""
        self.down = 0
        """Begin events that no recovered has followed yet."""

    def move(self, moved: sv.Moved) -> None:
        before, (self.state, commands) = self.state, moved
        for command in commands:
            match command:
                case sv.Start():
                    assert not self.lives, "two processes"
                    self.lives = True
                case sv.Terminate() | sv.Kill():
                    assert self.lives
                case sv.Say(name=EventName.BACKEND_CRASH_LOOP):
                    assert self.state.stage is sv.Stage.BROKEN
                    self.down = 1
                case sv.Say(name=EventName.BACKEND_RECOVERED):
                    assert self.down == 1, "what was not down does not recover"
                    self.down = 0
                case sv.Say(name=name) if is_kind_of(name, EventName.BACKEND_DOWN):
                    assert self.down == 0 or before.restart_began is not None, (
                        "one event for one down, and for each restart"
                    )
                    self.down = 1
        if self.state.stage is sv.Stage.BROKEN and before.stage is not sv.Stage.BROKEN:
            assert names(commands) == [EventName.BACKEND_CRASH_LOOP], "the breaker says that it gives up"

    @precondition(lambda self: not self.lives)
    @rule()
    def begin(self) -> None:
        self.wanted = True
        self.move(sv.begin(self.state))

    @rule()
    def is_healthy(self) -> None:
        if self.lives:
            self.move(sv.healthy(self.state, self.now))

    @rule(plan=st.sampled_from([PLAN, SHORT]))
    def restart(self, plan: sv.LaunchPlan) -> None:
        self.wanted = True
        self.move(sv.restart(self.state, plan, self.now))

    @rule()
    def stop(self) -> None:
        self.wanted = False
        self.move(sv.stop(self.state, self.now))

    @rule(seconds=st.sampled_from([0.5, 5.0, 20.0, 1000.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.move(sv.tick(self.state, self.now))

    @precondition(lambda self: self.lives)
    @rule(cause=st.sampled_from(Cause))
    def process_ends(self, cause: Cause) -> None:
        self.lives = False
        self.move(sv.exited(self.state, "ended", self.now, cause))

    @precondition(lambda self: self.lives and self.state.stage in (sv.Stage.LOADING, sv.Stage.STOPPING))
    @rule(cause=st.sampled_from(sorted(WAITS_FOR)))
    def start_is_obstructed(self, cause: Cause) -> None:
        self.lives = False
        self.move(sv.obstructed(self.state, Obstacle(cause, "in the way"), self.now))

    @precondition(lambda self: self.lives and self.state.stage in (sv.Stage.LOADING, sv.Stage.STOPPING))
    @rule()
    def start_fails(self) -> None:
        self.lives = False
        self.move(sv.failed_to_start(self.state, "no such program", self.now))

    @precondition(lambda self: self.lives)
    @rule()
    def hangs(self) -> None:
        """The daemon tells that it hangs before it has it ended."""
        if self.state.stage is sv.Stage.READY:
            self.down = 1
        self.move(sv.hung(self.state, self.now))

    @invariant()
    def is_not_lost(self) -> None:
        """Whoever wants it has a process, or one to come at a known time, or was told that it is left alone."""
        assert self.lives == (self.state.stage in (sv.Stage.LOADING, sv.Stage.READY, sv.Stage.STOPPING))
        if self.state.stage is sv.Stage.STOPPING:
            assert self.state.kill_at is not None, "its end is not waited for without end"
        if self.state.stage is sv.Stage.WAITING:
            assert self.state.retry_at is not None
        if self.wanted:
            assert self.state.stage is not sv.Stage.STOPPED
        elif self.state.stage in (sv.Stage.LOADING, sv.Stage.READY, sv.Stage.WAITING):
            raise AssertionError("nobody wants it")

    @invariant()
    def can_say_why_it_does_not_run(self) -> None:
        if self.state.stage in (sv.Stage.WAITING, sv.Stage.BROKEN, sv.Stage.STOPPING):
            assert words.absence(self.state, self.now)


TestLife = Life.TestCase


def test_one_that_hung_and_answers_again_is_down_no_more() -> None:
    hung = msgspec.structs.replace(sv.Supervision("glm", sv.LaunchPlan(8192)), stage=sv.Stage.READY, down=True)
    assert not sv.answers(hung).down
    waits = msgspec.structs.replace(hung, stage=sv.Stage.WAITING)
    assert sv.answers(waits) == waits, "it ended since"
