"""An answer of the daemon is written for programs or for people."""

from __future__ import annotations

import io
import json
import os
import shutil

import msgspec
import pytest

from moetuned.cli.terminal import tell, terminal_size, wants_colour


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Answer(msgspec.Struct):
    name: str


def in_words(found: Answer, columns: int, colour: bool) -> str:
    return f"{found.name}, at most {columns} columns, colour {colour}\n"


def test_as_json_it_is_not_rendered(capsys: pytest.CaptureFixture[str]) -> None:
    tell(Answer("glm"), in_words, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"name": "glm"}


def test_in_words_it_gets_the_terminals_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for columns, used in ((80, 80), (400, 120)):
        monkeypatch.setenv("COLUMNS", str(columns))
        tell(Answer("glm"), in_words, as_json=False)
        assert capsys.readouterr().out == f"glm, at most {used} columns, colour False\n"


@pytest.mark.parametrize(
    "variables", [{}, {"COLUMNS": "57"}, {"COLUMNS": "57", "LINES": "9"}, {"COLUMNS": "wide", "LINES": "0"}]
)
@pytest.mark.parametrize("real", [None, (132, 50), (0, 0)])
def test_the_size_is_what_shutil_says(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], real: tuple[int, int] | None
) -> None:
    def ask(*_: object) -> os.terminal_size:
        if real is None:
            raise OSError
        return os.terminal_size(real)

    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "get_terminal_size", ask)
    assert terminal_size() == shutil.get_terminal_size()


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_colour(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], wanted: bool) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout", Terminal())
    assert wants_colour() is wanted


def test_no_colour_into_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert wants_colour() is False
