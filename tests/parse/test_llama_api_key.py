"""Where llama-server's keys are, and which of them can stand in a header."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.llama_api_key import api_key_source, first_key


@pytest.mark.parametrize(
    ("arguments", "environ", "expected"),
    [
        ([], {}, (None, None)),
        (["--api-key", "a,b"], {}, ("a,b", None)),
        (["--api-key=a"], {"LLAMA_API_KEY": "z"}, ("a", None)),
        ([], {"LLAMA_API_KEY": "z", "OTHER": "x"}, ("z", None)),
        (["--api-key-file", "/k"], {}, (None, "/k")),
        ([], {"LLAMA_ARG_API_KEY_FILE": "/k"}, (None, "/k")),
        (["--api-key"], {"LLAMA_API_KEY": ""}, (None, None)),
    ],
)
def test_source(arguments: list[str], environ: dict[str, str], expected: tuple[str | None, str | None]) -> None:
    assert api_key_source(arguments, environ) == expected


@pytest.mark.parametrize(
    ("text", "separator", "key"),
    [
        ("a,b", ",", "a"), (" , b", ",", "b"), ("# one\n\nsecret\n", "\n", "secret"), ("secret\r\nmore", "\n", "secret"),
        ("a\r\nHost: evil", ",", None), ("käse,b", ",", "b"), ("x" * 600, ",", None), ("", ",", None),
    ],
)  # fmt: skip
def test_first_key(text: str, separator: str, key: str | None) -> None:
    assert first_key(text, separator) == key


@given(st.text(), st.sampled_from([",", "\n"]))
def test_a_key_is_one_line_of_ascii(text: str, separator: str) -> None:
    key = first_key(text, separator)
    assert key is None or (key.isascii() and key.isprintable())
