"""Flags in all their spellings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.spelled_flags import spelled_flags

SPELLINGS = {"-m": "model", "--model": "model", "--fast": "fast"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("-m a", {"model": "a"}),
        ("--model=a -m b", {"model": "b"}),
        ("--model", {"model": ""}),
        ("--fast -m a", {"fast": "on", "model": "a"}),
        ("--other -m a", {"model": "a"}),
        ("-m --fast", {"model": "--fast"}),
        ("plain", {}),
    ],
)
def test_what_was_said(words: str, expected: dict[str, str]) -> None:
    assert spelled_flags(words.split(), SPELLINGS, ("fast",)) == expected


@given(st.lists(st.text(max_size=5) | st.sampled_from(sorted(SPELLINGS)), max_size=8))
def test_only_known_settings_come_out(words: list[str]) -> None:
    assert set(spelled_flags(words, SPELLINGS, ("fast",))) <= {"model", "fast"}


def test_a_spelling_may_switch_off() -> None:
    spellings = {"--on": "it", "--no": "it"}
    assert spelled_flags(["--on", "--no"], spellings, ("it",), ("--no",)) == {"it": "off"}
    assert spelled_flags(["--no", "--on"], spellings, ("it",), ("--no",)) == {"it": "on"}
