from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moetuned.cli.columns import clean, cut, pad, wrap
from moetuned.cli.text_width import columns_of


def test_control_characters_and_what_turns_text_around_are_gone() -> None:
    assert clean("a\x1b[31m\n\x07\u202eb\x9bc") == "a?[31m???b?c"
    assert clean("é漢", unicode=False) == "??"


def test_columns() -> None:
    assert columns_of("glm") == 3
    assert columns_of("漢字x") == 5
    assert columns_of("e\u0301") == 1
    assert columns_of("▁") == 1


def test_cut_says_that_something_is_missing() -> None:
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdef", 5) == "abcd…"
    assert cut("漢字漢字", 5) == "漢字…"
    assert cut("漢字漢字", 4) == "漢…"
    assert cut("abc", 0) == ""
    assert cut("abcdef", 2, "...") == ".."


def test_wrap() -> None:
    assert wrap("one two three", 7, 5) == ["one two", "three"]
    assert wrap("one two three", 7, 1) == ["one tw…"]
    assert wrap("one two three four", 8, 5, indent=2) == ["one two", "  three", "  four"]
    assert wrap("abcdefghij", 4, 5) == ["abcd", "efgh", "ij"]
    assert wrap("", 4, 5) == [""]


@given(st.text(max_size=60).map(clean), st.integers(1, 40), st.integers(1, 5), st.integers(0, 4))
def test_nothing_is_wider_than_it_may_be(text: str, width: int, most: int, indent: int) -> None:
    assert columns_of(cut(text, width)) <= width
    lines = wrap(text, width, most, indent=indent)
    assert 1 <= len(lines) <= most
    assert all(columns_of(line) <= width for line in lines)
    if columns_of(text) <= width:
        assert columns_of(pad(text, width)) == width


@given(st.lists(st.text("abc漢", min_size=1, max_size=9), max_size=12), st.integers(2, 40))
def test_wrapping_loses_nothing_where_there_are_lines_enough(words: list[str], width: int) -> None:
    assert "".join(wrap(" ".join(words), width, 1000)).replace(" ", "") == "".join(words)
