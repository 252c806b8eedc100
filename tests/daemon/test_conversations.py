"""Conversations over a restart: what is done off the loop, and whose files go when."""

from __future__ import annotations

import msgspec
import pytest
from daemon_fakes import HeldWorkers

from moetuned.daemon import conversations as module
from moetuned.daemon.conversations import Conversations
from moetuned.daemon.workers import Lane
from moetuned.decide.slot_saving import ConversationFacts, SlotFile
from moetuned.decide.supervision import LaunchPlan
from moetuned.host.slot_files import SavedSlots

FACTS = ConversationFacts("http://127.0.0.1:1", 7, True, "/slots", 3072)
THEN = LaunchPlan(2048)
SAVED = SavedSlots("/slots", (SlotFile("a", 9), SlotFile("b", 8)), ("slot 3: no time is left",), 3)


class Rig:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.workers = HeldWorkers()
        self.facts = FACTS
        self.own = Conversations("glm", self.workers, lambda: self.facts)  # type: ignore[arg-type]
        self.done: list[tuple[int, ...]] = []
        self.removed: list[tuple[str, ...]] = []
        self.saves: list[tuple] = []
        monkeypatch.setattr(module.slot_files, "remove", lambda directory, names: self.removed.append(names))
        monkeypatch.setattr(module.slot_files, "save_slots", lambda *given: self.saves.append(given))
        monkeypatch.setattr(module.slot_files, "remove_old", lambda *given: 2)

    def save(self) -> None:
        self.own.save(THEN, 50.0, lambda *each: self.done.append(each))

    def restore(self) -> None:
        self.own.restore(50.0, lambda *each: self.done.append(each))


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


def test_saved_read_again_and_told(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.save()
    assert [lane for lane, *_ in rig.workers.jobs] == [Lane.RELIEF]
    rig.workers.finish("saving", SAVED)
    assert rig.done == [(2, 3)]
    assert "slot 3: no time is left" in caplog.text
    rig.restore()
    rig.workers.finish("reading", 1)
    assert rig.done == [(2, 3), (1, 1)]
    rig.own.discard()
    assert rig.workers.keys() == [], "reading them removes them"


def test_what_is_asked_for_is_what_is_known(rig: Rig) -> None:
    rig.save()
    rig.workers.finish("saving", really=True)
    assert rig.saves == [("glm", "http://127.0.0.1:1", 7, "/slots", 3072, 2048, 50.0)]


@pytest.mark.parametrize("missing", ["url", "pid", "directory", "kv_bytes_per_token"])
def test_nothing_unknown_is_saved(rig: Rig, missing: str) -> None:
    rig.facts = msgspec.structs.replace(FACTS, **{missing: None})
    rig.save()
    assert (rig.done, rig.workers.keys()) == ([(0, 0)], [])


def test_why_none_goes_on_is_in_the_log(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert rig.own.go_on(THEN, THEN)
    assert caplog.text == ""
    rig.facts = msgspec.structs.replace(FACTS, kv_bytes_per_token=None)
    assert not rig.own.go_on(THEN, THEN)
    assert "glm: no conversation goes on after this restart: how large they are is not known" in caplog.text


def test_files_that_are_not_needed_go(rig: Rig) -> None:
    rig.save()
    rig.workers.finish("saving", SAVED)
    rig.own.discard()
    rig.workers.finish("removing", really=True)
    assert rig.removed == [("a", "b")]
    rig.own.discard()
    assert rig.workers.keys() == []


def test_files_that_come_too_late_go(rig: Rig) -> None:
    rig.save()
    rig.own.discard()
    rig.workers.finish("saving", SAVED)
    assert rig.done == [], "nobody waits for that any more"
    rig.workers.finish("removing", really=True)
    assert rig.removed == [("a", "b")]


def test_a_failure_keeps_nothing_up(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.save()
    rig.workers.finish("saving", OSError("it does not answer"))
    assert rig.done == [(0, 0)]
    assert "it does not answer" in caplog.text
    rig.restore()
    assert rig.done == [(0, 0), (0, 0)]
    rig.save()
    rig.workers.finish("saving", SAVED)
    rig.restore()
    rig.workers.finish("reading", OSError("gone"))
    assert rig.done[-1] == (0, 2)


def test_a_full_lane_keeps_nothing_up(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rig.workers, "submit", lambda *_: False)
    rig.save()
    assert rig.done == [(0, 0)]


def test_what_an_earlier_daemon_left_is_looked_for_once_it_is_known_where(rig: Rig) -> None:
    rig.facts = msgspec.structs.replace(FACTS, directory=None)
    rig.own.sweep()
    assert rig.workers.keys() == []
    rig.facts = FACTS
    rig.own.sweep()
    rig.workers.finish("sweeping", really=True)
    rig.own.sweep()
    assert rig.workers.keys() == []
