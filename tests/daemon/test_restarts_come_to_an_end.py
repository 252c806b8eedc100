"""Whatever happens to a backend that another manager runs: each restart that is told to have begun is told to be over, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from daemon_fakes import FakeProcess
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from supervisor_rig import use_fakes
from test_service_supervisor import UNIT, Rig

from moetuned.daemon import service_supervisor as module
from moetuned.decide.managed import APPEAR_SECONDS
from moetuned.decide.supervision import UP, LaunchPlan, Stage
from moetuned.host.processes import ProcessIdentity
from moetuned.host.service import ServiceError, ServiceState
from moetuned.schema.event import EventName, begun_by, is_kind_of, may_close

CRASHED = ServiceState(pid=None, ended="exited with code 1")
OOM = ServiceState(pid=None, ended="was ended by the kernel's OOM killer", oom_killed=True)
STOPPED = ServiceState(pid=None, stopped_by_owner=True)
STARTING = ServiceState(pid=None, changing=True)
GOES_ON = ServiceState(pid=None, changing=True, on_purpose=True)
RESTARTING = EventName.BACKEND_RESTARTING


class Life:
    """A backend, its manager and what is heard of them."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.process: FakeProcess | None = None
        self.pid = 100
        self.heard = 0
        self.open = False
        self.down = False

    def do(self, step: str | float) -> None:
        if isinstance(step, float):
            self.pass_time(step)
        else:
            self.BY_NAME[step](self)
        self.listen()

    def pass_time(self, seconds: float) -> None:
        self.rig.clock.now += seconds
        self.rig.supervisor.tick()
        if self.process is not None and "KILL" in self.process.signals:
            self.end(STARTING)

    def restart(self, *, by_hand: bool) -> None:
        supervisor = self.rig.supervisor
        if supervisor.state.stage is Stage.STOPPING or supervisor.state.restart_began is not None:
            return  # As who asks makes sure.
        (supervisor.restart_by_hand if by_hand else supervisor.restart)(LaunchPlan(2048))

    def hang(self) -> None:
        if self.rig.supervisor.ends_hung:
            self.down = True  # That it hangs was told.
            self.rig.supervisor.hung()

    def answer(self, refusal: str | None) -> None:
        if self.rig.workers.in_flight(f"restarting {UNIT}"):
            self.rig.service.refusal = refusal
            self.rig.workers.finish("restarting", really=True)

    def look(self) -> None:
        if self.rig.workers.in_flight(f"asking about {UNIT}"):
            self.rig.look()

    def is_now(self, state: ServiceState) -> None:
        if self.process is None:
            self.rig.service.state = state

    def be_silent(self) -> None:
        self.rig.service.state = ServiceError("no answer")

    def be_healthy(self) -> None:
        supervisor = self.rig.supervisor
        if self.process is not None and supervisor.identity == self.process.identity:
            supervisor.healthy()

    BY_NAME: Mapping[str, Callable[[Life], None]] = {
        "by_hand": lambda life: life.restart(by_hand=True),
        "relief": lambda life: life.restart(by_hand=False),
        "hung": hang,
        "done": lambda life: life.answer(None),
        "refused": lambda life: life.answer("no"),
        "crash": lambda life: life.end(CRASHED),
        "oom": lambda life: life.end(OOM),
        "stop": lambda life: life.end(STOPPED),
        "restarted": lambda life: life.end(GOES_ON),
        "starting": lambda life: life.is_now(STARTING),
        "fails": lambda life: life.is_now(CRASHED),
        "runs": lambda life: life.runs(),
        "silent": be_silent,
        "look": look,
        "healthy": be_healthy,
    }

    def end(self, state: ServiceState) -> None:
        if self.process is not None:
            process, self.process = self.process, None
            self.rig.spawn.adoptable.pop(process.identity, None)
            self.rig.service.state = state
            if not process.closed:
                self.rig.end(process)

    def runs(self) -> None:
        if self.process is None:
            self.pid += 1
            self.process = self.rig.run_as(self.pid)
        else:
            self.rig.service.state = ServiceState(pid=self.pid)

    def listen(self) -> None:
        """A begin is not told again while it is open, and an end only then; down is told of what does not run."""
        for name, message in self.rig.said[self.heard :]:
            if name is RESTARTING:
                assert not self.open, message
                self.open = True
            elif RESTARTING in begun_by(name):
                assert self.open, message
                self.open = False
            elif may_close(name) and self.rig.supervisor.state.restart_began is None:
                self.open = False
            if is_kind_of(name, EventName.BACKEND_DOWN):
                self.down = True
            elif name is EventName.BACKEND_RECOVERED:
                assert self.down, message
                self.down = False
        self.heard = len(self.rig.said)

    def rest(self, *, runs: bool) -> None:
        """It is left alone, running or not, and everybody answers."""
        self.do("done")
        if not runs and self.process is not None:
            self.end(CRASHED)
        elif not runs and (not isinstance(self.rig.service.state, ServiceState) or self.rig.service.state.changing):
            self.rig.service.state = CRASHED
        for _ in range(int(4 * APPEAR_SECONDS / 10)):
            self.do(10.0)
            while self.rig.workers.in_flight(f"asking about {UNIT}"):
                self.do("look")
            self.do("done")
            if runs:
                self.runs()
                self.do("healthy")


STEPS = st.lists(st.sampled_from(sorted(Life.BY_NAME)) | st.floats(0.5, 200.0), max_size=40)


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(module, "identify", lambda pid: ProcessIdentity(pid, pid * 10))
    return monkeypatch


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(steps=STEPS, runs=st.booleans())
def test_each_restart_comes_to_an_end(
    tmp_path_factory: pytest.TempPathFactory, patched: pytest.MonkeyPatch, steps: list[str | float], runs: bool
) -> None:
    directory: Path = tmp_path_factory.mktemp("life")
    rig = Rig(str(directory))
    use_fakes(rig.spawn, patched)
    patched.setattr(module, "spawn", rig.spawn)
    life = Life(rig)
    try:
        life.runs()
        rig.supervisor.start()
        life.do("look")
        life.do("healthy")
        for step in steps:
            life.do(step)
        life.rest(runs=runs)
        assert not life.open
        assert rig.supervisor.state.stage in (UP if runs else (Stage.STOPPED,))
        # One that hung and was not restarted is up again when it answers, which is told by who saw it hang.
        assert not life.down or not runs or rig.supervisor.state.down
        assert not rig.supervisor.restarting
    finally:
        rig.supervisor.let_go()
        rig.loop.close()
        for process in rig.spawn.adoptable.values():
            process.close()
