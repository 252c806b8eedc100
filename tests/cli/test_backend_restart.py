"""moetunectl backend restart: what it asks, and how it ends."""

from __future__ import annotations

import click
import pytest
from backend_scenes import FakeDaemon

from moetuned.api.errors import DaemonError, DaemonRefused
from moetuned.cli import backend_restart, main, restart_progress
from moetuned.cli.restart_progress import Outcome


def test_a_restart_is_tried_first_then_done(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["backend", "restart", "glm", "--context", "4096"]) == 0
    wanted = {"backend": "glm", "do": "restart", "context": 4096, "now": False}
    assert daemon.posted == [{**wanted, "dry_run": True}, wanted]
    out = " ".join(capsys.readouterr().out.split())
    assert "takes about 40 s" in out
    assert out.endswith("glm is healthy again")
    assert main.run(["backend", "restart", "glm", "--now", "--yes"]) == 0
    assert daemon.posted[-1] == {"backend": "glm", "do": "restart", "context": None, "now": True}


def test_on_a_terminal_it_asks(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(backend_restart, "on_a_terminal", lambda: True)
    answers = [False, True]
    monkeypatch.setattr(click, "confirm", lambda *_a, **_k: answers.pop(0))
    with pytest.raises(SystemExit) as ended:
        main.run(["backend", "restart", "glm"])
    assert ended.value.code == 4
    assert "nothing was restarted" in capsys.readouterr().err
    assert len(daemon.posted) == 1
    assert main.run(["backend", "restart", "glm"]) == 0
    assert len(daemon.posted) == 3
    assert main.run(["backend", "restart", "glm", "--yes"]) == 0
    assert answers == []


def test_what_is_refused_is_refused_before_it_asks(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.refusal = DaemonError("moetuned only watches glm")
    assert main.run(["backend", "restart", "glm"]) == 1
    assert capsys.readouterr().err == "moetunectl: moetuned only watches glm\n"
    daemon.refusal = DaemonRefused("Only root")
    assert main.run(["backend", "pause", "glm"]) == 4
    assert main.run(["backend", "restart", "glm", "--context", "100"]) == 2
    assert len(daemon.posted) == 2


def test_how_it_ended(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(restart_progress, "follow", lambda *_: Outcome(well=False, sentence="glm does not start"))
    with pytest.raises(SystemExit) as ended:
        main.run(["backend", "restart", "glm"])
    assert ended.value.code == 1
    assert capsys.readouterr().err == "moetunectl: glm does not start\n"

    def interrupted(*_: object) -> Outcome:
        raise KeyboardInterrupt

    monkeypatch.setattr(restart_progress, "follow", interrupted)
    with pytest.raises(SystemExit) as ended:
        main.run(["backend", "restart", "glm"])
    assert ended.value.code == 130
    assert "goes on" in capsys.readouterr().err
    assert daemon.posted[-1]["do"] == "restart"
