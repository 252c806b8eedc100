from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.kernel_numbers import line_kilobytes, line_number, line_value, single_number, whole_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12),
        (" 12 ", 12),
        ("0", 0),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("max", None),
        ("1" * 21, None),
        ("²", None),
    ],
)
def test_whole_number(text: str, number: int | None) -> None:
    assert whole_number(text) == number


@pytest.mark.parametrize(("text", "number"), [("7\n", 7), ("7", None), ("max\n", None), ("", None), (None, None)])
def test_single_number_wants_its_newline(text: str | None, number: int | None) -> None:
    assert single_number(text) == number


def test_a_key_is_found_only_at_the_start_of_a_complete_line() -> None:
    text = "total_rss 1\nrss 2\nrss_huge 3\ncut 4"
    assert line_number(text, "rss") == 2
    assert line_number(text, "total_rss") == 1
    assert line_number(text, "huge") is None
    assert line_number(text, "cut") is None


def test_kilobytes_want_their_unit() -> None:
    text = "A:      3 kB\nB:      3\n"
    assert line_kilobytes(text, "A") == 3072
    assert line_kilobytes(text, "B") is None


@given(st.text(), st.sampled_from(["a", "MemTotal", ""]), st.sampled_from([" ", ":"]))
def test_any_text_gives_a_line_or_none(text: str, key: str, end: str) -> None:
    value = line_value(text, key, end)
    assert value is None or (key + end + value + "\n") in text
    assert line_number(text, key, end) is None or line_number(text, key, end) >= 0


@pytest.mark.parametrize("text", [str(1 << 62), str((1 << 64) - 4096), "9223372036854771712", "9" * 20])
def test_a_negative_number_without_its_sign_is_no_number(text: str) -> None:
    assert whole_number(text) is None
    assert line_kilobytes(f"MemFree: {text} kB\n", "MemFree") is None
    assert line_kilobytes(f"MemFree: {1 << 50} kB\n", "MemFree") is None, "an exbibyte"
    assert line_kilobytes(f"MemFree: {(1 << 50) - 1} kB\n", "MemFree") == (1 << 60) - 1024
