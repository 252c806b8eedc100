"""Which backend the demo takes, and what it says when one is not to be had."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from moetuned import backends
from moetuned.demo.backend_choice import KINDS, ChoiceError, choose

HELP = "--ctx-size N  --metrics  --cache-ram N  --no-repack"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH of its own without a llama-server; LLAMA_SERVER is not set."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.delenv("LLAMA_SERVER", raising=False)
    return directory


def server(at: Path, help_text: str = HELP, code: int = 0, name: str = "llama-server") -> str:
    program = at / name
    program.write_text(f"#!/bin/sh\ncase \"$1\" in --help) printf '%s\\n' '{help_text}'; exit {code};; esac\nexit 9\n")
    program.chmod(0o755)
    return str(program)


def without_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def test_a_llama_server_on_path_wins(path: Path) -> None:
    program = server(path)
    choice = choose("auto", 8123, 3)
    assert (choice.name, choice.kind, choice.real) == ("llama-server", "llama-server", True)
    assert choice.command[0] == program
    assert {"{model}", "{context}", "{prompt_cache_mib}", "--no-repack", "--metrics"} <= set(choice.command)
    assert choice.command[choice.command.index("--port") + 1] == "8123"
    assert choice.command[choice.command.index("-t") + 1] == "3"


def test_what_llama_server_names_wins_over_path(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server(path)
    monkeypatch.setenv("LLAMA_SERVER", server(tmp_path, name="mine"))
    assert choose("llama-server", 1, 1).command[0] == str(tmp_path / "mine")


@pytest.mark.parametrize(
    ("missing", "flags"),
    [
        ("--metrics", ["--metrics"]),
        ("--cache-ram", ["--cache-ram", "{prompt_cache_mib}"]),
        ("--no-repack", ["--no-repack"]),
    ],
)
def test_a_flag_that_the_build_does_not_know_is_left_out(path: Path, missing: str, flags: list[str]) -> None:
    server(path)
    whole = choose("llama-server", 1, 1).command
    server(path, HELP.replace(missing, ""))
    assert choose("llama-server", 1, 1).command == tuple(word for word in whole if word not in flags)


@pytest.mark.parametrize("text", ["", "usage: something else"])
def test_a_program_that_is_no_llama_server_is_refused(path: Path, text: str) -> None:
    program = server(path, text, code=1)
    with pytest.raises(ChoiceError, match=r"does not look like llama-server's \(code 1\)") as caught:
        choose("auto", 1, 1)
    assert program in str(caught.value)


def test_a_program_that_cannot_run_is_refused(path: Path) -> None:
    (path / "llama-server").write_text("#!/no/such/interpreter\n")
    (path / "llama-server").chmod(0o755)
    with pytest.raises(ChoiceError, match="--help does not answer"):
        choose("auto", 1, 1)


@pytest.mark.parametrize("kind", ["missing", "directory", "no program"])
def test_a_variable_that_names_no_program_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    named = tmp_path / "named"
    if kind == "directory":
        named.mkdir()
    elif kind == "no program":
        named.write_text("")
        named.chmod(0o644)
    monkeypatch.setenv("LLAMA_SERVER", str(named))
    with pytest.raises(ChoiceError, match=f"LLAMA_SERVER names {named}, which is no program"):
        choose("auto", 1, 1)


def test_the_wheel_is_next(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    choice = choose("auto", 1, 1)
    assert (choice.kind, choice.real, choice.command[2]) == ("xllamacpp", True, "moetuned.xllamacpp_server")


def test_the_stand_in_is_last_and_says_what_it_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_wheel(monkeypatch)
    choice = choose("auto", 1, 1)
    assert (choice.kind, choice.real, choice.command[2:4]) == ("simulator", False, ("moetuned.simulator", "serve"))
    assert "no language model" in choice.name
    server(path)
    assert choose("stand-in", 1, 1) == choice


@pytest.mark.parametrize(("wanted", "word"), [("llama-server", "LLAMA_SERVER"), ("wheel", "pip install")])
def test_what_is_not_there_is_told_with_what_to_do(
    path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str, word: str
) -> None:
    without_wheel(monkeypatch)
    with pytest.raises(ChoiceError, match=word):
        choose(wanted, 1, 1)


@pytest.mark.parametrize("wanted", KINDS)
def test_the_daemon_knows_the_kind_and_understands_the_command_line(
    path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str
) -> None:
    server(path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    choice = choose(wanted, 8123, 2)
    values = {"{model}": "/m.gguf", "{context}": "4096", "{prompt_cache_mib}": "64"}
    command = [values.get(word, word) for word in choice.command]
    kind = backends.load(choice.kind)
    assert kind.recognise(command)
    said = kind.describe(command, {})
    assert (said.model_path, said.context_length, said.slots, said.threads) == ("/m.gguf", 4096, 1, 2)
    assert (said.url, said.prompt_cache_mib, said.metrics) == ("http://127.0.0.1:8123", 64, True)
