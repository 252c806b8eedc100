"""Restart, pause and resume because somebody asked."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from daemon_fakes import FakeClock, FakeSpawn
from supervisor_rig import FakeConversations, use_fakes

from moetuned.daemon.loop import Loop
from moetuned.daemon.manual_actions import WAIT_SECONDS, ManualActions, trained_tokens
from moetuned.daemon.process_supervisor import ProcessSupervisor
from moetuned.daemon.settings import settings_of
from moetuned.daemon.snapshot_view import backend_view
from moetuned.daemon.watched import Watched
from moetuned.host.model_files import read_model
from moetuned.schema.config import Backend, Config, Context
from moetuned.schema.sample import BackendSample, ProcessCounters
from moetuned.schema.signals import Signals
from moetuned.schema.supervise import SuperviseProcess
from moetuned.schema.supervision import BackendAnswer, BackendDo, RestartCause

SETTINGS = settings_of(Config())
ENTRY = Backend(
    "glm", model="/m.gguf", context=Context(preferred=8192, minimum=1024),
    supervise=SuperviseProcess(command=["server", "-m", "{model}", "-c", "{context}"]),
)  # fmt: skip


class Rig:
    def __init__(self, directory: str, spawn: FakeSpawn) -> None:
        self.clock, self.spawn = FakeClock(100.0), spawn
        self.loop = Loop(self.clock)
        self.actions = ManualActions(self.clock)
        self.watched = Watched("glm", ENTRY, 0.0)
        self.owner = ProcessSupervisor(ENTRY, self.loop, self.clock, directory, lambda *_: None)
        self.watched.supervisor = self.owner
        self.ended = 0
        self.owner.before_end = self._note_end
        self.owner.start()
        self.owner.healthy()
        self.watched.follow_process(spawn.started[-1].identity, 0.0)

    def _note_end(self) -> None:
        self.ended += 1

    def look(self) -> None:
        """It answers how many requests it works on, and time passes."""
        found = self.watched.signals.values["busy_slots"]
        self.owner.hear(None if found is None else int(found), self.clock.now)
        self.owner.tick()

    def busy(self, count: float | None) -> None:
        self.watched.signals = Signals("glm", 0.0, 1.0, {"busy_slots": count})

    def ask(self, do: BackendDo, context: int | None = None, **more: bool) -> tuple[int, Any]:
        return self.actions.ask(self.watched, SETTINGS, do, context, **more)

    def end(self) -> None:
        self.spawn.started[-1].end(0)
        self.loop.run_once(0)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    spawn = FakeSpawn()
    use_fakes(spawn, monkeypatch)
    rig = Rig(str(tmp_path / "backends"), spawn)
    yield rig
    rig.loop.close()
    for process in spawn.started:
        process.close()


def test_an_idle_one_is_restarted_once_it_says_so_and_that_is_no_relief(rig: Rig) -> None:
    rig.busy(0)
    status, answer = rig.ask(BackendDo.RESTART, 4096)
    assert rig.spawn.started[0].signals == [], "a request may have come since it said so last"
    rig.look()
    assert status == 202
    assert isinstance(answer, BackendAnswer)
    assert (answer.done, answer.busy, answer.context_before, answer.context_after) == (True, 0, 8192, 4096)
    assert rig.spawn.started[0].signals == ["TERM"]
    assert rig.ended == 1
    assert backend_view(rig.watched, 100.0).state == "restarting"
    rig.end()
    assert rig.spawn.started[1].argv[-1] == "4096"
    rig.clock.now += 7
    rig.owner.healthy()
    assert rig.owner.relief_restarts == ()
    assert rig.owner.restarts_by_cause == {"by_hand": 1}
    (one,) = rig.owner.restarts
    assert (one.cause, one.context_before, one.context_after) == (RestartCause.BY_HAND, 8192, 4096)
    assert one.took_seconds == 7
    view = backend_view(rig.watched, rig.clock.now)
    assert (view.context.wanted, view.launch.context_by_hand) == (4096, True)


def test_the_chosen_context_holds_until_relief_or_the_config_wants_another(rig: Rig) -> None:
    rig.busy(0)
    rig.ask(BackendDo.RESTART, 4096)
    rig.look()
    rig.end()
    rig.owner.healthy()
    rig.ask(BackendDo.RESTART)
    rig.look()
    rig.end()
    assert rig.spawn.started[-1].argv[-1] == "4096"
    assert rig.owner.chosen_context == 4096
    rig.owner.healthy()
    rig.owner.reconfigure(msgspec.structs.replace(ENTRY, context=Context(preferred=2048, minimum=1024)))
    assert rig.owner.chosen_context is None
    rig.ask(BackendDo.RESTART)
    rig.look()
    rig.end()
    assert rig.spawn.started[-1].argv[-1] == "2048"


def test_conversations_of_an_idle_one_are_saved_and_of_one_that_is_to_end_now_are_not(rig: Rig) -> None:
    kept = rig.owner.conversations = FakeConversations()  # type: ignore[assignment]
    rig.busy(0)
    rig.ask(BackendDo.RESTART, 4096)
    rig.look()
    assert (kept.did[-1], rig.spawn.started[0].signals) == ("save", [])
    kept.done(1, 0)
    assert rig.spawn.started[0].signals == [], "a request may have come while they were saved"
    rig.look()
    assert rig.spawn.started[0].signals == ["TERM"]
    rig.end()
    rig.owner.healthy()
    assert kept.did[-1] == "restore"
    kept.done(1, 0)
    kept.did.clear()
    rig.ask(BackendDo.RESTART, now=True)
    assert "save" not in kept.did
    assert rig.spawn.started[1].signals == ["TERM"]


def test_requests_are_waited_for_but_not_for_ever(rig: Rig) -> None:
    rig.busy(2)
    status, answer = rig.ask(BackendDo.RESTART)
    assert (status, answer.busy, answer.wait_seconds) == (202, 2, WAIT_SECONDS)
    rig.look()
    assert rig.spawn.started[0].signals == []
    view = backend_view(rig.watched, rig.clock.now)
    assert view.state == "draining"
    assert "1 min" in (view.supervision.waits or "")
    assert rig.ask(BackendDo.RESTART)[0] == 409
    rig.clock.now += WAIT_SECONDS
    rig.look()
    assert rig.spawn.started[0].signals == ["TERM"]
    assert not rig.owner.draining


def test_as_soon_as_they_are_answered_it_is_restarted_with_what_was_asked_for(rig: Rig) -> None:
    rig.busy(1)
    rig.ask(BackendDo.RESTART, 2048)
    rig.busy(0)
    rig.look()
    rig.end()
    assert rig.spawn.started[1].argv[-1] == "2048"


def test_now_waits_for_nothing_also_when_it_is_waited_already(rig: Rig) -> None:
    rig.busy(1)
    rig.ask(BackendDo.RESTART)
    status, answer = rig.ask(BackendDo.RESTART, now=True)
    assert (status, answer.wait_seconds) == (202, 0.0)
    assert rig.spawn.started[0].signals == ["TERM"]
    assert not rig.owner.draining


def test_a_restart_that_waits_leaves_one_of_relief_alone(rig: Rig) -> None:
    rig.busy(1)
    rig.ask(BackendDo.RESTART, 4096)
    rig.owner.restart(msgspec.structs.replace(rig.owner.state.plan, context_length=1024), "memory")
    rig.busy(0)
    rig.look()
    assert not rig.owner.draining
    rig.end()
    assert rig.spawn.started[1].argv[-1] == "1024"
    assert rig.owner.restarts_by_cause == {"relief": 1}


def test_a_dry_run_only_says(rig: Rig) -> None:
    status, answer = rig.ask(BackendDo.RESTART, 4096, dry_run=True)
    assert (status, answer.done, answer.context_after, answer.expected_source) == (200, False, 4096, "as its last load")
    assert rig.spawn.started[0].signals == []
    assert rig.ask(BackendDo.RESTART, 512, dry_run=True)[0] == 409
    assert rig.ask(BackendDo.PAUSE, 4096) == (400, {"error": "a context can only be given for a restart"})


def test_paused_it_is_said_so_and_goes_on(rig: Rig) -> None:
    assert rig.ask(BackendDo.RESUME)[0] == 409
    assert rig.ask(BackendDo.PAUSE)[0] == 202
    view = backend_view(rig.watched, 100.0)
    since = time.strftime("%H:%M", time.localtime(rig.clock.wall()))
    assert (view.state, view.sentence) == (
        "paused", f"is paused by hand since {since}; it goes on after: moetunectl backend resume glm",
    )  # fmt: skip
    assert rig.ask(BackendDo.PAUSE)[0] == 409
    assert rig.ask(BackendDo.RESUME)[0] == 202
    assert rig.spawn.started[0].signals == ["STOP", "CONT"]
    assert backend_view(rig.watched, 100.0).state != "paused"


def test_one_that_somebody_else_stopped_may_be_resumed_and_is_not_waited_for(rig: Rig) -> None:
    pid = rig.spawn.started[0].identity.pid
    rig.watched.sample = BackendSample("glm", process=ProcessCounters(pid, state="T"))
    rig.busy(1)
    assert rig.ask(BackendDo.RESUME)[0] == 202
    assert rig.ask(BackendDo.RESTART)[0] == 202
    assert rig.spawn.started[0].signals == ["CONT", "TERM"]


def test_a_new_process_is_not_paused(rig: Rig) -> None:
    rig.ask(BackendDo.PAUSE)
    rig.ask(BackendDo.RESTART)
    rig.end()
    assert rig.owner.paused is None


def test_the_way_out_of_the_breaker(rig: Rig) -> None:
    while rig.owner.state.stage.value != "broken":
        rig.spawn.started[-1].end(1)
        rig.loop.run_once(0)
        rig.clock.now += 60
        rig.owner.tick()
    count = len(rig.spawn.started)
    assert "moetunectl backend restart glm" in (rig.owner.absence or "")
    assert rig.owner.restarts[-1].cause is RestartCause.EXIT
    assert rig.owner.restarts[-1].why == "it exited with code 1"
    assert rig.ask(BackendDo.RESTART)[0] == 202
    assert len(rig.spawn.started) == count + 1


def test_one_that_is_only_watched(rig: Rig) -> None:
    status, answer = rig.actions.ask(Watched("other", None, 0.0), SETTINGS, BackendDo.RESTART)
    assert status == 409
    assert "only watches other" in answer["error"]


def test_what_the_model_was_trained_for(rig: Rig, small_model: Path) -> None:
    assert trained_tokens(rig.watched) is None
    rig.watched.model = read_model(str(small_model))
    trained = trained_tokens(rig.watched)
    assert trained is not None
    assert "trained for" in rig.ask(BackendDo.RESTART, trained + 256)[1]["error"]
