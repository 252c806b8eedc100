from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.cli.text_width import columns_of, printable, wrap, wrap_around_commands


@pytest.mark.parametrize(
    ("text", "columns"), [("", 0), ("abc", 3), ("█▒░", 3), ("模型", 4), ("ｗ", 2), ("e\u0301", 1), ("ü", 1), ("🦊", 2)]
)
def test_columns(text: str, columns: int) -> None:
    assert columns_of(text) == columns


def test_wide_characters_count_two_when_lines_are_broken() -> None:
    assert wrap("模型 模型 ab", 5) == ["模型", "模型", "ab"]
    assert wrap("模型模型", 5) == ["模型", "模型"]
    assert wrap("ab cd", 5) == ["ab cd"]
    assert wrap("ab  cd", 6) == ["ab  cd"], "a bar's figures stay in their columns"
    assert wrap("/a/long/path x", 6) == ["/a/lon", "g/path", "x"]
    assert wrap(" ", 5) == wrap("", 5) == []
    assert wrap("模", 1) == ["模"], "what cannot fit is not dropped"


@given(st.text(), st.integers(2, 60))
def test_nothing_is_lost_and_nothing_is_too_wide(text: str, width: int) -> None:
    clean = printable(text)
    lines = wrap(clean, width)
    assert all(columns_of(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(clean.split())
    assert not clean or clean.isprintable()
    assert len(clean) == len(text)


@pytest.mark.parametrize("command", [
    "moetunectl warm /models/m.gguf", "sudo moetunectl tune readahead '/my models/m.gguf'", "kill -CONT 4711",
    "moetunectl tune explain vm.vfs_cache_pressure", "moetunectl backend restart lab --now", "curl http://127.0.0.1:8080/health",
])  # fmt: skip
def test_a_command_that_fits_into_a_line_is_in_one(command: str) -> None:
    for before in range(60):
        lines = wrap_around_commands("x " * before + f"Do it: {command} - and then, or not (as it may be).", 60)
        assert any(command in line for line in lines)
        assert all(columns_of(line) <= 60 for line in lines)
        assert (
            " ".join(lines).split() == ("x " * before + f"Do it: {command} - and then, or not (as it may be).").split()
        )


@given(st.text(st.characters(exclude_categories=("C",))), st.integers(1, 60))
def test_around_commands_nothing_is_lost_either(text: str, width: int) -> None:
    assert "".join("".join(wrap_around_commands(f"{text} moetunectl warm {text}", width)).split()) == "".join(
        f"{text}moetunectlwarm{text}".split()
    )


def test_a_command_that_is_wider_than_a_line_is_broken_at_blanks() -> None:
    assert wrap_around_commands("moetunectl warm /models/m.gguf", 20) == ["moetunectl warm", "/models/m.gguf"]
