"""What an ended process left in its session is ended, and waited for."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from daemon_fakes import FakeClock, FakeProcess

from moetuned.daemon import left_behind as module
from moetuned.daemon.left_behind import LeftBehind
from moetuned.daemon.loop import Loop
from moetuned.host.processes import ProcessIdentity


class Handle(FakeProcess):
    refuses = False

    def send(self, number: int) -> None:
        if self.refuses:
            raise PermissionError
        self.signals.append(signal.Signals(number).name)


class Rig:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = Loop(FakeClock())
        self.left: list[Handle] = []
        self.gone: list[str] = []
        self.asked: list[tuple[int, str]] = []
        self.own = LeftBehind("glm", self.loop)
        monkeypatch.setattr(module, "left_in_session", self._find)

    def _find(self, session: int, word: str) -> tuple[Handle, ...]:
        self.asked.append((session, word))
        return tuple(self.left)

    def end(self) -> None:
        self.own.end(ProcessIdentity(10, 100), "word", lambda: self.gone.append("gone"))


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    rig = Rig(monkeypatch)
    yield rig
    rig.loop.close()
    for handle in rig.left:
        handle.close()


def test_with_nothing_left_it_is_gone_at_once(rig: Rig) -> None:
    rig.end()
    assert (rig.asked, rig.gone) == ([(10, "word")], ["gone"])


def test_all_of_it_is_ended_and_waited_for(rig: Rig) -> None:
    rig.left = [Handle(11, []), Handle(12, [])]
    rig.left[1].refuses = True
    rig.end()
    assert [handle.signals for handle in rig.left] == [["SIGKILL"], []]
    rig.left[0].end(None)
    rig.loop.run_once(0)
    assert rig.gone == []
    rig.left[1].end(None)
    rig.loop.run_once(0)
    assert rig.gone == ["gone"]
    assert all(handle.closed for handle in rig.left)


def test_let_go_it_is_waited_for_no_more(rig: Rig) -> None:
    rig.left = [Handle(11, [])]
    rig.end()
    rig.own.let_go()
    rig.loop.run_once(0)
    assert (rig.gone, rig.left[0].closed) == ([], True)


def test_where_it_cannot_be_looked_for_nothing_is_waited_for(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_session: int, _word: str) -> tuple[Handle, ...]:
        raise PermissionError("no /proc")

    monkeypatch.setattr(module, "left_in_session", refuse)
    rig.end()
    assert rig.gone == ["gone"]
    assert "cannot be looked for: no /proc" in caplog.text
