from __future__ import annotations

import re

import msgspec
import pytest
from backend_scenes import FOUND, GLM
from hypothesis import given
from hypothesis import strategies as st

from moetuned.cli.backend_table import table

STYLE = re.compile(r"\x1b\[[0-9;]*m")


def test_one_line_each_where_there_is_room() -> None:
    head, first, second = table((GLM, FOUND), 140, colour=False).splitlines()
    assert head.split() == ["NAME", "STATE", "BY", "PID", "PORT", "CONTEXT", "SLOTS", "MEMORY", "KIND", "MODEL"]
    assert first.split() == [
        "glm", "answering", "process", "4242", "8080", "4096/8192", "1", "4.0", "GiB", "llama-server",
        "glm-00001-of-00007.gguf",
    ]  # fmt: skip
    assert second.split() == ["llama-server-50411", "unknown", *["-"] * 6, "llama-server", "-"]


def test_two_lines_each_in_a_narrow_terminal() -> None:
    lines = table((GLM, FOUND), 80, colour=False).splitlines()
    assert len(lines) == 6
    assert lines[1] == "    KIND, MODEL"
    assert lines[3] == "    llama-server, glm-00001-of-00007.gguf"


@pytest.mark.parametrize("width", [80, 100, 120])
def test_it_fits_and_colour_only_adds_colour(width: int) -> None:
    long = msgspec.structs.replace(GLM, name="n" * 63, model_path="/m/" + "x" * 200)
    plain = table((GLM, FOUND, long), width, colour=False)
    assert max(map(len, plain.splitlines())) <= width
    coloured = table((GLM, FOUND, long), width, colour=True)
    assert STYLE.sub("", coloured) == plain
    assert coloured != plain


def test_without_any_it_says_so() -> None:
    assert "There is no backend" in table((), 80, colour=False)


def test_one_of_an_older_daemon_has_its_phase() -> None:
    assert " decode " in table((msgspec.structs.replace(GLM, state=""),), 140, colour=False)


@given(st.text(max_size=100))
def test_no_text_from_outside_can_steer_the_terminal(text: str) -> None:
    view = msgspec.structs.replace(GLM, name=text, kind=text, model_path=text, url=text)
    assert all(one.isprintable() for one in table((view,), 80, colour=False).replace("\n", ""))


@pytest.mark.parametrize("width", [40, 50, 60, 72])
def test_as_many_columns_as_fit_stay_in_the_first_line(width: int) -> None:
    full = msgspec.structs.replace(GLM, supervision=msgspec.structs.replace(GLM.supervision, by="process"), pid=4194303)
    lines = table((full,), width, colour=False).splitlines()
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("NAME")
    assert "PID" in lines[0]
    assert lines[1].strip().endswith("KIND, MODEL") or ".." in lines[1]
