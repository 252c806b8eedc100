from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.header_lines import MAX_HEADERS, header_lines


def test_headers_are_read_as_they_are_written() -> None:
    text = "# who we are\r\nAuthorization: Bearer a:b\r\n\n  \nX-Team:ml\n"
    assert header_lines(text) == {"Authorization": "Bearer a:b", "X-Team": "ml"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Bearer secret", "line 1 is no header"),
        ("A: b\n: secret", "line 2 is no header"),
        ("A B: secret", "line 1 is no header"),
        ("A: secret\x00", "line 1 holds what no header may"),
        ("A: secret\rB: c", "line 1 holds what no header may"),
        ("A: sécret", "line 1 holds what no header may"),
        ("Content-Length: 5", "Content-Length is set by moetuned"),
        ("Host: secret", "Host is set by moetuned"),
        ("A: 1\na: secret", "line 2: a is there twice"),
        ("\n".join(f"A{number}: b" for number in range(MAX_HEADERS + 1)), "at most 32 are sent"),
    ],
)
def test_what_is_wrong_is_told_without_what_it_says(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)) as caught:
        header_lines(text)
    assert "secret" not in str(caught.value)


@given(st.text(max_size=200))
def test_nothing_that_ends_a_header_gets_through(text: str) -> None:
    try:
        headers = header_lines(text)
    except ValueError:
        return
    for name, value in headers.items():
        assert not set(name + value) & set("\r\n\0")
        assert (name + value).isascii()
