from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.tunable_text import parse_choices, parse_value, text_of
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


@pytest.mark.parametrize(
    ("text", "value"), [("0\n", "0"), ("max\n", "max"), ("1073741824", "1073741824"), (" 007 ", "7")]
)
def test_limits(text: str, value: str) -> None:
    assert parse_value(Codec.LIMIT, text) == value
    assert text_of(Codec.LIMIT, value) == value


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.5", "maximum", "max 1", "infinity", "9" * 21])
def test_what_is_no_limit(text: str) -> None:
    with pytest.raises(ValueError, match="neither a whole number nor max"):
        parse_value(Codec.LIMIT, text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("default 100\n", "100"), ("default 100\n8:16 200\n8:0 default\n", "100"), ("8:0 50\ndefault 7", "7")],
)
def test_weights(text: str, value: str) -> None:
    """Lines of single devices are somebody else's."""
    assert parse_value(Codec.WEIGHT, text) == value
    assert text_of(Codec.WEIGHT, value) == f"default {value}"


@pytest.mark.parametrize(
    "text", ["", "100", "8:16 200", "default", "default max", "default 1\ndefault 2", "default -1"]
)
def test_what_is_no_weight(text: str) -> None:
    with pytest.raises(ValueError, match="no single line `default`"):
        parse_value(Codec.WEIGHT, text)


@given(st.sampled_from((Codec.LIMIT, Codec.WEIGHT, Codec.INTEGER)), st.integers(0, 10**19))
def test_what_is_written_reads_as_itself(codec: Codec, number: int) -> None:
    assert parse_value(codec, text_of(codec, str(number))) == str(number)


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
