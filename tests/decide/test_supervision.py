"""The life of a supervised backend: no interleaving starts it twice."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from moetuned.decide import supervision as sv
from moetuned.decide.exit_cause import EVENT_OF, WAITS_FOR, Cause, Obstacle
from moetuned.schema.event import EventName, is_kind_of

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
            "its model /m.gguf is not there; it is started once it can be read" in (sv.absence(state, 0.0) or "")
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
    assert sv.absence(state, 0.0) is None
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
        assert state.cut_off is None
        return str(commands[0].message).partition("; ")[2]

    ready, _ = sv.healthy(sv.begin(fresh())[0], 1.0)
    again = sv.exited(sv.restart(ready, SHORT, 2.0)[0], "ended", 3.0)[0]
    assert told(again) == "whether a request was cut off is not known"
    for count, text in ((0, "no request was cut off"), (1, "1 request was cut off"), (3, "3 requests were cut off")):
        assert told(msgspec.structs.replace(again, cut_off=count)) == text
    assert told(sv.restart(fresh(), SHORT, 2.0)[0]) == "no request was cut off", "there was none to be"


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
                    assert self.down == 0, "one event for one down"
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
            assert sv.absence(self.state, self.now)


TestLife = Life.TestCase
