from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.tunable_text import parse_choices, parse_value
from moetuned.schema.tunable import Codec


@pytest.mark.parametrize(
    ("text", "value"), [("10\n", "10"), (" 0\t\n", "0"), ("-1\n", "-1"), ("+7", "7"), ("007", "7")]
)
def test_numbers(text: str, value: str) -> None:
    assert parse_value(Codec.INTEGER, text) == value


@pytest.mark.parametrize("text", ["", "\n", "256\t256\t32\n", "ten", "1.5", "0x10", "9" * 21, "[never]"])
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(ValueError, match="no whole number"):
        parse_value(Codec.INTEGER, text)


def test_choice_in_brackets() -> None:
    text = "always [madvise] never\n"
    assert parse_value(Codec.CHOICE, text) == "madvise"
    assert parse_choices(text) == ("always", "madvise", "never")


@pytest.mark.parametrize("text", ["", "always never", "[always] [never]", "[]", "[a b]"])
def test_what_is_no_choice(text: str) -> None:
    with pytest.raises(ValueError, match="no single choice"):
        parse_value(Codec.CHOICE, text)


@given(st.integers(-(10**19), 10**19), st.sampled_from(["", "\n", " ", "\t\n"]))
def test_every_number_reads_as_itself(number: int, white: str) -> None:
    assert parse_value(Codec.INTEGER, f"{white}{number}{white}") == str(number)


@given(st.sampled_from(Codec), st.text())
def test_any_text_is_a_value_or_a_value_error(codec: Codec, text: str) -> None:
    try:
        value = parse_value(codec, text)
    except ValueError:
        return
    assert value
    assert value == value.strip()
