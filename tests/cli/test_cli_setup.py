"""`moetunectl setup` on a real terminal: asked, answered wrongly, broken off, and the same without one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes.own_terminal import OwnTerminal, own_terminal
from setup_scenes import DRIVER, FACTS, packed

from moetuned.cli import setup_run
from moetuned.cli.main import run
from moetuned.cli.setup_deeds import check_writable
from moetuned.schema.setup import SetupFacts


def command(*arguments: str, facts: SetupFacts = FACTS) -> list[str]:
    return [sys.executable, "-c", DRIVER, packed(facts), "setup", *arguments]


def answer(terminal: OwnTerminal, asked: str, typed: str) -> None:
    """Type it once this is asked and the prompt stands there."""
    terminal.until(lambda: _asks(terminal, asked), f"asks {asked!r}")
    seen = len(terminal.written)
    terminal.type(f"{typed}\n")
    terminal.until(lambda: len(terminal.written) > seen + len(typed), "goes on")


def _asks(terminal: OwnTerminal, asked: str) -> bool:
    text = terminal.written.decode("utf-8", "replace")
    return asked in text and text.rstrip("\r\n").endswith(("> ", "]: "))


def test_the_whole_dialogue() -> None:
    with own_terminal(command()) as terminal:
        answer(terminal, "Which backends", "qwen")
        terminal.until(lambda: b"qwen is none of them" in terminal.written, "says what is wrong")
        answer(terminal, "qwen is none of them", "")
        answer(terminal, "Context of glm-4.5-air", "8k")
        answer(terminal, "8k is no whole number from 256 to 131072", "8192")
        answer(terminal, "Requests that glm-4.5-air", "")
        answer(terminal, "How short may the context", "4096")
        answer(terminal, "may moetuned restart", "act")
        answer(terminal, "vm.swappiness: 60 -> 10", "")
        answer(terminal, "How shall it tell you?", "")
        answer(terminal, "Do it?", "y")
        assert terminal.ends() == 0
        said = terminal.written.decode()
        assert "MOETUNED_CONTEXT=8192" in said
        assert "context: {preferred: 8192, minimum: 4096}" in said
        assert "mode: act" in said
        assert "CARRIED OUT 4" in said
        assert "\x1b[3" not in said, "no colour"
        assert terminal.is_as_before


@pytest.mark.parametrize("size", [(80, 24), (40, 24), (200, 50)])
def test_no_line_of_its_own_is_wider_than_the_terminal(size: tuple[int, int]) -> None:
    with own_terminal(command("--dry-run", "--yes"), size) as terminal:
        assert terminal.ends() == 0
        lines = terminal.written.decode().replace("\r", "").split("\n")
        # What is written to files is shown as it is.
        assert [line for line in lines if len(line) > size[0] and not line.startswith("     |")] == []


@pytest.mark.parametrize("answered", [0, 1, 3])
def test_broken_off_at_any_question_nothing_is_written(answered: int) -> None:
    questions = ["Which backends", "Context of", "Requests that", "How short"]
    with own_terminal(command()) as terminal:
        for asked in questions[:answered]:
            answer(terminal, asked, "")
        terminal.until(lambda: _asks(terminal, questions[answered]), "asks")
        terminal.interrupt()
        assert terminal.ends() == 130
        said = terminal.written.decode()
        assert "Nothing was written." in said
        assert "CARRIED OUT" not in said
        assert "Traceback" not in said


def test_a_no_at_the_end_writes_nothing() -> None:
    facts = msgspec.structs.replace(FACTS, candidates=())
    with own_terminal(command(facts=facts)) as terminal:
        answer(terminal, "May moetuned change kernel settings", "")
        answer(terminal, "How shall it tell you?", "")
        answer(terminal, "Do it?", "n")
        assert terminal.ends() == 1
        assert "CARRIED OUT" not in terminal.written.decode()


def test_an_edited_file_is_asked_about_by_name() -> None:
    text = "# Written by moetuned. Take it away with: sudo moetunectl setup --undo\n# Checksum of the lines below, sha256: 0\nbackends: []\n"
    facts = msgspec.structs.replace(FACTS, candidates=(), config_text=text)
    arguments = ("--profile", "moe-offload", "--alert", "none")
    for typed, done in (("n", False), ("y", True)):
        with own_terminal(command(*arguments, facts=facts)) as terminal:
            terminal.until(lambda terminal=terminal: b"[y/N]: " in terminal.written, "asks")
            assert "50-setup.yaml was edited since setup wrote it. Replace it" in " ".join(
                terminal.written.decode().split()
            )
            terminal.type(f"{typed}\n")
            answer(terminal, "Do it?", "y")
            assert terminal.ends() == 0
            assert ("CARRIED OUT 2" in terminal.written.decode()) == done


def piped(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "there is nobody to ask here (no terminal): take the defaults with --yes"),
        (
            ("--json",),
            2,
            "--json asks nothing: add --dry-run to see the plan, or --yes to have it done. Nothing was changed",
        ),
        (("--yes", "--alert", "ntfy"), 2, "--ntfy-url is needed: nothing must be http"),
        (("--yes", "--backend", "qwen"), 2, "--backend: qwen is none of them"),
        (
            ("--yes", "--relief", "perhaps"),
            2,
            "--relief: perhaps is none of them; write a number from 1 to 2, or observe or act",
        ),
        (("--yes", "--context", "9999999"), 2, "--context: 9999999 is no whole number from 256 to 131072"),
        (("--undo", "--yes", "--relief", "act"), 2, "--undo takes no answers"),
    ],
)
def test_what_cannot_be_done_is_said(arguments: tuple[str, ...], code: int, said: str) -> None:
    done = piped(*arguments)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert "CARRIED OUT" not in done.stdout


@pytest.mark.parametrize("more", [(), ("--undo",), ("--undo", "--relief", "act")])
def test_json_of_what_nobody_confirmed(more: tuple[str, ...]) -> None:
    """Nobody can be asked, and nothing is done without a yes: a program reads why, as JSON."""
    done = piped("--json", *more)
    report: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == 2
    assert report["error"] in done.stderr
    assert ("add --dry-run" in report["error"]) == ("--relief" not in more)
    assert (report["done"], report["plan"]["deeds"]) == ([], [])


def test_json_of_a_dry_run() -> None:
    done = piped("--dry-run", "--json", "--slots", "4", "--mail-to", "ann")
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["answers"]["slots glm-4.5-air"] == "4"
    assert report["dry_run"] is True
    assert [each["step"] for each in report["plan"]["deeds"]] == ["write", "write", "start_backend", "start_service"]
    assert "note: --mail-to was not needed here" in done.stderr


def test_yes_takes_the_defaults() -> None:
    done = piped("--yes")
    assert done.returncode == 0, done.stderr
    assert "CARRIED OUT 4" in done.stdout
    assert "Looked for models in /models (2), /srv (0; not looked at all of it: it takes too long)." in " ".join(
        done.stdout.split()
    )
    assert "kimi" in done.stdout


def test_an_ordinary_user_is_told_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(setup_run, "gather", lambda *_: FACTS)
    monkeypatch.setattr(setup_run, "load_checked", lambda _: None)
    with pytest.raises(SystemExit) as ended:
        run(["setup", "--yes"])
    assert ended.value.code == 4
    assert "sudo moetunectl setup" in capsys.readouterr().err
    assert run(["setup", "--dry-run"]) == 0


def test_a_directory_that_is_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from moetuned.cli.setup_deeds import DeedError
    from moetuned.schema.setup import PlannedDeed, Step

    deed = PlannedDeed(Step.WRITE, str(tmp_path / "a/b/x.yaml"), "", after="x")
    check_writable([deed])
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(DeedError, match=r"is read-only\. Nothing was changed"):
        check_writable([deed])
