"""Whether a backend could start again is looked for before it is told to end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_fakes import FakeClock, HeldWorkers

from moetuned.daemon.loop import Loop
from moetuned.daemon.restart_check import (
    HURRY_SECONDS,
    LATE,
    OBSTACLE_SECONDS,
    PATIENT_SECONDS,
    RestartCheck,
    Waiting,
    refusal,
    restart_problem,
)  # fmt: skip
from moetuned.daemon.workers import Lane
from moetuned.decide.supervision import LaunchPlan
from moetuned.schema.config import Backend
from moetuned.schema.event import EventName
from moetuned.schema.supervise import SuperviseProcess, SuperviseUnit
from moetuned.schema.supervision import RestartCause

PLAN = LaunchPlan(2048)
UNIT = Backend("glm", supervise=SuperviseUnit(unit="llama.service"))


class Rig:
    def __init__(self, model: Path) -> None:
        self.clock, self.workers = FakeClock(), HeldWorkers()
        self.loop = Loop(self.clock)
        self.paths = [str(model)]
        self.found: list[str | None] = []
        self.check = RestartCheck("glm", self.loop, self.clock, self.workers, lambda: self.paths)  # type: ignore[arg-type]

    def ask(self, cause: RestartCause = RestartCause.BY_HAND) -> None:
        self.check.ask(UNIT, Waiting(cause, "why", PLAN), self.found.append)

    def wait(self, seconds: float) -> None:
        self.clock.now += seconds
        self.loop.run_once(0)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF")
    return path


@pytest.fixture
def rig(model: Path) -> Iterator[Rig]:
    rig = Rig(model)
    yield rig
    rig.loop.close()


def test_it_is_looked_for_in_a_lane(rig: Rig, model: Path) -> None:
    rig.ask()
    assert [lane for lane, *_ in rig.workers.jobs] == [Lane.RELIEF]
    assert rig.found == []
    rig.workers.finish("could start again", really=True)
    assert (rig.found, rig.check.obstacle) == ([None], None)
    model.unlink()
    rig.ask()
    rig.workers.finish("could start again", really=True)
    assert rig.found[1] == rig.check.obstacle == f"its model {model} is not there"
    rig.wait(OBSTACLE_SECONDS)
    assert rig.check.obstacle is None, "it may be there again"
    assert rig.check.obstructed is not None


@pytest.mark.parametrize(
    ("cause", "seconds", "found"),
    [
        (RestartCause.RELIEF, HURRY_SECONDS, None),
        (RestartCause.RETURN, PATIENT_SECONDS, LATE),
        (RestartCause.BY_HAND, PATIENT_SECONDS, LATE),
    ],
)
def test_an_answer_that_does_not_come_is_not_waited_for(
    rig: Rig, cause: RestartCause, seconds: float, found: str | None
) -> None:
    rig.ask(cause)
    rig.wait(seconds - 0.1)
    assert rig.found == []
    rig.wait(0.1)
    assert rig.found == [found]
    rig.workers.finish("could start again", "too late")
    assert rig.found == [found]


def test_a_look_that_is_under_way_answers_the_next_one(rig: Rig) -> None:
    rig.ask(RestartCause.BY_HAND)
    rig.ask(RestartCause.RELIEF)
    assert len(rig.workers.jobs) == 1
    rig.workers.finish("could start again", "its model is not there")
    assert rig.found == ["its model is not there"]
    assert rig.check.obstructed is not None
    assert rig.check.obstructed.cause is RestartCause.RELIEF


def test_a_look_that_fails_finds_nothing(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.ask()
    rig.workers.finish("could start again", OSError("too many open files"))
    assert rig.found == [None]
    assert "cannot be told: too many open files" in caplog.text


def test_it_is_news_once_and_to_each_who_asks(rig: Rig) -> None:
    assert [rig.check.is_news(RestartCause.RELIEF, why) for why in ("a", "a", "b")] == [True, False, True]
    assert [rig.check.is_news(RestartCause.BY_HAND, "b") for _ in range(2)] == [True, True]
    assert rig.check.is_news(RestartCause.RELIEF, "b")
    rig.ask(RestartCause.RELIEF)
    rig.workers.finish("could start again")
    assert rig.check.is_news(RestartCause.RELIEF, "b"), "it was well in between"


def test_what_is_not_to_free_memory_is_not_told_as_relief() -> None:
    assert refusal("glm", RestartCause.RELIEF, "x")[0] is EventName.RELIEF_EXHAUSTED
    assert refusal("glm", RestartCause.BY_HAND, "x") == (
        EventName.BACKEND_NOT_RESTARTED, "glm is not restarted: x; it goes on as it is",
    )  # fmt: skip


def test_a_child_is_judged_by_the_command_that_it_is_started_with(tmp_path: Path, model: Path) -> None:
    supervise = SuperviseProcess(command=["llama-server", "-m", "{model}"])
    there, gone = Backend("glm", model=str(model), supervise=supervise), str(tmp_path / "gone.gguf")
    assert restart_problem(there, PLAN, [gone]) is None
    missing = Backend("glm", model=gone, supervise=supervise)
    assert restart_problem(missing, PLAN, [str(model)]) == f"its model {gone} is not there"


def test_what_others_start_is_judged_by_a_model_that_could_be_read_before(tmp_path: Path, model: Path) -> None:
    gone = str(tmp_path / "gone.gguf")
    assert restart_problem(UNIT, PLAN, []) is None, "nothing is known"
    assert restart_problem(UNIT, PLAN, [str(model)]) is None
    assert restart_problem(UNIT, PLAN, [gone]) == f"its model {gone} is not there"
    for named, problem in ((str(model), None), (gone, "is not there"), (str(tmp_path / "x.gguf"), "gone.gguf is not")):
        found = restart_problem(Backend("glm", model=named, supervise=UNIT.supervise), PLAN, [gone])
        assert found is None if problem is None else problem in (found or "")
