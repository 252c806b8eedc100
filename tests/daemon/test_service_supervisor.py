"""A backend that another manager runs: followed through its process and its manager's words, restarted through it alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from daemon_fakes import FakeClock, FakeGuard, FakeGuards, FakeProcess, FakeSpawn, HeldWorkers
from fakes.orphan_process import Orphans, is_stopped, orphan
from supervisor_rig import FakeCheck, use_fakes

from moetuned.daemon import pausing, recorded
from moetuned.daemon import service_supervisor as module
from moetuned.daemon.loop import Loop
from moetuned.daemon.pausing import PAUSE_AGAIN_SECONDS, PAUSE_SECONDS
from moetuned.daemon.service_supervisor import (
    LOOK_LATER_SECONDS,
    LOOK_SECONDS,
    LOOK_SELDOM_SECONDS,
    ServiceSupervisor,
)
from moetuned.decide.managed import APPEAR_SECONDS, SETTLE_SECONDS
from moetuned.decide.supervision import LaunchPlan, Stage, Timing
from moetuned.host.processes import ProcessHandle, ProcessIdentity, is_alive
from moetuned.host.service import ServiceError, ServiceState
from moetuned.schema.backend_description import BackendDescription
from moetuned.schema.config import Backend, Context
from moetuned.schema.event import EventName
from moetuned.schema.supervise import SuperviseUnit
from moetuned.state import backend_record

__all__ = ["orphan"]

UNIT = "the unit llama.service"


class FakeService:
    """A manager that says what the test wants."""

    what = UNIT

    def __init__(self) -> None:
        self.state: ServiceState | ServiceError = ServiceState(pid=None)
        self.can: frozenset[str] | ServiceError = frozenset({"context", "prompt_cache_mib"})
        self.asked: list[dict[str, str] | str] = []
        self.refusal: str | None = None
        self.told_to_end = True
        self.beside: list[ProcessIdentity] = []
        """Real processes in its cgroup,"""
        self.processes: list[int] = []
        """with these main ones."""

    def look(self) -> ServiceState:
        if isinstance(self.state, ServiceError):
            raise self.state
        return self.state

    def settable(self) -> frozenset[str]:
        if isinstance(self.can, ServiceError):
            raise self.can
        return self.can

    def restart(self, values: Mapping[str, str]) -> None:
        if self.refusal is not None:
            raise ServiceError(self.refusal)
        self.asked.append(dict(values))

    def kill(self, main: ProcessIdentity) -> None:
        self.asked.append(f"kill {main.pid}")

    def hold(self, main: ProcessIdentity) -> list[ProcessHandle]:
        if main.pid not in self.processes:
            return []
        return [ProcessHandle(identity) for identity in self.beside if is_alive(identity)]


class Rig:
    def __init__(self, directory: str) -> None:
        self.clock = FakeClock()
        self.loop = Loop(self.clock)
        self.spawn = FakeSpawn()
        self.workers = HeldWorkers()
        self.service = FakeService()
        self.directory = directory
        self.said: list[tuple[EventName, str]] = []
        self.supervisor = self.make()

    def make(self) -> ServiceSupervisor:
        config = Backend(name="glm", supervise=SuperviseUnit(unit="llama.service"), context=Context(preferred=8192))
        return ServiceSupervisor(
            config,
            self.loop,
            self.clock,
            self.directory,
            lambda *each: self.said.append(each),
            self.workers,  # type: ignore[arg-type]
            self.service,
            Timing(restart_seconds=5),
        )

    def run_as(self, pid: int) -> FakeProcess:
        """The manager has a process of it."""
        process = FakeProcess(pid, [])
        self.spawn.adoptable[process.identity] = process
        self.service.state = ServiceState(pid=pid)
        return process

    def look(self) -> None:
        self.workers.finish("asking about", really=True)

    def end(self, process: FakeProcess) -> None:
        process.end(None)
        self.loop.run_once(0)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    rig = Rig(str(tmp_path / "backends"))
    use_fakes(rig.spawn, monkeypatch)
    monkeypatch.setattr(module, "spawn", rig.spawn)
    monkeypatch.setattr(module, "identify", lambda pid: ProcessIdentity(pid, pid * 10))
    yield rig
    rig.loop.close()
    for process in rig.spawn.adoptable.values():
        process.close()


def running(rig: Rig, pid: int = 100) -> FakeProcess:
    """It runs and is healthy."""
    process = rig.run_as(pid)
    rig.supervisor.start()
    rig.look()
    rig.supervisor.healthy()
    return process


def test_what_runs_is_followed_and_nothing_is_started(rig: Rig) -> None:
    rig.supervisor.start()
    assert rig.supervisor.absence is None
    rig.look()
    assert rig.supervisor.identity is None
    assert rig.supervisor.absence == f"is not running; moetuned leaves it to {UNIT} to start it"
    process = rig.run_as(100)
    rig.clock.now += LOOK_SECONDS
    rig.supervisor.tick()
    rig.look()
    assert rig.supervisor.identity == process.identity
    assert rig.supervisor.state.stage is Stage.LOADING
    assert rig.supervisor.adopted_age_seconds is None
    assert rig.supervisor.sets("context")
    assert not rig.supervisor.sets("slots")
    assert rig.service.asked == []
    assert rig.said == []


def test_one_that_ran_before_the_daemon_has_an_age(rig: Rig) -> None:
    running(rig)
    assert rig.supervisor.adopted
    assert rig.supervisor.adopted_age_seconds is not None


def test_a_restart_goes_through_its_manager_with_what_it_can_set(rig: Rig) -> None:
    first = running(rig)
    rig.supervisor.restart(LaunchPlan(2048, 64, 1, 2, "q8_0"))
    rig.workers.finish("restarting", really=True)
    assert rig.service.asked == [{"context": "2048", "prompt_cache_mib": "64"}]
    assert first.signals == []
    second = rig.run_as(200)
    rig.end(first)
    rig.workers.finish("asking about", really=True)
    assert rig.supervisor.identity == second.identity
    assert rig.supervisor.state.plan.context_length == 2048
    record = backend_record.read("glm", rig.directory)
    assert record is not None
    assert (record.pid, record.relief_restarts_at) == (200, (1000.0,))
    rig.clock.now += 9
    rig.supervisor.healthy()
    assert [name for name, _ in rig.said] == [EventName.BACKEND_RESTARTING, EventName.BACKEND_RESTARTED]


def test_one_that_does_not_end_is_killed_and_not_what_its_manager_has_started_by_then(rig: Rig) -> None:
    first = running(rig)
    rig.supervisor.restart(LaunchPlan(2048))
    rig.clock.now += 5
    rig.supervisor.tick()
    assert first.signals == ["KILL"]
    assert rig.service.asked == ["kill 100"]


def test_one_that_was_not_told_to_end_is_not_killed(rig: Rig) -> None:
    """The restart may still fail; then nothing else would start it again."""
    first = running(rig)
    rig.service.told_to_end = False
    rig.service.refusal = "docker create failed with code 125: no such image"
    rig.supervisor.restart(LaunchPlan(2048))
    rig.clock.now += 60
    rig.supervisor.tick()
    assert first.signals == []
    rig.workers.finish("restarting", really=True)
    assert rig.supervisor.state.stage is Stage.READY
    assert first.signals == []
    assert "no such image" in rig.said[-1][1]


def test_a_manager_that_says_it_did_and_did_not_is_told(rig: Rig) -> None:
    first = running(rig)
    rig.service.told_to_end = False
    rig.supervisor.restart(LaunchPlan(2048))
    rig.clock.now += 60
    rig.supervisor.tick()
    rig.workers.finish("restarting", really=True)
    rig.supervisor.tick()
    assert rig.supervisor.state.stage is Stage.STOPPING
    rig.clock.now += Timing().terminate_seconds
    rig.supervisor.tick()
    assert rig.supervisor.state.stage is Stage.READY
    assert rig.said[-1][0] is EventName.RELIEF_EXHAUSTED
    assert f"{UNIT} says that it was, but its process is still the same; it runs as before" in rig.said[-1][1]
    assert first.signals == []
    nothing_is_left_to_finish(rig)


def test_one_that_hangs_is_restarted_by_its_manager(rig: Rig) -> None:
    first = running(rig)
    rig.supervisor.hung()
    rig.workers.finish("restarting", really=True)
    assert rig.service.asked == [{"context": "8192"}]
    assert first.signals == []
    rig.clock.now += 15
    rig.supervisor.tick()
    assert first.signals == ["KILL"]
    rig.run_as(200)
    rig.end(first)
    rig.workers.finish("asking about", really=True)
    rig.supervisor.healthy()
    assert [name for name, _ in rig.said] == [
        EventName.BACKEND_RESTARTING, EventName.BACKEND_RESTARTED, EventName.BACKEND_RECOVERED,
    ]  # fmt: skip
    assert [one.why for one in rig.supervisor.restarts] == ["it hung"]


def test_what_is_not_in_the_config_any_more_is_not_waited_for(rig: Rig) -> None:
    first = running(rig)
    rig.supervisor.restart(LaunchPlan(2048))
    rig.supervisor.stop()
    said = list(rig.said)
    rig.service.refusal = "masked"
    rig.workers.finish("restarting", really=True)
    rig.clock.now += APPEAR_SECONDS + 60
    rig.loop.run_once(0)
    rig.supervisor.tick()
    assert rig.said == said
    assert first.signals == []
    assert not rig.workers.jobs


def test_it_can_be_stopped_for_a_second_look_more_than_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pausing, "PauseGuard", FakeGuard)
    first = running(rig)
    rig.supervisor.hold()
    assert rig.supervisor.held
    rig.clock.now += PAUSE_SECONDS
    rig.supervisor.tick()
    assert first.signals == ["STOP", "CONT"]
    assert not rig.supervisor.held
    rig.clock.now += PAUSE_AGAIN_SECONDS
    rig.supervisor.tick()
    assert rig.supervisor.pausable


def nothing_is_left_to_finish(rig: Rig) -> None:
    """A daemon that is started later takes over what runs, and asks for no restart."""
    rig.supervisor.let_go()
    rig.workers.jobs.clear()
    rig.run_as(100)
    rig.supervisor = rig.make()
    rig.supervisor.start()
    rig.look()
    assert rig.supervisor.state.stage is Stage.LOADING
    assert not [key for key in rig.workers.keys() if key.startswith("restarting")]  # noqa: SIM118  no mapping


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_refused_restart_is_not_made_by_the_next_daemon(rig: Rig, by_hand: bool) -> None:
    running(rig)
    rig.service.refusal = "docker create failed with code 125: no such image"
    if by_hand:
        rig.supervisor.restart_by_hand(LaunchPlan(2048), 2048)
    else:
        rig.supervisor.restart(LaunchPlan(2048))
    rig.workers.finish("restarting", really=True)
    assert "no such image" in rig.said[-1][1]
    nothing_is_left_to_finish(rig)


def test_a_refusal_leaves_it_running_and_is_told(rig: Rig) -> None:
    running(rig)
    rig.service.refusal = "/run/moetuned/backends/glm.env cannot be written: No space left on device"
    rig.supervisor.restart(LaunchPlan(2048))
    rig.workers.finish("restarting", really=True)
    assert rig.supervisor.state.stage is Stage.READY
    assert rig.said[-1][0] is EventName.RELIEF_EXHAUSTED
    assert "No space left" in rig.said[-1][1]
    assert rig.supervisor.restarts[-1].failed == rig.service.refusal
    rig.supervisor.healthy()
    assert rig.supervisor.restarts[-1].took_seconds is None


@pytest.mark.parametrize("why", ["by hand", "gives back", "it hung"])
def test_a_refusal_of_what_is_not_to_free_memory_is_told_as_what_it_is(rig: Rig, why: str) -> None:
    running(rig)
    rig.service.refusal = "llama.service is masked"
    match why:
        case "by hand":
            rig.supervisor.restart_by_hand(LaunchPlan(2048), 2048)
        case "gives back":
            rig.supervisor.give_back(LaunchPlan(8192), "it is idle")
        case _:
            rig.supervisor.hung()
    rig.workers.finish("restarting", really=True)
    assert rig.said[-1] == (
        EventName.BACKEND_NOT_RESTARTED,
        "glm could not be restarted: llama.service is masked; it runs as before",
    )
    assert rig.supervisor.state.stage is Stage.READY


def refused_after_its_end(rig: Rig) -> None:
    """Its manager ended it for a restart by hand, and could not start it."""
    first = running(rig)
    rig.service.refusal = "llama was not restarted: port is already allocated"
    rig.supervisor.restart_by_hand(LaunchPlan(2048), 2048)
    rig.service.state = ServiceState(pid=None)
    first.end(None)  # The loop has not seen that yet.
    rig.workers.finish("restarting", really=True)
    assert [name for name, _ in rig.said] == [EventName.BACKEND_RESTARTING], "what became of it is not known"
    assert rig.supervisor.restarting


def test_one_that_was_started_again_after_a_refusal_is_not_down(rig: Rig) -> None:
    refused_after_its_end(rig)
    rig.service.state = ServiceState(pid=None, changing=True)
    rig.look()
    second = rig.run_as(101)
    rig.clock.now += LOOK_SECONDS
    rig.supervisor.tick()
    rig.look()
    message = "glm could not be restarted: llama was not restarted: port is already allocated; it was started again"
    assert rig.said[1:] == [(EventName.BACKEND_NOT_RESTARTED, message)]
    assert rig.supervisor.identity == second.identity
    assert rig.supervisor.state.plan.context_length == 8192
    rig.supervisor.healthy()
    assert len(rig.said) == 2
    assert rig.supervisor.restarts[-1].failed == rig.service.refusal
    assert rig.supervisor.state.restarts == 0
    nothing_is_left_to_finish(rig)


@pytest.mark.parametrize("known", [True, False])
def test_one_that_does_not_run_after_a_refusal_is_down(rig: Rig, known: bool) -> None:
    refused_after_its_end(rig)
    if not known:
        rig.service.state = ServiceError("no answer")
    rig.look()
    rig.clock.now += SETTLE_SECONDS
    rig.supervisor.tick()
    message = "glm could not be restarted: llama was not restarted: port is already allocated; it does not run"
    assert rig.said[1:] == [(EventName.BACKEND_DOWN, message)]
    assert rig.supervisor.restarts[-1].failed == rig.service.refusal
    assert not rig.supervisor.restarting
    rig.run_as(101)
    rig.clock.now += LOOK_SECONDS
    rig.supervisor.tick()
    rig.look()
    rig.supervisor.healthy()
    assert [name for name, _ in rig.said[2:]] == [EventName.BACKEND_RECOVERED]


def passes(rig: Rig, seconds: float) -> None:
    """Time goes by, and its manager answers."""
    until = rig.clock.now + seconds
    while rig.clock.now < until:
        rig.clock.now += LOOK_SECONDS
        rig.supervisor.tick()
        while rig.workers.in_flight(f"asking about {UNIT}"):
            rig.look()


def test_one_that_its_owner_stops_while_it_is_restarted_is_not_down(rig: Rig) -> None:
    first = running(rig)
    rig.supervisor.restart_by_hand(LaunchPlan(2048))
    rig.service.state = ServiceState(pid=None, stopped_by_owner=True)
    rig.end(first)
    rig.look()
    assert rig.supervisor.state.stage is Stage.STOPPING, "its manager has not answered yet"
    rig.workers.finish("restarting", really=True)
    passes(rig, 2 * APPEAR_SECONDS)
    message = "glm could not be restarted: its owner stopped it meanwhile, so it is left stopped"
    assert rig.said[1:] == [(EventName.BACKEND_NOT_RESTARTED, message)]
    assert rig.supervisor.restarts[-1].failed is not None
    assert not rig.supervisor.restarting
    nothing_is_left_to_finish(rig)


def test_one_that_its_owner_stopped_and_that_is_not_started_by_hand_is_not_down(rig: Rig) -> None:
    first = running(rig)
    rig.service.state = ServiceState(pid=None, stopped_by_owner=True)
    rig.end(first)
    rig.look()
    rig.service.refusal = f"{UNIT} does not run because somebody wants that; moetuned does not start it"
    rig.supervisor.restart_by_hand(LaunchPlan(2048))
    rig.workers.finish("restarting", really=True)
    passes(rig, 2 * APPEAR_SECONDS)
    assert rig.said[1:] == [(EventName.BACKEND_NOT_RESTARTED, f"glm could not be restarted: {rig.service.refusal}")]


def test_what_a_refused_restart_ended_was_not_stopped_by_its_owner(rig: Rig) -> None:
    refused_after_its_end(rig)
    rig.service.state = ServiceState(pid=None, stopped_by_owner=True)
    rig.look()
    assert [name for name, _ in rig.said[1:]] == [EventName.BACKEND_DOWN]
    nothing_is_left_to_finish(rig)


def test_a_refusal_that_comes_after_the_next_process_is_in_the_log(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    first = running(rig)
    rig.supervisor.restart_by_hand(LaunchPlan(2048))
    rig.end(first)
    rig.run_as(200)
    rig.look()
    rig.service.refusal = "restart.sh exited with code 1"
    rig.workers.finish("restarting", really=True)
    assert "restart.sh exited with code 1" in caplog.text
    rig.supervisor.healthy()
    assert [name for name, _ in rig.said] == [EventName.BACKEND_RESTARTING, EventName.BACKEND_RESTARTED]
    assert rig.supervisor.restarts[-1].took_seconds is not None


def killed_while_it_was_restarted(rig: Rig) -> None:
    """The daemon was, and the process from before ended."""
    running(rig)
    rig.supervisor.restart_by_hand(LaunchPlan(2048))
    rig.workers.finish("restarting", really=True)
    rig.supervisor.let_go()
    rig.workers.jobs.clear()
    rig.spawn.adoptable.clear()
    rig.said.clear()
    rig.service.state = ServiceState(pid=None, ended="exited with code 1")
    rig.supervisor = rig.make()
    rig.supervisor.start()


def test_a_restart_that_an_earlier_daemon_had_begun_and_that_ends_in_nothing_is_told_once(rig: Rig) -> None:
    killed_while_it_was_restarted(rig)
    passes(rig, 2 * APPEAR_SECONDS)
    assert [name for name, _ in rig.said] == [EventName.BACKEND_DOWN]
    assert f"{UNIT} ended it and did not start it again" in rig.said[0][1]
    rig.supervisor.let_go()
    rig.supervisor = rig.make()
    rig.supervisor.start()
    passes(rig, 2 * APPEAR_SECONDS)
    assert len(rig.said) == 1


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_a_restart_that_an_earlier_daemon_had_begun_may_still_come_to_its_end(rig: Rig, seconds: float) -> None:
    """One that runs already when it is looked at may do so for days: that is told as what was left open is."""
    killed_while_it_was_restarted(rig)
    passes(rig, seconds)
    process = FakeProcess(200, [])
    rig.spawn.adoptable[process.identity] = process
    rig.service.state = ServiceState(pid=200)
    passes(rig, LOOK_SECONDS if seconds == 0 else LOOK_LATER_SECONDS)
    rig.supervisor.healthy()
    assert [name for name, _ in rig.said] == ([EventName.BACKEND_RESTARTED] if seconds else [])
    assert rig.supervisor.state.plan.context_length == 2048
    assert rig.supervisor.adopted == (not seconds)


@pytest.mark.parametrize("to_free_memory", [True, False])
def test_a_refusal_of_what_an_earlier_daemon_had_begun_is_told_as_what_it_is(rig: Rig, to_free_memory: bool) -> None:
    running(rig)
    if to_free_memory:
        rig.supervisor.restart(LaunchPlan(2048))
    else:
        rig.supervisor.restart_by_hand(LaunchPlan(2048))
    rig.supervisor.let_go()
    rig.workers.jobs.clear()
    rig.run_as(100)
    rig.supervisor = rig.make()
    rig.supervisor.start()
    rig.service.refusal = "llama.service is masked"
    rig.look()
    rig.workers.finish("restarting", really=True)
    name = EventName.RELIEF_EXHAUSTED if to_free_memory else EventName.BACKEND_NOT_RESTARTED
    assert rig.said[-1][0] is name


def test_the_manager_is_not_asked_for_one_that_could_not_start_again(rig: Rig) -> None:
    running(rig)
    check = FakeCheck()
    rig.supervisor.check = check  # type: ignore[assignment]
    rig.supervisor.restart_by_hand(LaunchPlan(2048), 2048)
    check.answer("its model /m.gguf is not there")
    assert not any(key.startswith("restarting") for _, key, *_ in rig.workers.jobs)
    assert rig.said[-1][0] is EventName.BACKEND_NOT_RESTARTED
    rig.supervisor.restart_by_hand(LaunchPlan(2048), 2048)
    check.answer(None)
    rig.workers.finish("restarting", really=True)
    assert rig.service.asked == [{"context": "2048"}]


def test_one_that_hangs_is_restarted_by_its_manager_and_only_asked_for_once(rig: Rig) -> None:
    first = running(rig)
    rig.supervisor.hung()
    rig.service.refusal = "systemctl did not end within 20 s"
    rig.workers.finish("restarting", really=True)
    assert rig.supervisor.state.stage is Stage.READY
    assert [name for name, _ in rig.said] == [EventName.BACKEND_RESTARTING, EventName.BACKEND_NOT_RESTARTED]
    assert not rig.supervisor.ends_hung
    rig.service.refusal = None
    rig.end(first)
    rig.run_as(200)
    rig.look()
    rig.look()
    rig.supervisor.healthy()
    assert rig.supervisor.ends_hung
    rig.supervisor.hung()
    rig.workers.finish("restarting", really=True)
    assert rig.service.asked == [{"context": "8192"}]
    assert first.signals == []


def test_a_second_restart_before_the_first_was_answered_is_refused(rig: Rig) -> None:
    first = running(rig)
    rig.supervisor.restart(LaunchPlan(2048))
    rig.run_as(200)
    rig.end(first)
    rig.look()
    rig.supervisor.restart(LaunchPlan(1024))
    assert rig.said[-1][0] is EventName.RELIEF_EXHAUSTED
    assert sum(key.startswith("restarting") for _, key, _, _ in rig.workers.jobs) == 1


def test_how_it_ended_is_its_managers_word(rig: Rig) -> None:
    process = running(rig)
    rig.service.state = ServiceState(pid=None, changing=True, ended="exited with code 1")
    rig.end(process)
    assert rig.said == []
    rig.look()
    assert rig.said[0][0] is EventName.BACKEND_DOWN
    assert "glm exited with code 1" in rig.said[0][1]
    rig.run_as(200)
    rig.clock.now += LOOK_SECONDS
    rig.supervisor.tick()
    rig.look()
    rig.supervisor.healthy()
    assert rig.said[-1][0] is EventName.BACKEND_RECOVERED


def test_its_owner_may_stop_it(rig: Rig) -> None:
    process = running(rig)
    rig.service.state = ServiceState(pid=None, stopped_by_owner=True)
    rig.end(process)
    rig.look()
    assert rig.said == []
    assert rig.supervisor.state.stage is Stage.STOPPED


@pytest.mark.parametrize("pid", [None, 200])
def test_its_owner_may_have_it_restarted(rig: Rig, pid: int | None, caplog: pytest.LogCaptureFixture) -> None:
    """Looked at in the middle of that, or after it: that is no crash, and its next process is not told as its recovery."""
    process = running(rig)
    rig.service.state = ServiceState(pid=None, changing=True, on_purpose=True)
    if pid is not None:
        rig.run_as(pid)
        rig.service.state = ServiceState(pid=pid, on_purpose=True)
    rig.end(process)
    rig.look()
    if pid is None:
        rig.run_as(200)
        rig.clock.now += LOOK_SECONDS
        rig.supervisor.tick()
        rig.look()
    rig.supervisor.healthy()
    assert (rig.said, rig.supervisor.state.stage) == ([], Stage.READY)
    assert rig.supervisor.identity == ProcessIdentity(200, 2000)
    assert "somebody stops it or has it restarted" in caplog.text


def _restarted(rig: Rig) -> None:
    """Somebody has it restarted, and its manager is still at it."""
    process = running(rig)
    rig.service.state = ServiceState(pid=None, changing=True, on_purpose=True, ended="exited with code 0")
    rig.end(process)
    rig.look()


def _looked_again(rig: Rig, state: ServiceState, seconds: float = LOOK_SECONDS) -> list[EventName]:
    rig.service.state = state
    rig.clock.now += seconds
    rig.supervisor.tick()
    rig.look()
    return [name for name, _ in rig.said]


@pytest.mark.parametrize(
    ("state", "how"),
    [
        (ServiceState(pid=None, ended="exited with code 3"), "exited with code 3"),
        (ServiceState(pid=None), "did not come back"),  # e.g. its ExecStartPre= failed
        (ServiceState(pid=None, changing=True, ended="exited with code 3"), "exited with code 3"),  # again and again
    ],
)
def test_one_that_somebody_has_restarted_and_that_does_not_run_then_is_told(
    rig: Rig, state: ServiceState, how: str
) -> None:
    """Its next process ended between two looks, or there was none."""
    _restarted(rig)
    assert _looked_again(rig, rig.service.state) == []
    assert rig.supervisor.absence == f"is not running: somebody stops {UNIT} or has it restarted"
    assert _looked_again(rig, state) == [EventName.BACKEND_DOWN]
    assert how in rig.said[0][1]
    assert "after somebody had it restarted" in rig.said[0][1]
    assert len(_looked_again(rig, state)) == 1, "once"
    rig.run_as(200)
    _looked_again(rig, rig.service.state)
    rig.supervisor.healthy()
    assert rig.said[-1][0] is EventName.BACKEND_RECOVERED


def test_a_restart_by_somebody_that_never_ends_is_told(rig: Rig) -> None:
    _restarted(rig)
    assert _looked_again(rig, rig.service.state, APPEAR_SECONDS) == [EventName.BACKEND_DOWN]
    assert "did not come back" in rig.said[0][1]


def test_one_that_is_only_stopped_after_all_is_left_stopped(rig: Rig) -> None:
    _restarted(rig)
    stopped = ServiceState(pid=None, stopped_by_owner=True, ended="exited with code 0")
    assert _looked_again(rig, stopped) == []
    assert _looked_again(rig, ServiceState(pid=None, ended="exited with code 1"), APPEAR_SECONDS) == []


def test_the_restart_before_a_crash_does_not_excuse_it(rig: Rig) -> None:
    """Its manager does not know yet that the process which it had restarted has ended."""
    process = running(rig)
    rig.service.state = ServiceState(pid=100, on_purpose=True)
    rig.spawn.adoptable.clear()
    rig.end(process)
    rig.look()
    assert [name for name, _ in rig.said] == [EventName.BACKEND_DOWN]


def test_what_is_found_in_its_unit_is_awaited_until_its_manager_names_it_or_does_not(rig: Rig) -> None:
    mine, found = frozenset({"llama.service"}), ProcessIdentity(100, 1000)
    rig.supervisor.start()
    assert rig.supervisor.awaits(found, mine)
    assert not rig.supervisor.awaits(found, frozenset({"other.service"}))
    rig.look()  # which was under way when it was found
    rig.service.state = ServiceState(pid=None, changing=True)
    for _ in range(4):
        assert rig.supervisor.awaits(found, mine)
        rig.supervisor.tick()
        rig.look()
    rig.service.state = ServiceState(pid=None)
    assert rig.supervisor.awaits(found, mine), "it is asked at once, and not only when it is time again"
    rig.supervisor.tick()
    rig.look()
    assert not rig.supervisor.awaits(found, mine), "its manager knows no process, so it is somebody's"
    assert rig.supervisor.awaits(ProcessIdentity(101, 1010), mine)
    rig.run_as(101)
    rig.supervisor.tick()
    rig.look()
    assert rig.supervisor.identity == ProcessIdentity(101, 1010)
    assert not rig.supervisor.awaits(found, mine)


def test_no_process_is_awaited_for_ever(rig: Rig) -> None:
    """Two of them that an earlier start of the unit has left; and one in a unit that is started again and again."""
    mine = frozenset({"llama.service"})
    found = [ProcessIdentity(pid, pid * 10) for pid in (100, 101)]
    rig.supervisor.start()
    rig.look()
    for _ in range(2):
        assert [rig.supervisor.awaits(each, mine) for each in found] == [True, True]
        rig.supervisor.tick()
        rig.look()
    assert [rig.supervisor.awaits(each, mine) for each in found] == [False, False]
    rig.service.state = ServiceState(pid=None, changing=True)
    other = ProcessIdentity(102, 1020)
    assert rig.supervisor.awaits(other, mine)
    rig.clock.now += APPEAR_SECONDS
    rig.supervisor.tick()
    rig.look()
    assert not rig.supervisor.awaits(other, mine)
    for pid in range(1000, 1200):
        assert rig.supervisor.awaits(ProcessIdentity(pid, pid), mine)
    assert len(rig.supervisor._awaited) <= 64


def test_a_manager_that_says_nothing_leaves_it_unknown(rig: Rig) -> None:
    rig.service.state = ServiceError("systemctl did not end within 20 s")
    rig.supervisor.start()
    rig.look()
    assert rig.supervisor.absence == "is not known to run: systemctl did not end within 20 s"
    assert not rig.supervisor.sets("context")
    assert rig.supervisor.unknown == "systemctl did not end within 20 s"
    rig.service.state = ServiceState(pid=None)
    rig.clock.now += LOOK_SECONDS
    rig.supervisor.tick()
    rig.look()
    assert rig.supervisor.unknown is None


def test_one_that_never_comes_back_is_told(rig: Rig) -> None:
    first = running(rig)
    rig.supervisor.restart(LaunchPlan(2048))
    rig.workers.finish("restarting", really=True)
    rig.service.state = ServiceState(pid=None)
    rig.end(first)
    rig.look()
    rig.clock.now += APPEAR_SECONDS
    rig.supervisor.tick()
    assert rig.said[-1][0] is EventName.BACKEND_DOWN
    assert rig.supervisor.restarts[-1].failed == f"{UNIT} ended it and did not start it again within 2 min"


def test_the_daemons_end_leaves_it_alone(rig: Rig) -> None:
    process = running(rig)
    assert not rig.supervisor.stopped
    rig.supervisor.stop()
    assert rig.supervisor.stopped
    assert process.signals == []
    assert rig.service.asked == []


def test_the_next_daemon_knows_the_restarts(rig: Rig) -> None:
    first = running(rig)
    rig.supervisor.restart(LaunchPlan(2048))
    rig.workers.finish("restarting", really=True)
    rig.run_as(200)
    rig.end(first)
    rig.look()
    rig.supervisor.let_go()
    rig.spawn.adoptable[ProcessIdentity(200, 2000)] = FakeProcess(200, [])
    following = rig.make()
    following.start()
    assert following.relief_restarts == (1000.0,)
    assert following.state.plan.context_length == 2048


def test_a_process_that_only_a_search_finds(rig: Rig) -> None:
    rig.service.state = ServiceState(pid=None, pid_known=False)
    rig.supervisor.start()
    rig.look()
    process = FakeProcess(100, [])
    rig.spawn.adoptable[process.identity] = process
    said = BackendDescription(context_length=4096, slots=2)
    rig.supervisor.found(process.identity, said)
    assert rig.supervisor.identity == process.identity
    assert rig.supervisor.state.plan == LaunchPlan(4096, None, 2)
    rig.supervisor.healthy()
    rig.end(process)
    assert rig.said[-1][0] is EventName.BACKEND_DOWN


def test_a_child_that_is_still_ending_is_not_taken_for_what_its_manager_runs(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = FakeProcess(77, [])
    rig.spawn.adoptable[child.identity] = child
    monkeypatch.setattr(recorded, "find_owned", lambda _owner: child.identity)
    record = backend_record.BackendRecord("glm", 77, 770, (), 4096, "boot", start_word="0" * 32, ending=True)
    backend_record.write(record, rig.directory)
    rig.supervisor.start()
    rig.look()
    assert rig.supervisor.identity is None
    assert not any(key.startswith("restarting") for key in list(rig.workers.keys()))
    running(rig)
    assert backend_record.read("glm", rig.directory).managed


def test_its_end_is_told_although_its_manager_does_not_answer(rig: Rig) -> None:
    process = running(rig)
    rig.service.state = ServiceError("systemctl did not end within 5 s")
    rig.end(process)
    rig.look()
    assert rig.said == [(EventName.BACKEND_DOWN, f"glm ended; {UNIT} decides whether it is started again")]


def test_what_its_manager_said_before_its_end_is_not_how_it_ended(rig: Rig) -> None:
    process = running(rig)
    rig.clock.now += LOOK_SELDOM_SECONDS
    rig.supervisor.tick()
    rig.end(process)
    rig.look()
    assert rig.said == []
    rig.service.state = ServiceState(pid=None, ended="exited with code 0", stopped_by_owner=True)
    rig.look()
    assert rig.said == [], "its owner stopped it"
    assert rig.supervisor.state.stage is Stage.STOPPED


def test_one_that_the_oom_killer_ended_is_an_event_of_its_own(rig: Rig) -> None:
    process = running(rig)
    rig.service.state = ServiceState(pid=None, oom_killed=True)
    rig.end(process)
    rig.look()
    ((name, message),) = rig.said
    assert name is EventName.BACKEND_OOM_KILLED
    assert message.startswith("glm was ended by the kernel's OOM killer; ")


def begun_by_an_earlier_daemon(rig: Rig, cut: bool) -> FakeProcess:
    """It was killed in the middle of a restart; `cut`: before its manager was asked."""
    first = running(rig)
    rig.supervisor.restart(LaunchPlan(2048))
    if not cut:
        rig.workers.finish("restarting", really=True)
    rig.supervisor.let_go()
    rig.workers.jobs.clear()
    rig.spawn.adoptable[first.identity] = FakeProcess(100, [])
    rig.supervisor = rig.make()
    rig.supervisor.start()
    return first


def test_a_restart_that_its_manager_was_not_asked_for_is_asked_for_with_its_values(rig: Rig) -> None:
    begun_by_an_earlier_daemon(rig, cut=True)
    rig.look()
    rig.workers.finish("restarting", really=True)
    assert rig.service.asked == [{"context": "2048"}]


def test_a_restart_that_its_manager_carries_out_is_not_asked_for_again(rig: Rig) -> None:
    begun_by_an_earlier_daemon(rig, cut=False)
    rig.service.state = ServiceState(pid=100, changing=True)
    rig.look()
    assert rig.supervisor.state.stage is Stage.STOPPING
    second = rig.run_as(200)
    rig.end(rig.spawn.adoptable[ProcessIdentity(100, 1000)])
    rig.look()
    assert rig.supervisor.identity == second.identity
    assert rig.supervisor.state.plan.context_length == 2048
    assert rig.service.asked == [{"context": "2048"}]
    assert EventName.BACKEND_DOWN not in [name for name, _ in rig.said]


def test_a_restart_that_is_done_by_the_first_look_is_not_asked_for_again(rig: Rig) -> None:
    """A container's is finished, or taken back, by looking at it."""
    begun_by_an_earlier_daemon(rig, cut=False)
    second = rig.run_as(200)
    rig.look()
    assert rig.supervisor.identity == second.identity
    assert rig.service.asked == [{"context": "2048"}]


