"""moetunectl alerts list."""

from __future__ import annotations

import msgspec
import pytest
from alerts_scenes import FakeDaemon, answer_with, view

from moetuned.cli import main
from moetuned.schema.alert_view import AlertsAnswer


def test_list(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    answer_with(monkeypatch, FakeDaemon((), (view("a"), view("b"))))
    assert main.run(["alerts", "list"]) == 0
    assert "a (webhook)  https://example.org/…" in capsys.readouterr().out
    assert main.run(["alerts", "list", "--json"]) == 0
    assert msgspec.json.decode(capsys.readouterr().out, type=AlertsAnswer).sinks == (view("a"), view("b"))


def test_without_a_daemon_it_says_what_to_do(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["alerts", "list", "--socket", str(tmp_path / "api.sock")]) == 3
    assert "moetuned is not running" in capsys.readouterr().err
