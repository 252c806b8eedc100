"""All that can be asked of a supervisor and can happen to its process, in any order, over the daemons that come and go."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from daemon_fakes import FakeClock, FakeGuard, FakeProcess, FakeSpawn, HeldWorkers
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from supervisor_rig import COMMAND, TIMING, FakeCheck, FakeConversations, backend, use_fakes

from moetuned.daemon import left_behind, pausing, recorded
from moetuned.daemon import service_supervisor as service_module
from moetuned.daemon.loop import Loop
from moetuned.daemon.process_supervisor import Ended, Prepared, ProcessSupervisor
from moetuned.daemon.service_supervisor import ServiceSupervisor
from moetuned.daemon.supervisor import Supervisor
from moetuned.decide import supervision as sv
from moetuned.decide.exit_cause import Cause, Ending, Obstacle
from moetuned.host.processes import ProcessHandle, ProcessIdentity
from moetuned.host.service import ServiceError, ServiceState
from moetuned.host.started_processes import OWNER_VARIABLE, VARIABLE
from moetuned.schema.config import Context
from moetuned.schema.event import EventName
from moetuned.schema.supervise import SuperviseUnit
from moetuned.schema.supervision import RestartCause
from moetuned.state import backend_record

PLANS = st.sampled_from([sv.LaunchPlan(2048, 0), sv.LaunchPlan(8192, 64), sv.LaunchPlan(4096, 0, 1)])
SECONDS = st.sampled_from([0.0, 5.0, 60.0])
COUNTED = (RestartCause.RELIEF, RestartCause.RETURN, RestartCause.BY_HAND)
RUNS = (sv.Stage.LOADING, *sv.UP, sv.Stage.STOPPING)


class Process(FakeProcess):
    """One that must not be signalled once its end is known."""

    def __init__(self, pid: int) -> None:
        super().__init__(pid, [])
        self.ended = self.known = False

    def end(self, code: int | None) -> None:
        self.ended = True
        super().end(code)

    def poll(self) -> Any:
        how = super().poll()
        self.known = how is not None
        return how

    def _signal(self, name: str) -> None:
        assert not self.known, f"{name} to a process that has ended"
        self.signals.append(name)

    def terminate(self) -> None:
        self._signal("TERM")

    def kill(self) -> None:
        self._signal("KILL")

    def pause(self) -> None:
        self._signal("STOP")

    def resume(self) -> None:
        self._signal("CONT")


class World(FakeSpawn):
    """The processes there are, and a handle for each daemon that takes one over."""

    def __init__(self) -> None:
        super().__init__()
        self.words: dict[str, ProcessIdentity] = {}
        self.marks: dict[int, dict[str, str]] = {}
        self.handles: list[Process] = []
        self.alive: set[ProcessIdentity] = set()

    def begin(self, pid: int) -> Process:
        process = Process(pid)
        self.handles.append(process)
        self.alive.add(process.identity)
        return process

    def start(self, argv: list[str], **options: Any) -> FakeProcess:
        assert not self.alive, "two processes"
        if self.refusals:
            raise self.StartError(self.refusals.pop(0))
        process = self.begin(100 + len(self.handles))
        self.marks[process.identity.pid] = environment = options["environment"]
        self.words[environment[VARIABLE]] = process.identity
        return process

    def adopt(self, identity: ProcessIdentity) -> FakeProcess | None:
        if identity not in self.alive:
            return None
        process = Process(identity.pid)
        self.handles.append(process)
        return process

    def find_started(self, word: str) -> tuple[ProcessIdentity | None, tuple[ProcessIdentity, ...]]:
        identity = self.words.get(word)
        return (identity if identity in self.alive else None), ()

    def find_owned(self, owner: str) -> ProcessIdentity | None:
        return next((one for one in self.alive if self.marks.get(one.pid, {}).get(OWNER_VARIABLE) == owner), None)

    def end_all(self, code: int | None) -> None:
        for handle in self.handles:
            if handle.identity in self.alive and not handle.closed:
                handle.end(code)
        self.alive.clear()

    def close(self) -> None:
        for handle in self.handles:
            handle.close()


class Life(RuleBasedStateMachine):
    """What both ways of supervising are held to."""

    supervisor: Supervisor

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.directory = tempfile.mkdtemp(prefix="moetuned-life-")
        self.clock, self.world = FakeClock(), World()
        self.loop = Loop(self.clock)
        use_fakes(self.world, self.patch)
        self.patch.setattr(recorded, "find_started", self.world.find_started)
        self.patch.setattr(recorded, "find_owned", self.world.find_owned)
        self.patch.setattr(recorded, "variables", lambda pid, _names: self.world.marks[pid])
        self.patch.setattr(recorded, "command_line", lambda _pid: ("server",))
        self.patch.setattr(backend_record, "find_started", self.world.find_started)
        self.patch.setattr(left_behind, "left_in_session", lambda _session, _word: ())
        self.patch.setattr(pausing, "PauseGuard", FakeGuard)
        self.said: list[tuple[EventName, str]] = []
        self.begun = 0
        """Restarts that were told to begin, by this supervisor."""
        self.stopping = False
        """Whether it was told to end for good."""
        self.down = 0

    def teardown(self) -> None:
        self.loop.close()
        self.world.close()
        self.patch.undo()
        shutil.rmtree(self.directory)

    def say(self, name: EventName, message: str) -> None:
        self.said.append((name, message))
        if name is EventName.BACKEND_RESTARTING:
            assert not self.stopping, "what is to end for good is not restarted"
            self.begun += 1

    def make(self) -> Supervisor:
        raise NotImplementedError

    def begin_anew(self) -> None:
        self.begun, self.stopping = 0, False
        self.supervisor = self.make()
        self.conversations = FakeConversations()
        self.supervisor.conversations = self.conversations  # type: ignore[assignment]
        self.check = FakeCheck(at_once=True)
        self.supervisor.check = self.check  # type: ignore[assignment]
        self.supervisor.start()

    @rule(plan=PLANS, seconds=SECONDS)
    def restarts(self, plan: sv.LaunchPlan, seconds: float) -> None:
        if not self.stopping:
            self.supervisor.restart(plan, "memory is short", seconds=seconds)

    @rule(plan=PLANS, seconds=SECONDS, context=st.sampled_from([None, 4096]))
    def restarts_by_hand(self, plan: sv.LaunchPlan, seconds: float, context: int | None) -> None:
        if not self.stopping:
            self.supervisor.restart_by_hand(plan, context, seconds=seconds)

    @rule(plan=PLANS)
    def gives_back(self, plan: sv.LaunchPlan) -> None:
        if not self.stopping:
            self.supervisor.give_back(plan, "memory is ample")

    @rule(lost=st.sampled_from([None, "its disk is full"]))
    def conversations_can_be_kept(self, lost: str | None) -> None:
        self.conversations.lost = lost

    @rule(kept=st.integers(0, 2), lost=st.integers(0, 2))
    def conversations_are_done(self, kept: int, lost: int) -> None:
        if self.conversations.did[-1:] == ["save"] or self.conversations.did[-1:] == ["restore"]:
            self.conversations.done(kept, lost)

    @rule(at_once=st.booleans())
    def looks_take_a_while(self, at_once: bool) -> None:
        self.check.at_once = at_once

    @rule(why=st.sampled_from([None, "its model is not there"]))
    def look_is_answered(self, why: str | None) -> None:
        begun = self.begun
        self.check.answer(why)
        assert why is None or self.begun == begun, "what could not start again is not ended"

    @rule()
    def holds(self) -> None:
        self.supervisor.hold()

    @rule()
    def lets_on(self) -> None:
        self.supervisor.let_on()

    @rule()
    def pauses(self) -> None:
        self.supervisor.pause_by_hand()

    @rule()
    def resumes(self) -> None:
        self.supervisor.resume_by_hand()

    @rule(busy=st.sampled_from([None, 0, 2]), fresh=st.booleans())
    def hears(self, busy: int | None, fresh: bool) -> None:
        self.supervisor.hear(busy, self.clock.now if fresh else self.clock.now - 100)

    @rule(seconds=SECONDS)
    def hastens(self, seconds: float) -> None:
        self.supervisor.hasten(seconds)

    @rule()
    def hangs(self) -> None:
        if self.supervisor.state.stage is sv.Stage.READY:
            self.supervisor.hung()

    @rule()
    def calls_off(self) -> None:
        if self.supervisor.draining:
            self.supervisor.call_off()

    @rule()
    def is_healthy(self) -> None:
        if self.supervisor.process is not None:
            self.supervisor.healthy()

    @rule(context=st.sampled_from([8192, 16384]))
    def is_reconfigured(self, context: int) -> None:
        now = self.supervisor.config
        self.supervisor.reconfigure(msgspec.structs.replace(now, context=Context(preferred=context, minimum=1024)))

    @rule(seconds=st.sampled_from([0.0, 0.5, 2.0, 20.0, 700.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds
        self.loop.run_once(0)
        self.supervisor.tick()

    @rule(code=st.sampled_from([0, 1, -9, -15]))
    def process_ends(self, code: int) -> None:
        self.world.end_all(code)
        self.loop.run_once(0)

    @rule(full=st.booleans())
    def disk_is_full(self, full: bool) -> None:
        def fails(*_: object) -> None:
            raise OSError(28, "No space left on device")

        self.patch.setattr(backend_record, "write", fails if full else WRITE)

    @invariant()
    def is_one_process(self) -> None:
        assert len(self.world.alive) <= 1
        if hasattr(self, "supervisor"):
            assert self.supervisor.process is None or self.supervisor.identity in self.world.alive

    @invariant()
    def restarts_are_told(self) -> None:
        if not hasattr(self, "supervisor"):
            return
        counts = self.supervisor.restarts_by_cause
        assert self.begun == sum(counts.get(cause.value, 0) for cause in COUNTED) - self.untold, counts
        kept = self.supervisor.restarts
        made = [one for one in kept if not (one.failed or "").endswith("it goes on as it is")]
        assert len(made) == sum(counts.values()) or len(kept) == 8, "what was refused counts for nothing"
        assert self.supervisor.draining == (self.supervisor._waiting is not None), "what waits can be called off"

    untold = 0
    """Starts that somebody's change of the config led to: those have no event of their own."""

    @invariant()
    def what_is_held_is_let_on(self) -> None:
        if hasattr(self, "supervisor") and self.supervisor.process is None:
            assert not self.supervisor.held
            assert self.supervisor.paused is None


