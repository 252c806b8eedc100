"""The picture: over itself on a terminal, lines elsewhere."""

from __future__ import annotations

import os
import shutil
import sys

import pytest
from show_scenes import FakeTime, snapshot

from moetuned.demo import screen as module
from moetuned.demo.screen import Screen
from moetuned.schema.verdict import Paging


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    clock = FakeTime()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda self: True)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((80, 24)))


def test_lines_say_when_something_began_and_was_seen(clock: FakeTime, capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(plain=True)
    screen.scene("1/5  cold start")
    clock.sleep(65)
    screen.seen("cold: it loads (after 1 s)")
    screen.note("the daemon was killed")
    assert capsys.readouterr().out.splitlines() == [
        "[0:00] 1/5  cold start",
        "[1:05]   seen: cold: it loads (after 1 s)",
        "[1:05]   the daemon was killed",
    ]


def test_a_line_comes_when_the_verdict_changes_and_now_and_then(
    clock: FakeTime, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = Screen(plain=True)
    for paging in (Paging.COLD, Paging.COLD, Paging.STEADY):
        screen.draw(snapshot(paging=paging))
        clock.sleep(1)
    screen.draw(None)
    clock.sleep(20)
    screen.draw(snapshot())
    assert capsys.readouterr().out.splitlines() == [
        "[0:00]   demo is cold",
        "[0:02]   demo is steady",
        "[0:23]   demo is steady",
    ]


def test_no_picture_where_there_is_no_terminal(clock: FakeTime, capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(plain=False)
    screen.draw(snapshot())
    assert "\x1b" not in capsys.readouterr().out


def test_no_picture_for_who_wants_lines(terminal: None, clock: FakeTime, capsys: pytest.CaptureFixture[str]) -> None:
    Screen(plain=True).draw(snapshot())
    assert capsys.readouterr().out == "[0:00]   demo is steady\n"


def test_the_picture_fits_the_terminal(terminal: None, clock: FakeTime, capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(plain=False)
    screen.scene("2/5  somebody asks")
    for number in range(40):
        screen.seen(f"thing {number}")
    capsys.readouterr()
    screen.draw(snapshot())
    picture = capsys.readouterr().out
    assert picture.startswith("\x1b[H")
    assert picture.endswith("\x1b[J")
    assert picture.count("\n") <= 23
    assert "2/5  somebody asks" in picture
    assert "thing 39" in picture
    assert "thing 31\n" not in picture, "only the last ones"
    assert "demo" in picture


def test_a_daemon_that_does_not_answer_is_said(
    terminal: None, clock: FakeTime, capsys: pytest.CaptureFixture[str]
) -> None:
    Screen(plain=False).draw(None)
    assert "the daemon does not answer (yet)" in capsys.readouterr().out


def test_a_tiny_terminal_is_no_error(
    terminal: None, clock: FakeTime, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((10, 1)))
    Screen(plain=False).draw(snapshot())
    picture = capsys.readouterr().out
    assert picture.startswith("\x1b[2J\x1b[H")
    assert picture.count("\n") == 1
