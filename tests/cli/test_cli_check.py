"""moetunectl check: the line, the codes, and that nothing that goes wrong is taken for one of its verdicts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from status_scenes import NOW, SCENES, absent_and_streaming, near_limit, no_backends, thrash

from moetuned.api.client import Client
from moetuned.api.errors import DaemonError, DaemonRefused, DaemonUnreachable
from moetuned.cli import check, main
from moetuned.decide.nagios import CheckAnswer
from moetuned.schema.snapshot import Snapshot


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check.time, "time", lambda: NOW)


def run(monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot | DaemonError, *arguments: str) -> int:
    def ask(_self: Client) -> Snapshot:
        if isinstance(snapshot, DaemonError):
            raise snapshot
        return snapshot

    monkeypatch.setattr(Client, "status", ask)
    with pytest.raises(SystemExit) as ended:
        main.run(["check", *arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize(
    ("make", "code", "word"),
    [(thrash, 2, "CRITICAL"), (near_limit, 1, "WARNING"), (SCENES["beside_others"], 0, "OK"), (no_backends, 3, "UNKNOWN")],
)  # fmt: skip
def test_codes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], make: object, code: int, word: str
) -> None:
    assert callable(make)
    assert run(monkeypatch, make()) == code
    captured = capsys.readouterr()
    assert captured.out.startswith(f"MOETUNED {word} - ")
    assert captured.out.count("\n") == 1
    assert captured.err == ""


def test_one_backend(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, absent_and_streaming()) == 2
    assert run(monkeypatch, absent_and_streaming(), "--backend", "dense") == 0
    out = capsys.readouterr().out.splitlines()
    assert "glm: down" in out[0]
    assert "glm" not in out[1]
    assert run(monkeypatch, near_limit(), "--backend", "nope") == 3
    assert "no backend 'nope'; it knows: glm" in capsys.readouterr().out


def test_a_setting_that_was_changed_is_no_matter_of_one_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    well = msgspec.structs.replace(SCENES["beside_others"](), tuning=near_limit().tuning)
    assert run(monkeypatch, well) == 1
    assert run(monkeypatch, well, "--backend", "glm") == 0


def test_what_is_old_is_unknown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(check.time, "time", lambda: NOW + 3600)
    for arguments in ((), ("--backend", "glm")):
        assert run(monkeypatch, thrash(), *arguments) == 3
        assert "has not looked for 1 h" in capsys.readouterr().out


@pytest.mark.parametrize(
    "error", [DaemonUnreachable("it hangs"), DaemonRefused("You may not."), DaemonError("no moetuned")]
)
def test_without_an_answer_it_is_unknown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: DaemonError
) -> None:
    assert run(monkeypatch, error) == 3
    assert capsys.readouterr().out == f"MOETUNED UNKNOWN - {error}\n"


def test_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, thrash(), "--json") == 2
    found = msgspec.json.decode(capsys.readouterr().out, type=CheckAnswer)
    assert (found.code, found.status, found.headlines[0].backend) == (2, "critical", "glm")
    assert run(monkeypatch, DaemonUnreachable("it hangs"), "--json") == 3
    assert msgspec.json.decode(capsys.readouterr().out, type=CheckAnswer).line == "MOETUNED UNKNOWN - it hangs"


def test_wrong_usage_is_unknown_and_not_critical(tmp_path: Path) -> None:
    program = "from moetuned.cli.main import main; main()"
    for arguments in (["--nope"], ["surplus"], ["--backend"]):
        done = subprocess.run(
            [sys.executable, "-c", program, "check", *arguments], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout[:19], done.stdout.count("\n")) == (3, "MOETUNED UNKNOWN - ", 1)
    gone = [sys.executable, "-c", program, "check", "--socket", str(tmp_path / "none.sock")]
    done = subprocess.run(gone, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (3, "")


@pytest.mark.parametrize("output", ["/dev/full", "closed pipe"])
def test_the_code_holds_where_the_line_cannot_be_written(tmp_path: Path, output: str) -> None:
    if output == "closed pipe":
        reader, writer = os.pipe()
        os.close(reader)
    else:
        writer = os.open(output, os.O_WRONLY)
    try:
        done = subprocess.run(
            [sys.executable, "-c", "from moetuned.cli.main import main; main()", "check", "--socket", str(tmp_path / "none")],
            stdout=writer, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (3, b"")
