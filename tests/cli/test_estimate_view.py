"""Golden screens. After a wanted change: MOETUNED_WRITE_GOLDEN=1 pytest tests/cli/test_estimate_view.py, then read the diff."""

from __future__ import annotations

import os
import pathlib
import re

import msgspec
import pytest
from estimate_scenes import SCENES, fits, streams
from hypothesis import given, settings
from hypothesis import strategies as st

from moetuned.cli.estimate_view import render
from moetuned.schema.estimate import Exact, Launch

GOLDEN = pathlib.Path(__file__).parent / "golden"
STYLE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("name", SCENES)
def test_golden_screen(name: str):
    screen = render(SCENES[name](), 80, False)
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("MOETUNED_WRITE_GOLDEN"):
        path.write_text(screen, encoding="utf-8")
    assert screen == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("width", [76, 80, 120])
def test_fits_the_width_and_colour_only_adds_colour(name: str, width: int):
    plain = render(SCENES[name](), width, False)
    command = [line for line in plain.splitlines() if line.startswith("    ") and "/models/" in line]
    assert max(len(line) for line in plain.splitlines() if line not in command) <= width
    coloured = render(SCENES[name](), width, True)
    assert "\x1b" not in plain
    assert STYLE.sub("", coloured) == plain
    assert coloured != plain


@pytest.mark.parametrize("name", SCENES)
def test_a_forecast_is_called_one(name: str):
    screen = render(SCENES[name](), 80, False)
    assert "(a forecast)" in screen
    assert ("not a promise" in screen) or ("DOES NOT FIT" in screen)


def test_no_command_for_what_does_not_fit():
    assert "start it with" not in render(SCENES["estimate_does_not_fit"](), 80, False)
    assert "start it with" in render(streams(), 80, False)


def test_the_command_can_be_pasted():
    found = msgspec.structs.replace(
        fits(), launch=Launch(("/opt/a b/llama-server", "-m", "/models/it's.gguf", "--cache-ram", "-1"), "help")
    )
    screen = render(found, 80, False)
    assert "'/opt/a b/llama-server'" in screen
    assert "--cache-ram -1" in screen


def test_exact_that_is_unknown_says_why():
    assert "exact     unknown: no program" in render(
        msgspec.structs.replace(fits(), exact=Exact(unknown="no program")), 80, False
    )


@settings(deadline=None)
@given(st.text(max_size=120), st.integers(0, 150))
def test_no_text_from_outside_can_steer_the_terminal(text: str, width: int):
    found = msgspec.structs.replace(
        streams(),
        model=text,
        architecture=text,
        notes=(text,),
        exact=Exact(unknown=text),
        launch=Launch((text, "-m", text), text),
    )
    screen = render(found, width, False)
    assert all(char.isprintable() for char in screen.replace("\n", ""))
