"""The man pages: that they are all there and whole, that roff's own tools have nothing to say of them, and that they show what they hold."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moetuned import backends, tunables
from moetuned.cli.main import group as moetunectl
from moetuned.daemon.main import group as moetuned
from moetuned.host.config_files import load_files
from moetuned.parse.config_sample import sections

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs/man").iterdir())


def part(name: str) -> ModuleType:
    """A part of scripts/generate_docs.py, which puts its own directory on the path."""
    if "generate_docs" not in sys.modules:
        spec = importlib.util.spec_from_file_location("generate_docs", ROOT / "scripts" / "generate_docs.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules["generate_docs"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["generate_docs"])
    return importlib.import_module(name)


model, man_pages, roff = part("command_model"), part("man_pages"), part("roff")
CTL, DAEMON = model.model_of("moetunectl", moetunectl), model.model_of("moetuned", moetuned)


def needs(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")


MANDOC = ["mandoc", "-Tutf8", "-O", "width=200"]
GROFF = ["groff", "-man", "-Tutf8", "-rLL=200n", "-P-c"]


def plain(page: Path | str) -> str:
    """A page as it is shown, without bold and underline, words one blank apart."""
    program = next((each for each in (MANDOC, GROFF) if shutil.which(each[0])), None)
    if program is None:
        pytest.skip("neither mandoc nor groff is installed")
    text = page.read_text() if isinstance(page, Path) else page
    done = subprocess.run(program, input=text, capture_output=True, text=True, check=True)
    return " ".join(re.sub(r".\x08", "", done.stdout).split())


def test_there_is_a_page_for_each_and_no_other() -> None:
    """That they are fresh is checked with all generated files."""
    assert {page.name for page in PAGES} == set(man_pages.man_pages(CTL, DAEMON))
    commands = {f"moetunectl-{name}.1" for name in moetunectl.list_commands(None)}  # type: ignore[arg-type]
    assert commands < {page.name for page in PAGES}


@pytest.mark.parametrize("command", [*CTL.all(), *DAEMON.all()], ids=lambda each: each.words)
def test_every_command_and_option_is_explained_in_its_page(command: Any) -> None:
    words = command.words.split()
    name = "moetuned.8" if words[0] == "moetuned" else f"{'-'.join(words[:2])}.1"
    text = plain(ROOT / "docs/man" / name)
    said = (
        text.partition(f" {' '.join(words[1:])} {command.paragraphs[0]}".replace("`", ""))[2]
        if len(words) > 2
        else text
    )
    for paragraph in command.paragraphs:
        assert " ".join(paragraph.replace("`", "").split()) in text
    for option in command.options:
        assert f"{', '.join(option.names)} {option.word}".strip() + f" {option.text}".replace("`", "") in said
    for argument in command.arguments:
        assert argument.word in text.partition("DESCRIPTION")[0]


@pytest.mark.parametrize(
    "command", [each for each in [*CTL.all(), *DAEMON.all()] if each.examples], ids=lambda each: each.words
)
def test_an_example_can_be_copied(command: Any) -> None:
    """Quotes, hyphens, dollars and backslashes as a shell wants them."""
    words = command.words.split()
    text = plain(ROOT / "docs/man" / ("moetuned.8" if words[0] == "moetuned" else f"{'-'.join(words[:2])}.1"))
    for line in command.examples:
        assert " ".join(line.split()) in text


def test_every_key_of_the_config_is_explained() -> None:
    text = plain(ROOT / "docs/man/moetuned.yaml.5")
    first, *others = sections()
    for section in others:
        said = text.partition(f" {section.place} {section.about}".replace("`", ""))[2]
        assert said, section.place
        for key in section.keys:
            assert f"{key.name} {key.about}".replace("`", "") in said, f"{section.place}.{key.name}"
    assert all(f"{key.name} {key.about} See {key.place} below." in text for key in first.keys)


def test_the_example_is_a_config(tmp_path: Path) -> None:
    file = tmp_path / "moetuned.yaml"
    file.write_text(man_pages.EXAMPLE_CONFIG)
    loaded = load_files(
        str(file), tunables.known_sysctls(), known_kinds=backends.names(), further=(tunables.check_tuning,)
    )
    assert loaded.warnings == ()


def test_variables_of_the_environment_are_those_that_are_read() -> None:
    """What somebody may set, not what the system sets for every program or systemd for its services."""
    asked = re.compile(r'(?:environ(?:ment)?(?:\.get)?[\[(]|envvar=)"(\w+)"')
    files = [
        file for package in ("cli", "daemon", "api", "host") for file in (ROOT / "moetuned" / package).glob("*.py")
    ]
    read = {name for file in files for name in asked.findall(file.read_text())}
    of_systemd = {"JOURNAL_STREAM", "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"}
    of_everybody = {"HOME", "LD_LIBRARY_PATH", "PATH", "SUDO_USER", "TERM"}
    said = {name for name, _ in (*man_pages.CTL_ENVIRONMENT, *man_pages.DAEMON_ENVIRONMENT)}
    assert said == read - of_systemd - of_everybody - {"_MOETUNECTL_LINE"}


# What the tools say


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
@pytest.mark.parametrize(
    "command",
    [
        ["mandoc", "-T", "lint", "-W", "style"],
        ["groff", "-man", "-Tutf8", "-ww", "-z"],
        ["groff", "-man", "-Tutf8", "-ww", "-z", "-rLL=60n"],
        ["man", "--warnings", "-E", "UTF-8", "-l"],
        ["lexgrog"],
    ],
    ids=" ".join,
)
def test_the_tools_have_nothing_to_say(page: Path, command: list[str]) -> None:
    needs(command[0])
    done = subprocess.run(
        [*command, str(page)],
        env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80", "MANPAGER": "cat"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = done.stderr if command[0] in ("man", "lexgrog") else done.stdout + done.stderr
    assert (done.returncode, said) == (0, "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_word_is_divided(page: Path) -> None:
    """A name that goes on in the next line cannot be searched for or copied."""
    needs("groff")
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-rLL=60n", "-P-c", str(page)], capture_output=True, text=True, check=True
    )
    assert "\u2010" not in done.stdout
    assert page.read_text().isascii()


def test_man_finds_them_by_the_words_of_the_command(tmp_path: Path) -> None:
    needs("man")
    for page in PAGES:
        target = tmp_path / f"man{page.suffix[1:]}" / page.name
        target.parent.mkdir(exist_ok=True)
        shutil.copy(page, target)
    for words in (["moetunectl"], ["moetunectl", "tune"], ["moetuned"], ["moetuned.yaml"]):
        done = subprocess.run(
            ["man", *words],
            env={**os.environ, "MANPATH": str(tmp_path), "LC_ALL": "C.UTF-8", "MANPAGER": "cat"}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout.startswith("-".join(words).upper() + "(")


# Text as roff

AWKWARD = [".dot first", "'quote first", r"back\slash \fB \n", "--option", "a-b", "it's", '"x"', "`id`", "~/x^2", "→ 25 °C …", "\\&"]  # fmt: skip


def page_of(*lines: list[str]) -> str:
    text: str = roff.page("x", 1, "y", "2026-01-01", "r", "m", roff.heading("Text"), *lines)
    return text


@pytest.mark.parametrize("text", AWKWARD)
def test_awkward_text_is_shown_as_it_is(text: str) -> None:
    page = page_of(roff.paragraph(text.replace("`", "")), roff.item(roff.bold(text), "z"), roff.example([text]))
    shown = plain(page)
    assert shown.count(" ".join(text.replace("`", "").split())) >= 2
    assert text in shown
    needs("groff")
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-P-c"], input=page, capture_output=True, text=True, check=True
    )
    assert text in done.stdout
    assert done.stderr == ""


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(st.characters(min_codepoint=0x21, max_codepoint=0x24F, exclude_categories=["C", "Z", "M"]), min_size=1, max_size=60))  # fmt: skip
def test_any_text_is_shown_as_it_is(text: str) -> None:
    assert text in plain(page_of(roff.example([text])))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("say `moetunectl status` now", r"say \fBmoetunectl status\fR now"),
        ("a *size* or `auto`", r"a \fIsize\fR or \fBauto\fR"),
        ("see [Configure](../configure.md)", "see Configure"),
        ("2 * 3 * 4, a ` alone", r"2 * 3 * 4, a \(ga alone"),
    ],
)
def test_marks_become_fonts(text: str, shown: str) -> None:
    assert roff.inline(text) == shown


def test_a_filled_line_is_no_request_and_short_enough() -> None:
    lines = list(roff.filled("word " * 15 + "...and 'quoted' " + "x" * 100))
    assert all(line[0] not in ".'" for line in lines)
    assert [len(line) > 80 for line in lines] == [False, False, True]


# Commands as data


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Do it. Then rest.", "Do it"),
        ("Record it, e.g. for a bug report.", "Record it, e.g. for a bug report"),
        ("Two files (.a or .b). And", "Two files (.a or .b)"),
        ("No stop", "No stop"),
    ],
)
def test_the_first_sentence(text: str, first: str) -> None:
    assert model.first_sentence(text) == first


def test_words_for_a_value_are_the_same_everywhere() -> None:
    """Each option of one name has one word; and a word of click's own (INTEGER RANGE) says nothing."""
    words: dict[str, set[str]] = {}
    for command in (*CTL.all(), *DAEMON.all()):
        for parameter in command.parameters:
            words.setdefault(parameter.names[-1], set()).add(parameter.word)
            assert not parameter.word.startswith(("INTEGER", "FLOAT", "TEXT", "CHOICE")), (
                command.words,
                parameter.names,
            )
    several = {name: found for name, found in words.items() if len(found) > 1 and name.startswith("-")}
    assert several == {"--backend": {"BACKEND", "PATH"}, "--seconds": {"SECONDS", "TIME"}}, (
        "take the word that others have"
    )


def test_every_command_has_examples_and_every_option_a_text() -> None:
    for command in (*CTL.all(), *DAEMON.all()):
        assert command.examples, command.words
        assert all(option.text for option in command.options), command.words
