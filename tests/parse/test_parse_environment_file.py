"""Files of variables: what systemd makes of them. The cases are those of its own test (src/test/test-env-file.c) and of its manual."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.environment_file import in_double_quotes, parse_environment_file


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("A=1\nB = 2 \n", {"A": "1", "B": "2"}),
        ("A=1\nA=2", {"A": "2"}),
        ("# A=1\n; B=2\n  # C=3\nD=4 # no comment\n", {"D": "4 # no comment"}),
        ("#nothing\\\nA=1\n", {"A": "1"}),
        ("a=a\n #b\\\nb=b\n", {"a": "a", "b": "b"}),
        ("export A=1\n1A=2\nno assignment\nB=\n", {"B": ""}),
        ("A='a b'\nB=\"c d\"\nC='it'\"s\"\n", {"A": "a b", "B": "c d", "C": "its"}),
        ("A='one\nB=two'\nC=3", {"A": "one\nB=two", "C": "3"}),
        ('A="a\\"\\$\\x\\\nb"\n', {"A": 'a"$\\xb'}),
        ("A=one\\\ntwo\nB=a\\ \\\\b\\ \n", {"A": "onetwo", "B": "a \\b "}),
        ("A=it's=here\r\nB='open", {"A": "it's=here", "B": "open"}),
        ("MORE=--no-repack --jinja\n", {"MORE": "--no-repack --jinja"}),
    ],
)
def test_as_systemd_reads_them(text: str, found: dict[str, str]) -> None:
    assert parse_environment_file(text) == found


@given(st.text(alphabet="AB=1 \t\r\n'\"\\#;$", max_size=60) | st.text(max_size=60))
def test_any_text_is_read(text: str) -> None:
    for name, value in parse_environment_file(text).items():
        assert name.isidentifier()
        assert len(value) < len(text)


@given(
    st.dictionaries(
        st.from_regex(r"[A-Z_][A-Z0-9_]{0,9}", fullmatch=True), st.text(st.characters(exclude_characters="'\0"))
    )
)
def test_quoted_values_come_back(values: dict[str, str]) -> None:
    assert parse_environment_file("".join(f"{name}='{value}'\n" for name, value in values.items())) == values


@given(st.text(st.characters(exclude_characters="\0")))
def test_what_is_put_in_double_quotes_comes_back(value: str) -> None:
    assert parse_environment_file(f"A={in_double_quotes(value)}\nB=1\n") == {"A": value, "B": "1"}
