"""What the commands about a model's pages share."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from fakes.gguf_bytes import write_parts

from moetuned.cli import estimate, evict, residency, tune_readahead, warm
from moetuned.cli.model_command import exit_code, fail, looked, print_json, read_or_fail, size
from moetuned.cli.model_residency import Look


def test_sizes() -> None:
    context, option = click.Context(click.Command("x")), click.Option(["--budget"])
    assert size(context, option, "2G") == 2 << 30
    assert size(context, option, None) is None
    for wrong in ("0", "much", "-1"):
        with pytest.raises(click.BadParameter):
            size(context, option, wrong)


def test_a_model_that_cannot_be_read_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read_or_fail(str(tmp_path / "none.gguf"))
    assert ended.value.code == 2
    assert str(tmp_path / "none.gguf") in capsys.readouterr().err


def test_a_model_that_this_user_may_not_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: str, _flags: int) -> int:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(SystemExit) as ended:
        read_or_fail(str(tmp_path / "m.gguf"))
    assert ended.value.code == 4
    assert "Permission denied" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [residency.command, warm.command, evict.command, estimate.command, tune_readahead.readahead]
)
def test_every_command_refuses_a_model_that_this_user_may_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: click.Command
) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF")

    def refuse(path: str, *_rest: object) -> int:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(os, "access", lambda path, *_asked, **_how: path != str(model))
    result = CliRunner().invoke(command, [str(model)])
    assert result.exit_code == 4, result.output
    assert "Permission denied" in result.stderr


def test_any_part_will_do(tmp_path: Path) -> None:
    paths = write_parts(tmp_path)
    model = read_or_fail(str(paths[2]))
    assert model.identity.paths == tuple(map(str, paths))
    assert [part.path for part in looked(model).parts] == list(model.identity.paths)


def test_exit_codes() -> None:
    assert [exit_code(look) for look in (Look(), Look(unknown="x"), Look(unknown="x", refused=True))] == [0, 1, 4]


def test_json_is_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"model": "/m\udcff\u00e4.gguf"})
    out = capsys.readouterr().out
    assert out.isascii()
    assert json.loads(out) == {"model": "/m\udcff\u00e4.gguf"}


def test_a_failure_is_one_printable_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        fail("/m\n.gguf: no", 4)
    assert ended.value.code == 4
    assert capsys.readouterr().err == "moetunectl: /m\\n.gguf: no\n"
