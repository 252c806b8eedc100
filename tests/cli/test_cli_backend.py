"""The group `moetunectl backend`: its commands are files."""

from __future__ import annotations

import sys
import types

import click
import pytest

from moetuned.cli import backend
from moetuned.cli.main import group, run


def test_a_subcommand_is_a_file_with_that_object(monkeypatch: pytest.MonkeyPatch) -> None:
    names = backend._names()
    assert "adopt" in names
    monkeypatch.setattr(backend, "_names", lambda: ["adopt", "show-all", "nothing"])
    there, empty = types.ModuleType("moetuned.cli.backend_show_all"), types.ModuleType("moetuned.cli.backend_nothing")
    there.subcommand = click.Command("show-all")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, there.__name__, there)
    monkeypatch.setitem(sys.modules, empty.__name__, empty)
    assert isinstance(backend.command, click.Group)
    context = click.Context(backend.command)
    assert backend.command.list_commands(context) == ["adopt", "show-all"]
    assert backend.command.get_command(context, "show-all") is there.subcommand
    assert backend.command.get_command(context, "show_all") is None
    assert backend.command.get_command(context, "absent") is None


def test_a_subcommand_is_no_command_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert "backend" in group.list_commands(click.Context(group))
    assert group.get_command(click.Context(group), "backend-adopt") is None
    assert run(["backend", "no-such"]) == 2
    assert "No such command 'no-such'" in capsys.readouterr().err