WRITE = backend_record.write


class ChildLife(Life):
    """A child of the daemon."""

    supervisor: ProcessSupervisor

    @initialize(prepares=st.booleans(), examines=st.booleans())
    def first(self, prepares: bool, examines: bool) -> None:
        self.prepares, self.examines = prepares, examines
        self.preparing: list[Any] = []
        self.examining: list[Any] = []
        self.begin_anew()

    def make(self) -> ProcessSupervisor:
        self.preparing, self.examining = [], []

        def prepare(_config: object, plan: sv.LaunchPlan, done: Any) -> None:
            self.preparing.append((plan, done))

        def examine(ended: Ended, done: Any) -> None:
            self.examining.append((ended, done))

        return ProcessSupervisor(
            backend(), self.loop, self.clock, self.directory, self.say, TIMING,
            prepare if self.prepares else None, examine if self.examines else None,
        )  # fmt: skip

    def begin_anew(self) -> None:
        self.untold = 0
        super().begin_anew()

    @precondition(lambda self: self.preparing)
    @rule(what=st.sampled_from(["as it is", "less", "refused", "obstacle"]))
    def is_prepared(self, what: str) -> None:
        plan, done = self.preparing.pop(0)
        match what:
            case "less":
                done(Prepared(tuple(COMMAND), sv.LaunchPlan(1024, 0), said="less fits"))
            case "refused":
                done(Prepared(tuple(COMMAND), plan, refused="it does not fit"))
            case "obstacle":
                done(Prepared(tuple(COMMAND), plan, obstacle=Obstacle(Cause.PORT_TAKEN, "port 1 is taken")))
            case _:
                done(Prepared(tuple(COMMAND), plan))

    @precondition(lambda self: self.examining)
    @rule(cause=st.sampled_from(Cause))
    def is_examined(self, cause: Cause) -> None:
        ended, done = self.examining.pop(0)
        done(Ending(cause, str(ended.how)))

    @rule()
    def start_will_fail(self) -> None:
        self.world.refusals = ["no such program"]

    @rule()
    def is_retried(self) -> None:
        if not self.stopping and self.supervisor.state.stage is sv.Stage.BROKEN:
            self.untold += 1
            self.supervisor.retry()

    @rule()
    def stops(self) -> None:
        self.stopping = True
        self.supervisor.stop()

    @precondition(lambda self: self.stopping)
    @rule()
    def is_wanted_again(self) -> None:
        if not self.supervisor.stopped:
            self.stopping = False
            self.untold += 1
            self.supervisor.resume()

    @rule()
    def daemon_dies(self) -> None:
        """Killed: the next one has what is on the disk."""
        if not self.stopping:
            self.supervisor.let_go()
            self.loop.close()
            self.loop = Loop(self.clock)
            self.world.refusals = []
            self.begin_anew()

    @invariant()
    def is_where_it_says(self) -> None:
        if not hasattr(self, "supervisor"):
            return
        stage = self.supervisor.state.stage
        if stage not in RUNS:
            assert not self.world.alive
        if self.world.alive:
            assert stage in RUNS
        if self.stopping:
            assert stage in (sv.Stage.STOPPING, sv.Stage.STOPPED, sv.Stage.BROKEN)
        else:
            assert stage is not sv.Stage.STOPPED

    @invariant()
    def record_is_of_the_process(self) -> None:
        if not hasattr(self, "supervisor") or backend_record.write is not WRITE or self.supervisor.process is None:
            return
        record = backend_record.read("glm", self.directory)
        if record is None or record != self.supervisor._recorded:
            return  # It could not be written while the disk was full.
        assert backend_record.process_of(record) == self.supervisor.identity
        assert record.ending == (self.supervisor.state.stage is sv.Stage.STOPPING)


