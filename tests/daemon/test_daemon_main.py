"""The entry point: where things are kept, and how the log looks."""

from __future__ import annotations

import logging

import pytest
from click.testing import CliRunner

from moetuned.daemon import main as module
from moetuned.daemon.main import group, runtime_directory


@pytest.mark.parametrize(
    ("given", "uid", "own", "expected"),
    [
        (None, 0, "/run/user/0", "/run/moetuned"),
        (None, 1000, "/run/user/1000", "/run/user/1000/moetuned"),
        (None, 1000, None, "/run/moetuned"),
        ("/tmp/x", 1000, "/run/user/1000", "/tmp/x"),
    ],
)
def test_where_the_socket_is(monkeypatch: pytest.MonkeyPatch, given, uid, own, expected) -> None:
    monkeypatch.setattr(module.os, "geteuid", lambda: uid)
    if own is None:
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    else:
        monkeypatch.setenv("XDG_RUNTIME_DIR", own)
    assert runtime_directory(given, "/run/moetuned/api.sock") == expected


def test_a_socket_elsewhere_keeps_its_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.os, "geteuid", lambda: 1000)
    assert runtime_directory(None, "/srv/x/api.sock") == "/srv/x"


def test_usage() -> None:
    runner = CliRunner()
    assert runner.invoke(group, ["--version"]).output.startswith("moetuned ")
    assert "settings are rolled back" in runner.invoke(group, ["run", "--help"]).output
    assert runner.invoke(group, ["run", "--nonsense"]).exit_code == 2


@pytest.mark.parametrize(
    ("level", "expected"), [(logging.ERROR, "<3>"), (logging.WARNING, "<4>"), (logging.INFO, "<6>")]
)
def test_the_journal_gets_priorities_on_every_line(monkeypatch: pytest.MonkeyPatch, level: int, expected: str) -> None:
    monkeypatch.setenv("JOURNAL_STREAM", "8:1")
    record = logging.LogRecord("x", level, "f", 1, "one\ntwo", None, None)
    assert module.log_formatter().format(record) == f"{expected}one\n{expected}two"
    monkeypatch.delenv("JOURNAL_STREAM")
    record = logging.LogRecord("x", level, "f", 1, "one", None, None)
    assert module.log_formatter().format(record).endswith(f"{logging.getLevelName(level)} one")


def test_a_missing_config_is_named(tmp_path) -> None:
    missing = str(tmp_path / "missing.yaml")
    result = CliRunner().invoke(group, ["run", "--config", missing])
    assert result.exit_code == 2
    assert missing in result.output
