from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned import tunables
from moetuned.cli import completion_answer, completion_values
from moetuned.cli.completion_answer import TABLE, answer, split_line
from moetuned.cli.main import group as moetunectl
from moetuned.daemon.main import group as moetuned

WHOLE = json.loads(Path(TABLE).read_text())


def offered(line: str) -> list[str]:
    """The words, and the kinds of files."""
    return [row.split("\t")[1] if "\t" in row else row for row in answer(line, WHOLE)]


def commands(words: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(f"{words} {name}", below)


EVERY = [*commands("moetunectl", moetunectl), *commands("moetuned", moetuned)]


@pytest.mark.parametrize(("words", "command"), EVERY, ids=[words for words, _ in EVERY])
def test_all_that_a_command_takes_is_offered(words: str, command: click.Command) -> None:
    """Against the commands themselves: the table is what `make docs` made of them."""
    options = [each for each in command.params if isinstance(each, click.Option)]
    flags = {name for each in options for name in (*each.opts, *each.secondary_opts)}
    assert set(offered(f"{words} -")) == flags | {"-h", "--help"}
    if isinstance(command, click.Group):
        assert offered(f"{words} ") == command.list_commands(click.Context(command))
    for option in options:
        if isinstance(option.type, click.Choice):
            assert offered(f"{words} {option.opts[0]} ") == list(option.type.choices)
        elif isinstance(option.type, click.Path):
            assert offered(f"{words} {option.opts[0]} ") == ["file" if option.type.file_okay else "dir"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("moetunectl st", ["status"]),
        ("moetunectl 'st", ["status"]),
        ("/opt/x/bin/moetunectl st", ["status"]),
        ("another-name st", ["status"]),
        ("moetuned r", ["run"]),
        ("moetunectl tune plan --profile moe-offload-", ["moe-offload-zram"]),
        ("moetunectl tune plan --profile=moe-offload-", ["moe-offload-zram"]),
        ("moetunectl tune plan --profile observe --co", ["--config"]),
        ("moetunectl tune explain vm.dirty_b", ["vm.dirty_background_bytes", "vm.dirty_background_ratio", "vm.dirty_bytes"]),
        ("moetunectl completion ", ["bash", "zsh", "fish"]),
        ("moetunectl estimate ", ["file"]),
        ("moetunectl warm model.gguf --cgroup ", ["dir"]),
        ("moetunectl verify 'my model.gguf' --qu", ["--quick"]),
        ("moetunectl estimate model.gguf ", []),
        ("moetunectl status --no-such-option --js", ["--json"]),
        ("moetunectl zzz", []),
        ("moetunectl backend zzz ", ["adopt", "list", "pause", "restart", "resume", "show"]),
    ],
)  # fmt: skip
def test_what_follows(line: str, words: list[str]) -> None:
    assert offered(line) == words


def test_what_is_offered_says_what_it_is_for() -> None:
    rows = answer("moetunectl tune ver", WHOLE) + answer("moetunectl tune plan --pro", WHOLE)
    assert rows == [
        "plain\tverify\tCompare the settings with what they should be",
        "plain\t--profile\tmoe-offload, moe-offload-zram or observe, instead of the config's profile",
    ]


def test_every_setting_is_offered_to_be_explained() -> None:
    known = offered("moetunectl tune explain ")
    assert {tunables.load(name).spec.name for name in tunables.module_names()} <= set(known)
    assert all(tunables.find(name) is not None for name in known)


def test_names_are_asked_for_and_only_those_that_begin_so(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {**completion_answer._ASKED, "backend": lambda _context: ["glm", "llama"], "unit": lambda _: ["a.service"]}
    monkeypatch.setattr(completion_answer, "_ASKED", asked)
    for words in (
        "backend restart", "backend show", "check --backend", "events --backend", "explain", "relief plan",
        "record out.jsonl --backend", "status", "status --watch",
    ):  # fmt: skip
        assert offered(f"moetunectl {words} l") == ["llama"]
    assert offered("moetunectl backend adopt ") == ["a.service"]


@pytest.mark.parametrize(
    ("line", "split"),
    [
        ("", ([], "")),
        ("moetunectl", ([], "moetunectl")),
        ("moetunectl ", (["moetunectl"], "")),
        ("moetunectl\nstatus\n--js", (["moetunectl", "status"], "--js")),
        ("moetunectl verify 'a b", (["moetunectl", "verify"], "a b")),
        ("moetunectl verify 'a b' ", (["moetunectl", "verify", "a b"], "")),
        ("moetunectl verify a\\ b", (["moetunectl", "verify"], "a b")),
        ('moetunectl --x "" ', (["moetunectl", "--x", ""], "")),
    ],
)
def test_a_line_is_split_as_a_shell_does(line: str, split: tuple[list[str], str]) -> None:
    assert split_line(line) == split


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\x00\x1f"))), st.text("abc-=./"))
def test_quoted_words_come_back(words: list[str], last: str) -> None:
    assert split_line(f"{shlex.join(words)} {last}") == (words, last)


@given(
    st.lists(
        st.sampled_from(["moetunectl", "moetuned", "backend", "tune", "plan", "--profile", "--profile=", "--", "-", "=", "'", '"', "\\", "x"])
        | st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8),
        max_size=6,
    )
)  # fmt: skip
def test_no_line_is_too_strange(pieces: list[str]) -> None:
    for row in answer(" ".join(pieces), WHOLE):
        assert row in ("file", "dir") or row.startswith("plain\t")
        assert "\n" not in row


def completed(line: str, *, code: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    program = f"from moetuned.cli.main import main; main(); {code}"
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "_MOETUNECTL_LINE": line, **environment}, capture_output=True, text=True, check=True,
    )  # fmt: skip


def test_a_tab_imports_no_command(tmp_path: Path) -> None:
    """Also where a name is wanted that only the daemon knows, and there is none."""
    for line in ("moetunectl ", "moetunectl tune apply --", "moetunectl backend restart "):
        done = completed(
            line, code="import sys; print(*sorted(sys.modules), sep='\\n')", MOETUNED_RUNTIME_DIR=str(tmp_path)
        )
        modules = set(done.stdout.splitlines())
        ours = {name for name in modules if name.startswith("moetuned.cli.")}
        assert ours == {"moetuned.cli.main", "moetuned.cli.completion_answer", "moetuned.cli.completion_values"}
        assert not modules & {"msgspec", "yaml", "psutil", "moetuned.tunables", "moetuned.api.client"}


def test_a_tab_is_no_command_and_writes_no_error(tmp_path: Path) -> None:
    done = completed("moetunectl backend restart ", MOETUNED_RUNTIME_DIR=str(tmp_path / "\udcff"))
    assert (done.stdout, done.stderr) == ("", "")
    assert completed("moetunectl sta\udcff").stderr == ""


def test_values_are_those_that_the_table_knows() -> None:
    def kinds(entry: dict[str, object]) -> Iterator[object]:
        yield from (each["values"] for each in entry.get("parameters", []) if "values" in each)  # type: ignore[attr-defined]
        for below in entry.get("commands", {}).values():  # type: ignore[attr-defined]
            yield from kinds(below)

    found = {kind for program in WHOLE["programs"].values() for kind in kinds(program) if isinstance(kind, str)}
    assert found <= {*completion_answer._PATHS, *completion_answer._ASKED, *WHOLE["values"]}
    assert completion_values.plain(set(WHOLE["values"]["event"])) == sorted(WHOLE["values"]["event"])
