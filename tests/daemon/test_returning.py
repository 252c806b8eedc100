"""Giving back what relief took: what is known of a backend, and what becomes of the decision."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from supervisor_rig import FakeCheck

from moetuned.daemon import returning
from moetuned.daemon.restart_check import Obstructed
from moetuned.daemon.settings import settings_of
from moetuned.daemon.watched import Watched
from moetuned.decide import context_return
from moetuned.decide.supervision import LaunchPlan, Stage, Supervision
from moetuned.host.model_files import read_model
from moetuned.schema.backend_description import BackendDescription
from moetuned.schema.config import Backend, Config, Context, Mode, Relief
from moetuned.schema.relief import GrowBack
from moetuned.schema.snapshot import MemoryView, WarmView
from moetuned.schema.supervision import RestartCause
from moetuned.schema.verdict import MemoryState, Phase, Verdict

GIB = 1 << 30
SETTINGS = settings_of(Config(relief=Relief(mode=Mode.ACT)))
TAKEN = LaunchPlan(2048, 0, 4, 8, "f16")
IDLE = Verdict("glm", 5.0, phase=Phase.IDLE, memory=MemoryState.OK)


class Supervisor(SimpleNamespace):
    """What is asked of one."""

    def __init__(self) -> None:
        config = Backend(
            "glm", context=Context(preferred=8192, minimum=1024), prompt_cache_mib=0, slots=4, checkpoints=8
        )
        super().__init__(
            config=config, state=Supervision("glm", TAKEN, stage=Stage.READY), load_seconds=7.0, process=object(), relief_restarts=(1.0,),
            returned_at=None, return_blocked=None, restarts=[], paused=None, chosen_context=None, draining=False, waits_because=None, check=None,
        )  # fmt: skip

    def sets(self, value: str) -> bool:
        return value == "context"

    def knows(self, value: str) -> bool:
        return self.sets(value)

    def give_back(self, plan: LaunchPlan, why: str, *, seconds: float) -> None:
        assert seconds > 0, "what is restarted at once saves no conversations"
        self.restarts.append((plan, why))
        self.waits_because = RestartCause.RETURN

    def call_off(self) -> None:
        self.restarts.pop()
        self.waits_because = None

    def note_return(self, returned_at: float | None, blocked: str | None) -> None:
        self.returned_at, self.return_blocked = returned_at, blocked


class Rig:
    def __init__(self, model: Path) -> None:
        self.watched = Watched("glm", Backend("glm"), 0.0)
        self.watched.model = read_model(str(model))
        self.watched.description = BackendDescription(slots=4, prompt_cache_mib=0)
        self.supervisor = Supervisor()
        self.watched.supervisor = self.supervisor  # type: ignore[assignment]
        self.watched.ready_at = 1.0
        self.watched.verdict = IDLE
        self.watched.memory = MemoryView("cgroup", 8 * GIB, headroom_bytes=6 * GIB, backend_anonymous_bytes=GIB)
        self.now = 100.0

    def run(self, seconds: int = 700, settings: Any = SETTINGS) -> None:
        for _ in range(0, seconds, 4):
            self.now += 4
            returning.give_back(self.watched, settings, self.now)
            if self.supervisor.restarts:
                break


@pytest.fixture
def rig(small_model: Path) -> Rig:
    return Rig(small_model)


@pytest.mark.parametrize("changes", [{"phase": Phase.PREFILL}, {"memory": MemoryState.NEAR_LIMIT}])
def test_what_waits_is_called_off_when_it_does_not_suit_any_more(rig: Rig, changes: dict[str, Any]) -> None:
    rig.run()
    returning.reconsider(rig.watched)
    assert len(rig.supervisor.restarts) == 1, "it is idle and memory is well"
    rig.watched.verdict = msgspec.structs.replace(IDLE, **changes)
    returning.reconsider(rig.watched)
    assert rig.supervisor.restarts == []
    assert rig.watched.relief_reports[-1].startswith("did not give it back")
    rig.run(40)
    assert rig.supervisor.return_blocked is None, "it was not made, so it is to blame for nothing"
    rig.watched.verdict = IDLE
    rig.run()
    assert len(rig.supervisor.restarts) == 1, "another try needs no hour"


def test_one_that_could_not_start_again_counts_for_nothing_and_is_made_once_it_can(rig: Rig) -> None:
    check: Any = FakeCheck()
    rig.supervisor.check = check
    rig.run(900)
    assert len(rig.supervisor.restarts) == 1
    rig.supervisor.restarts, rig.supervisor.waits_because = [], None
    check.obstacle = "its model /m.gguf is not there"
    check.obstructed = Obstructed(RestartCause.RETURN, check.obstacle, rig.now)
    returning.reconsider(rig.watched)
    assert rig.watched.relief_reports[-1] == "did not give it back: its model /m.gguf is not there"
    assert rig.watched.returning.returned_at is None, "it is to blame for nothing"
    reports = rig.watched.relief_reports
    rig.run(900)
    assert (rig.supervisor.restarts, rig.watched.relief_reports) == ([], reports)
    assert "once it could start again (its model /m.gguf is not there)" in (rig.watched.grow_back or "")
    check.obstacle = None
    rig.run(8)
    assert len(rig.supervisor.restarts) == 1


def test_a_restart_for_another_reason_is_not_called_off(rig: Rig) -> None:
    rig.watched.verdict = msgspec.structs.replace(IDLE, phase=Phase.PREFILL)
    for cause in (None, RestartCause.BY_HAND, RestartCause.RELIEF):
        rig.supervisor.waits_because = cause
        rig.supervisor.restarts = [cause]
        returning.reconsider(rig.watched)
        assert rig.supervisor.restarts == [cause]


def test_it_is_given_back_told_and_recorded_and_counts_for_no_budget(rig: Rig) -> None:
    rig.run(300)
    assert rig.watched.grow_back is not None
    assert rig.watched.grow_back.startswith("would give back context 2048 -> 8192 when memory has been well for")
    rig.run(600)
    ((plan, why),) = rig.supervisor.restarts
    assert plan == msgspec.structs.replace(TAKEN, context_length=8192)
    assert "gives back context 2048 -> 8192; that takes about 7.0 s (as its last load)" in why
    assert rig.supervisor.returned_at == rig.now
    assert rig.watched.relief_reports == ("gave back: context 2048 -> 8192",)
    assert rig.watched.relief.restarted_at == ()


@pytest.mark.parametrize("relief", [Relief(mode=Mode.OBSERVE), Relief(mode=Mode.ACT, grow_back=GrowBack.OFF)])
def test_not_where_the_config_does_not_allow_it(rig: Rig, relief: Relief) -> None:
    rig.run(settings=settings_of(Config(relief=relief)))
    assert (rig.supervisor.restarts, rig.watched.grow_back) == ([], None)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda rig: setattr(rig.supervisor, "relief_restarts", ()),
        lambda rig: setattr(rig.watched, "supervisor", None),
        lambda rig: setattr(rig.watched, "memory", MemoryView()),
        lambda rig: setattr(rig.watched, "warm", WarmView("running")),
        lambda rig: setattr(rig.watched, "warm_wanted", "it was interrupted"),
        lambda rig: setattr(rig.watched, "model", None),
        lambda rig: setattr(rig.watched, "verdict", msgspec.structs.replace(IDLE, phase=Phase.UNKNOWN)),
        lambda rig: setattr(rig.watched, "verdict", msgspec.structs.replace(IDLE, phase=Phase.DECODE)),
        lambda rig: setattr(rig.supervisor, "paused", "is paused by hand"),
        lambda rig: setattr(rig.supervisor, "chosen_context", 2048),
        lambda rig: setattr(rig.supervisor, "state", Supervision("glm", TAKEN, stage=Stage.LOADING)),
    ],
)
def test_not_then(rig: Rig, spoil: Any) -> None:
    spoil(rig)
    rig.run(1500)
    assert rig.supervisor.restarts == []


def test_what_the_supervisor_found_not_to_run_is_not_tried_again_until_it_may(rig: Rig) -> None:
    rig.supervisor.return_blocked = "no more fits: it would take 3 GiB more"
    rig.run(1500)
    assert rig.supervisor.restarts == []
    assert "does not give back context 2048 -> 8192: no more fits" in (rig.watched.grow_back or "")
    returning.allow(rig.watched)
    assert rig.supervisor.return_blocked is None
    rig.run(8)
    assert len(rig.supervisor.restarts) == 1


def test_memory_that_nears_its_limit_after_it_is_recorded_also_while_it_loads(rig: Rig) -> None:
    rig.supervisor.returned_at = 50.0
    returning.restore(rig.watched, rig.supervisor)  # type: ignore[arg-type]
    rig.supervisor.state = Supervision("glm", TAKEN, stage=Stage.LOADING)
    rig.watched.verdict = msgspec.structs.replace(IDLE, memory=MemoryState.NEAR_LIMIT)
    rig.run(4)
    assert "neared its limit 54 s after" in (rig.supervisor.return_blocked or "")


def test_what_an_earlier_daemon_recorded_goes_on(rig: Rig) -> None:
    rig.supervisor.returned_at, rig.supervisor.return_blocked = 7.0, "it led to relief"
    returning.restore(rig.watched, rig.supervisor)  # type: ignore[arg-type]
    assert rig.watched.returning == context_return.ReturnState(returned_at=7.0, blocked="it led to relief")
    rig.run(1500)
    assert rig.supervisor.restarts == []


def test_what_a_start_costs_is_worked_out_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.run(40)
    monkeypatch.setattr(returning, "plan_bytes", lambda *_: pytest.fail("it was worked out again"))
    rig.run(40)