def test_what_cannot_be_changed_now_is_followed_all_the_same(rig: Rig) -> None:
    rig.service.can = ServiceError(
        "files of llama.service have changed since systemd read them: run systemctl daemon-reload"
    )
    process = running(rig)
    assert rig.supervisor.identity == process.identity
    assert rig.supervisor.absence is None
    assert not rig.supervisor.sets("context")
    assert rig.supervisor.unsettable is not None
    assert "run systemctl daemon-reload" in rig.supervisor.unsettable
    rig.service.state = ServiceState(pid=None, ended="exited with code 1")
    rig.end(process)
    rig.look()
    assert rig.said[-1][0] is EventName.BACKEND_DOWN


def test_an_end_by_the_oom_killer_is_its_own_event(rig: Rig) -> None:
    process = running(rig)
    rig.service.state = ServiceState(pid=None, ended="was ended by the kernel's OOM killer", oom_killed=True)
    rig.end(process)
    rig.look()
    decides = f"{UNIT} decides whether it is started again"
    assert rig.said == [(EventName.BACKEND_OOM_KILLED, f"glm was ended by the kernel's OOM killer; {decides}")]


def test_a_manager_that_is_late_once_does_not_make_a_restart_for_nothing(rig: Rig) -> None:
    running(rig)
    rig.service.can = ServiceError("systemctl did not end within 5 s")
    rig.clock.now += 60
    rig.supervisor.tick()
    rig.look()
    rig.supervisor.restart(LaunchPlan(2048))
    rig.workers.finish("restarting", really=True)
    assert rig.service.asked == [{"context": "2048"}]


