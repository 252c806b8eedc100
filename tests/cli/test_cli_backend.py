"""moetunectl backend: subcommands, help, and what all of them do without a daemon or with a wrong name."""

from __future__ import annotations

from typing import Any

import click
import pytest
from backend_scenes import FakeDaemon

from moetuned.cli import main
from moetuned.cli.backend import command as group

SUBCOMMANDS = ("adopt", "list", "pause", "restart", "resume", "show")


def test_subcommands_are_found_by_file_and_are_no_commands_of_their_own() -> None:
    context = click.Context(group)
    assert tuple(group.list_commands(context)) == SUBCOMMANDS
    assert group.get_command(context, "table") is None
    assert group.get_command(context, "../main") is None
    names = main.group.list_commands(click.Context(main.group))
    assert "backend" in names
    assert not [name for name in names if name.startswith("backend-")]
    assert main.run(["backend-list"]) == 2


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_help_has_examples_and_fits(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["backend", name, "--help"]) == 0
    text = capsys.readouterr().out
    assert f"moetunectl backend {name}" in text
    assert "Examples:" in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("name", ["show", "restart", "pause", "resume"])
def test_a_name_that_nobody_has(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str], name: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main.run(["backend", name, "nope\x1b[2J"])
    assert ended.value.code == 1
    assert "there are: glm, llama-server-50411" in capsys.readouterr().err
    assert daemon.posted == []


@pytest.mark.parametrize("words", [["list"], ["show", "glm"], ["restart", "glm"], ["pause", "glm"], ["resume", "glm"]])
def test_without_a_daemon(capsys: pytest.CaptureFixture[str], tmp_path: Any, words: list[str]) -> None:
    assert main.run(["backend", *words, "--socket", str(tmp_path / "none.sock")]) == 3
    assert "not running" in capsys.readouterr().err
