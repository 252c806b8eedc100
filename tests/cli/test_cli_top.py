"""The command; how it draws on a terminal is in test_top_loop.py."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
from status_scenes import thrash
from top_scenes import squeezed

from moetuned.api.client import Client
from moetuned.cli import main, top_others


class Terminal(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "status", lambda _self: thrash())
    monkeypatch.setattr(Client, "history", lambda _self: squeezed().history)
    monkeypatch.setattr(top_others.Others, "look", lambda _self, _pids: ("rsync (pid 8) reads 140 MB/s",))


def test_once_is_one_picture_as_text(
    answered: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main.run(["top", "--once"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].startswith("moetuned ")
    assert "glm is thrashing for 40 s" in out
    assert "  reads     457 MB/s" in out
    assert "others   rsync (pid 8) reads 140 MB/s" in out
    assert "\x1b" not in out
    assert "q quit" not in out
    assert max(map(len, out.splitlines())) <= 80


def test_once_on_a_terminal_has_colour(answered: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = Terminal()
    monkeypatch.setattr("sys.stdout", out)
    assert main.run(["top", "--once"]) == 0
    assert "\x1b[1;31mglm is thrashing" in out.getvalue()
    assert "█" in out.getvalue()


def test_once_without_utf_8_is_ascii(answered: None, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert main.run(["top", "--once"]) == 0
    sys.stdout.flush()
    assert raw.getvalue().isascii()
    assert b"####" in raw.getvalue()


def test_no_terminal_is_a_usage_error_that_says_what_to_do(answered: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["top"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "is no terminal" in captured.err
    assert "moetunectl status --watch" in captured.err


@pytest.mark.parametrize(
    "options", [["--interval", "0.1"], ["--interval", "61"], ["--interval", "x"], ["--sort", "size"]]
)
def test_bad_options_are_usage_errors(options: list[str]) -> None:
    assert main.run(["top", "--once", *options]) == 2


def test_without_a_daemon_one_sentence_and_3(capsys: pytest.CaptureFixture[str], tmp_path) -> None:
    assert main.run(["top", "--once", "--socket", str(tmp_path / "none.sock")]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "is not running" in captured.err


def test_its_help_imports_nothing_of_what_draws() -> None:
    program = (
        "import sys\nfrom moetuned.cli.main import run\nrun(['top', '--help'])\n"
        "assert not {'moetuned.cli.top_view', 'msgspec', 'termios', 'moetuned.api.client'} & set(sys.modules), sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--interval" in done.stdout