def test_one_that_stays_away_is_asked_about_less_often(rig: Rig) -> None:
    rig.supervisor.start()
    rig.look()
    looks = 0
    for _ in range(160):
        rig.clock.now += 1
        rig.supervisor.tick()
        if rig.workers.jobs:
            looks += 1
            rig.look()
    assert looks == 30 + 10


@pytest.fixture
def server(orphan: Orphans) -> ProcessIdentity:
    """What a launcher in the unit has started."""
    return orphan()


def with_server(rig: Rig, server: ProcessIdentity, monkeypatch: pytest.MonkeyPatch) -> tuple[FakeProcess, FakeGuards]:
    guards = FakeGuards()
    monkeypatch.setattr(pausing, "PauseGuard", guards)
    first = running(rig)
    rig.service.beside, rig.service.processes = [server], [first.identity.pid]
    return first, guards


def test_what_runs_with_it_in_its_cgroup_is_stopped_with_it(
    rig: Rig, server: ProcessIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, guards = with_server(rig, server, monkeypatch)
    rig.supervisor.hold()
    assert (first.signals, is_stopped(server.pid)) == (["STOP"], True)
    assert guards.made[0].others == [server], "it would stay so if the daemon died now"
    rig.clock.now += PAUSE_SECONDS
    rig.supervisor.tick()
    assert not is_stopped(server.pid)


def test_a_restart_of_one_that_is_held_leaves_nothing_stopped(
    rig: Rig, server: ProcessIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = with_server(rig, server, monkeypatch)
    rig.supervisor.hold()
    rig.supervisor.restart(LaunchPlan(2048))
    assert (first.signals, is_stopped(server.pid)) == (["STOP", "CONT"], False)


@pytest.mark.parametrize("by_hand", [True, False])
def test_what_outlives_its_main_process_does_not_stay_stopped(
    rig: Rig, server: ProcessIdentity, monkeypatch: pytest.MonkeyPatch, *, by_hand: bool
) -> None:
    """A unit with KillMode=process leaves it."""
    first, _ = with_server(rig, server, monkeypatch)
    (rig.supervisor.pause_by_hand if by_hand else rig.supervisor.hold)()
    assert is_stopped(server.pid)
    rig.service.processes = []
    rig.end(first)
    assert not is_stopped(server.pid)


def test_what_an_earlier_daemon_has_paused_by_hand_goes_on_with_it(
    rig: Rig, server: ProcessIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = with_server(rig, server, monkeypatch)
    rig.supervisor.pause_by_hand()
    rig.supervisor.let_go()
    assert is_stopped(server.pid)
    rig.supervisor = rig.make()
    rig.spawn.adoptable[first.identity] = FakeProcess(first.identity.pid, [])
    rig.supervisor.start()
    rig.supervisor.resume_by_hand()
    assert not is_stopped(server.pid)
