"""A supervisor of a child with nothing real below it, for the tests of what it is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from daemon_fakes import FakeClock, FakeProcess, FakeSpawn

from moetuned.daemon import cut_off_looks, recorded
from moetuned.daemon import process_supervisor as module
from moetuned.daemon.loop import Loop
from moetuned.daemon.process_supervisor import (
    Examine,
    Prepared,
    ProcessSupervisor,
)
from moetuned.daemon.restart_check import Obstructed, Waiting
from moetuned.decide import supervision as sv
from moetuned.schema.config import Backend, Context
from moetuned.schema.event import EventName
from moetuned.schema.supervise import SuperviseProcess
from moetuned.schema.supervision import RestartCause
from moetuned.state import backend_record

TIMING = sv.Timing(terminate_seconds=15, backoff_seconds=(1.0, 2.0), breaker_exits=3, breaker_seconds=600)
COMMAND = ["server", "-m", "{model}", "-c", "{context}", "--cache-ram", "{prompt_cache_mib}"]


def use_fakes(spawn: FakeSpawn, monkeypatch: pytest.MonkeyPatch) -> None:
    """No real process is started or taken over."""
    monkeypatch.setattr(module, "spawn", spawn)
    monkeypatch.setattr(cut_off_looks, "TakenConnections", lambda _pid: FakeTaken())
    monkeypatch.setattr(recorded, "spawn", spawn)
    monkeypatch.setattr(recorded, "find_owned", lambda _owner: None)


def backend(**changes: object) -> Backend:
    settings: dict = {
        "name": "glm",
        "model": "/m.gguf",
        "supervise": SuperviseProcess(command=COMMAND, environment={"A": "1"}, cgroup="/sys/fs/cgroup/x"),
        "context": Context(preferred=8192, minimum=1024),
        "prompt_cache_mib": 64,
        **changes,
    }
    return Backend(**settings)


class Rig:
    def __init__(self, directory: str, spawn: FakeSpawn) -> None:
        self.clock = FakeClock()
        self.loop = Loop(self.clock)
        self.spawn = spawn
        self.directory = directory
        self.said: list[tuple[EventName, str]] = []

    def make(self, config: Backend | None = None, examine: Examine | None = None) -> ProcessSupervisor:
        said = lambda *each: self.said.append(each)  # noqa: E731
        return ProcessSupervisor(
            config or backend(), self.loop, self.clock, self.directory, said, TIMING, examine=examine
        )

    @property
    def record(self) -> backend_record.BackendRecord | None:
        return backend_record.read("glm", self.directory)

    def end(self, process: FakeProcess, code: int | None) -> None:
        process.end(code)
        self.loop.run_once(0)


@pytest.fixture(name="rig")
def supervised_rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    spawn = FakeSpawn()
    use_fakes(spawn, monkeypatch)
    rig = Rig(str(tmp_path / "backends"), spawn)
    yield rig
    rig.loop.close()
    for process in spawn.started:
        process.close()


def taken_over(rig: Rig) -> ProcessSupervisor:
    """The next daemon's supervisor of the process that was started last."""
    process = FakeProcess(rig.spawn.started[-1].identity.pid, [])
    rig.spawn.adoptable[process.identity] = process
    supervisor = rig.make()
    supervisor.start()
    assert supervisor.adopted
    return supervisor


class Preparing:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list = []

    def __call__(self, config: Backend, plan: sv.LaunchPlan, done) -> None:
        self.asked.append((plan, done))

    def answer(self, **changes: object) -> None:
        plan, done = self.asked.pop(0)
        done(Prepared(tuple(changes.pop("command", COMMAND)), changes.pop("plan", plan), **changes))


def prepared(rig: Rig) -> tuple[ProcessSupervisor, Preparing]:
    prepare = Preparing()
    said = lambda *each: rig.said.append(each)  # noqa: E731
    supervisor = ProcessSupervisor(backend(), rig.loop, rig.clock, rig.directory, said, TIMING, prepare)
    supervisor.start()
    return supervisor, prepare


SHORT = sv.LaunchPlan(2048, 0)


class FakeTaken:
    """So many connections have been taken by the end; None: that is not known."""

    def __init__(self, found: int | None = 0) -> None:
        self.found = found
        self.closed = False

    def so_far(self) -> int | None:
        return self.found

    def close(self) -> None:
        self.closed = True


class FakeConversations:
    def __init__(self) -> None:
        self.lost: str | None = None
        self.did: list[str] = []
        self.done: Callable[..., None] = lambda *_: None

    def go_on(self, now: sv.LaunchPlan, then: sv.LaunchPlan) -> bool:
        return self.why_lost(now, then) is None

    def why_lost(self, now: sv.LaunchPlan, then: sv.LaunchPlan) -> str | None:
        return self.lost

    def save(self, then: sv.LaunchPlan, until: float, done: Callable[[int, int], None]) -> None:
        self.did.append("save")
        self.done = done

    def restore(self, until: float, done: Callable[[int, int], None]) -> None:
        self.did.append("restore")
        self.done = done

    def discard(self) -> None:
        self.did.append("discard")


class FakeCheck:
    """Finds what the test says: at once, or when `answer` is called."""

    def __init__(self, *, at_once: bool = False) -> None:
        self.at_once = at_once
        self.waiting: list[Waiting] = []
        self.obstructed: Obstructed | None = None
        self.obstacle: str | None = None
        self.news = True
        self._done: Callable[[str | None], None] | None = None

    def ask(self, config: Backend, waiting: Waiting, done: Callable[[str | None], None]) -> None:
        self.waiting.append(waiting)
        self._done = done
        if self.at_once:
            self.answer(None)

    def answer(self, why: str | None) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(why)

    def is_news(self, cause: RestartCause, why: str) -> bool:
        return self.news


def ready(rig: Rig) -> ProcessSupervisor:
    supervisor = rig.make()
    supervisor.start()
    supervisor.healthy()
    return supervisor
