"""What the show waits for, with a daemon that shows what the test wants and a clock that only waiting moves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
from show_scenes import FakeDaemon, FakeTime, event, snapshot

from moetuned.demo import show as module
from moetuned.demo.daemon_process import DaemonProcess
from moetuned.demo.screen import Screen
from moetuned.demo.show import NotSeen, Observed, Show, process_read_bytes, settings_now
from moetuned.demo.visitor import Visitor
from moetuned.schema.event import EventName
from moetuned.schema.verdict import MemoryState, Paging, Phase


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    clock = FakeTime()
    monkeypatch.setattr(module, "time", clock)
    return clock


def show_of(daemon: FakeDaemon, hook_log: str = "/no/such/log") -> Show:
    return Show(cast("DaemonProcess", daemon), Screen(plain=True), "demo", hook_log)


def test_waiting_ends_when_it_is_seen(clock: FakeTime, capsys: pytest.CaptureFixture[str]) -> None:
    show = show_of(FakeDaemon(None, snapshot(Phase.LOADING, Paging.COLD), snapshot()))
    assert show.wait("steady", 60, show.is_calm) == pytest.approx(0.5)
    assert show.phases == {Phase.LOADING, Phase.DECODE}
    assert show.pagings == {Paging.COLD, Paging.STEADY}
    assert "seen: steady" in capsys.readouterr().out


def test_waiting_has_an_end(clock: FakeTime) -> None:
    show = show_of(FakeDaemon(snapshot(paging=Paging.COLD)))
    with pytest.raises(NotSeen, match="steady: not seen within 60 s"):
        show.wait("steady", 60, show.is_calm)
    assert clock.now == pytest.approx(60, abs=1)


def test_what_is_there_at_once_is_seen_without_time(clock: FakeTime) -> None:
    assert show_of(FakeDaemon(snapshot())).wait("it", 0.0, lambda: True) == 0.0


def test_holding_goes_on_looking(clock: FakeTime) -> None:
    daemon = FakeDaemon(snapshot())
    show_of(daemon).hold(5)
    assert daemon.looks == 20
    assert clock.now == pytest.approx(5)


@pytest.mark.parametrize(
    ("phase", "paging", "memory", "calm"),
    [
        (Phase.DECODE, Paging.STEADY, MemoryState.OK, True),
        (Phase.IDLE, Paging.STEADY, MemoryState.OK, True),
        (Phase.LOADING, Paging.STEADY, MemoryState.OK, False),
        (Phase.DECODE, Paging.STREAMING, MemoryState.OK, False),
        (Phase.DECODE, Paging.STEADY, MemoryState.NEAR_LIMIT, False),
        (Phase.DECODE, Paging.STEADY, MemoryState.UNKNOWN, False),
    ],
)
def test_calm(phase: Phase, paging: Paging, memory: MemoryState, calm: bool) -> None:
    show = show_of(FakeDaemon(snapshot(phase, paging, memory)))
    assert not show.is_calm(), "nothing seen yet"
    show.look()
    assert show.is_calm() is calm


def test_calm_is_only_believed_after_two_more_answers() -> None:
    show = show_of(FakeDaemon(snapshot()))
    show.visitor = Visitor(1)
    show.visitor.answered = 5
    with pytest.raises(NotSeen):
        show.wait_calm("steady", 2)
    show.visitor.answered = 5
    asked = iter(range(1000))
    real_look = show.look

    def look() -> None:
        real_look()
        assert show.visitor is not None
        show.visitor.answered = 5 + next(asked)

    show.look = look  # type: ignore[method-assign]
    assert show.wait_calm("steady", 2) == pytest.approx(0.5)


def test_another_backend_is_not_the_one_looked_for() -> None:
    show = show_of(FakeDaemon(snapshot(name="other")))
    show.look()
    assert show.view is None
    assert show.phases == set()


def test_a_snapshot_stays_while_the_daemon_is_away() -> None:
    show = show_of(FakeDaemon(snapshot(), None))
    show.look()
    show.look()
    assert show.view is not None


def test_an_event_counts_only_when_it_began_afterwards() -> None:
    events = (
        event(EventName.THRASH_BEGIN, 990.0),
        event(EventName.THRASH_END, 1002.0),
        event(EventName.THRASH_BEGIN, 1003.0),
        event(EventName.THRASH_BEGIN, 1009.0),
    )
    show = show_of(FakeDaemon(snapshot(events=events)))
    assert show.event(EventName.THRASH_BEGIN, 0.0) is None
    show.look()
    assert show.event(EventName.THRASH_BEGIN, 1000.0) is events[2]
    assert show.event(EventName.BACKEND_DOWN, 0.0) is None


def test_the_hook_is_known_by_its_line(tmp_path: Path) -> None:
    log = tmp_path / "hooks.log"
    show = show_of(FakeDaemon(snapshot()), str(log))
    assert not show.hook_ran(EventName.THRASH_BEGIN)
    log.write_text("thrash_begin demo thrashes\n")
    assert show.hook_ran(EventName.THRASH_BEGIN)
    assert not show.hook_ran(EventName.MEMORY_NEAR_LIMIT)


@pytest.mark.parametrize(("pid", "word"), [(4001, "found the backend again"), (4002, "has ANOTHER backend")])
def test_after_the_daemon_was_killed_it_is_told_whether_its_backend_was_found_again(
    pid: int, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show = show_of(FakeDaemon(snapshot(pid=4001), None, snapshot(pid=None), snapshot(pid=pid), kills=(2,)))
    for _ in range(5):
        show.look()
    assert f"the new daemon {word} (process {pid})" in capsys.readouterr().out
    assert show.observed.facts == [("after kill -9 of the daemon", f"the next one {word}: process {pid}")]


def test_reads_of_all_its_processes_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {1: [100, 300, None], 2: [50]}
    monkeypatch.setattr(module, "process_read_bytes", lambda pid: counts[pid].pop(0))
    show = show_of(FakeDaemon(*(snapshot(pid=pid) for pid in (1, 1, 1, 2))))
    for _ in range(4):
        show.look()
    assert show.observed.total_read_bytes == 350


def test_what_one_show_saw_is_not_in_the_next() -> None:
    Observed().fact("a", "b")
    assert Observed() == Observed(facts=[], read_bytes={})


def test_bytes_a_process_read() -> None:
    own = process_read_bytes(os.getpid())
    assert own is not None
    assert own >= 0
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    assert process_read_bytes(done.pid) is None


def test_settings_that_are_not_there_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("10\n")
    assert settings_now((str(tmp_path / "a"), str(tmp_path / "gone"))) == {str(tmp_path / "a"): "10\n"}
