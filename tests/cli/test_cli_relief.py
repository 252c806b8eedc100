from __future__ import annotations

import msgspec
from test_relief_view import PLAN

from moetuned.api.client import Client
from moetuned.cli import main
from moetuned.schema.relief import ReliefPlans


def test_the_plan_of_the_daemon(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(Client, "relief", lambda _self, backend: asked.append(backend) or ReliefPlans((PLAN,)))
    assert main.run(["relief", "plan", "glm"]) == 0
    assert "take  context 32768 -> 8192" in capsys.readouterr().out
    assert main.run(["relief", "plan", "--json"]) == 0
    assert msgspec.json.decode(capsys.readouterr().out, type=ReliefPlans).backends == (PLAN,)
    assert asked == ["glm", None]


def test_without_a_daemon(capsys, tmp_path):
    assert main.run(["relief", "plan", "--socket", str(tmp_path / "none.sock")]) == 3
    assert "not running" in capsys.readouterr().err
