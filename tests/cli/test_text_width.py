from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.cli.text_width import columns_of, printable, wrap


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