class Manager:
    """Another manager, which does what it is told when the test says so."""

    what = "the unit llama.service"

    def __init__(self) -> None:
        self.state = ServiceState(pid=None)
        self.unknown = False
        self.refusal: str | None = None
        self.asked: list[dict[str, str]] = []

    told_to_end = True

    def look(self) -> ServiceState:
        if self.unknown:
            raise ServiceError("the bus does not answer")
        return self.state

    def settable(self) -> frozenset[str]:
        return frozenset({"context"})

    def restart(self, values: Mapping[str, str]) -> None:
        if self.refusal is not None:
            raise ServiceError(self.refusal)
        self.asked.append(dict(values))

    def kill(self, main: ProcessIdentity) -> None:
        pass

    def hold(self, main: ProcessIdentity) -> list[ProcessHandle]:
        return []


class ServiceLife(Life):
    """What another manager runs."""

    supervisor: ServiceSupervisor

    @initialize()
    def first(self) -> None:
        self.patch.setattr(service_module, "spawn", self.world)
        self.patch.setattr(service_module, "identify", lambda pid: ProcessIdentity(pid, pid * 10))
        self.manager = Manager()
        self.begin_anew()

    def make(self) -> ServiceSupervisor:
        self.workers = HeldWorkers()
        config = msgspec.structs.replace(backend(), supervise=SuperviseUnit(unit="llama.service"))
        return ServiceSupervisor(
            config, self.loop, self.clock, self.directory, self.say, self.workers, self.manager, TIMING  # type: ignore[arg-type]
        )  # fmt: skip

    @precondition(lambda self: self.workers.jobs)
    @rule(index=st.integers(0, 3))
    def a_job_is_done(self, index: int) -> None:
        keys = self.workers.keys()
        self.workers.finish(keys[index % len(keys)], really=True)
        self.loop.run_once(0)

    @rule()
    def manager_starts_it(self) -> None:
        if not self.world.alive:
            process = self.world.begin(100 + len(self.world.handles))
            process.close()  # Nobody holds it yet.
            self.manager.state = ServiceState(pid=process.identity.pid)

    @rule(by_owner=st.booleans())
    def it_ends(self, by_owner: bool) -> None:
        self.manager.state = ServiceState(pid=None, ended="exited with code 1", stopped_by_owner=by_owner)
        self.world.end_all(1)
        self.loop.run_once(0)

    @rule(unknown=st.booleans(), refusal=st.sampled_from([None, "Unit llama.service is masked."]))
    def manager_is_as(self, unknown: bool, refusal: str | None) -> None:
        self.manager.unknown, self.manager.refusal = unknown, refusal

    @rule()
    def is_not_in_the_config_any_more(self) -> None:
        self.supervisor.stop()
        said = list(self.said)
        for _ in range(3):
            waiting = self.workers.keys()
            for key in waiting:
                self.workers.finish(key, really=True)
            self.clock.now += 200.0
            self.loop.run_once(0)
        assert self.said == said, "it is left alone"
        assert not self.loop._timers, "nothing is waited for"
        self.begin_anew()

    @rule()
    def daemon_dies(self) -> None:
        self.supervisor.let_go()
        self.loop.close()
        self.loop = Loop(self.clock)
        self.begin_anew()

    @invariant()
    def is_nowhere_without_a_way_on(self) -> None:
        """Without a process it is stopped, or a restart that is waited for will be told to have failed."""
        if not hasattr(self, "supervisor") or self.supervisor.process is not None:
            return
        state = self.supervisor.state
        if state.stage not in (sv.Stage.STOPPED, sv.Stage.STOPPING):
            assert self.supervisor._exit is not None, "its end is not known yet"
            assert any(key.startswith("asking") for key in list(self.workers.keys())), (
                "its manager is asked how it ended"
            )


TestChildLife = ChildLife.TestCase
TestChildLife.settings = settings(stateful_step_count=40, deadline=None)
TestServiceLife = ServiceLife.TestCase
TestServiceLife.settings = settings(stateful_step_count=40, deadline=None)
