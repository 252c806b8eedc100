from __future__ import annotations

import pytest

from moetuned.api.client import Client
from moetuned.cli import main, metrics

HOSTILE = b'moetuned_backend_info{model="\x1b]0;x\x07"} 1.0\nmoetuned_ticks_total 3.0\n'


@pytest.fixture
def asked(monkeypatch):
    seen = []

    def told(_self, *, openmetrics=False):
        seen.append(openmetrics)
        return HOSTILE + (b"# EOF\n" if openmetrics else b"")

    monkeypatch.setattr(Client, "metrics", told)
    return seen


def test_they_are_printed_byte_for_byte(asked, capfdbinary):
    assert main.run(["metrics"]) == 0
    assert main.run(["metrics", "--openmetrics"]) == 0
    assert capfdbinary.readouterr().out == HOSTILE + HOSTILE + b"# EOF\n"
    assert asked == [False, True]


def test_a_terminal_gets_no_commands(asked, capfdbinary, monkeypatch):
    monkeypatch.setattr(metrics.sys.stdout, "isatty", lambda: True, raising=False)
    assert main.run(["metrics"]) == 0
    assert capfdbinary.readouterr().out == b'moetuned_backend_info{model="?]0;x?"} 1.0\nmoetuned_ticks_total 3.0\n'


def test_without_a_daemon(tmp_path, capsys):
    assert main.run(["metrics", "--socket", str(tmp_path / "none.sock")]) == 3
    assert "moetuned is not running" in capsys.readouterr().err
