from __future__ import annotations

import io

import msgspec
import pytest
from status_scenes import thrash

from moetuned.api.client import Client
from moetuned.api.errors import DaemonUnreachable
from moetuned.cli import main, status
from moetuned.schema.snapshot import Snapshot


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def answered(monkeypatch):
    monkeypatch.setattr(Client, "status", lambda _self: thrash())


def test_screen(answered, capsys):
    assert main.run(["status"]) == 0
    out = capsys.readouterr().out
    assert "glm is thrashing for 40 s" in out
    assert "\x1b" not in out


def test_json_is_the_snapshot(answered, capsys):
    assert main.run(["status", "--json"]) == 0
    decoded = msgspec.json.decode(capsys.readouterr().out, type=Snapshot)
    assert decoded == thrash()


def test_without_a_daemon_one_sentence_and_3(capsys, tmp_path):
    assert main.run(["status", "--socket", str(tmp_path / "none.sock")]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "is not running" in captured.err


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_colour(monkeypatch, environment, wanted):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout", Terminal())
    assert status.wants_colour() is wanted


def test_no_colour_into_a_pipe(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert status.wants_colour() is False


def test_watch_redraws_survives_a_restart_and_ends_with_ctrl_c(monkeypatch):
    answers = iter([thrash(), DaemonUnreachable("moetuned is not running."), thrash()])
    naps = iter([None, None, KeyboardInterrupt()])

    def ask(_self):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def nap(seconds):
        assert seconds == status.WATCH_SECONDS
        if (end := next(naps)) is not None:
            raise end

    out = Terminal()
    monkeypatch.setattr(Client, "status", ask)
    monkeypatch.setattr(status.time, "sleep", nap)
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setenv("LINES", "20")
    monkeypatch.setenv("COLUMNS", "80")
    assert main.run(["status", "--watch"]) == 0
    frames = out.getvalue().split("\x1b[H\x1b[J")[1:]
    assert len(frames) == 3
    assert "is not running" in frames[1]
    assert frames[0].count("\n") < 20  # never scrolls the terminal
    assert "more: moetunectl status" in frames[0]


def test_a_terminal_without_utf_8_still_gets_a_screen(answered, monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert main.run(["status"]) == 0
    import sys

    sys.stdout.flush()
    assert b"glm is thrashing" in raw.getvalue()


def test_without_an_output_nothing_is_written_and_nothing_fails(answered, monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    assert main.run(["status"]) == 0
