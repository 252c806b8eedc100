from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.post_answer import MOST_RETRY_AFTER_SECONDS, judge_status, retry_after_seconds

NOW = 784_111_777.0  # Sun, 06 Nov 1994 08:49:37 GMT


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_taken(status: int) -> None:
    answer = judge_status(status, "OK", "5", NOW)
    assert answer.ok
    assert not answer.retry
    assert answer.retry_after_seconds is None


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
def test_to_be_tried_again(status: int) -> None:
    answer = judge_status(status, "Later", "5", NOW)
    assert not answer.ok
    assert answer.retry
    assert answer.retry_after_seconds == 5.0


@pytest.mark.parametrize("status", [301, 302, 304, 400, 401, 403, 404, 405, 410, 413, 415, 422])
def test_refused_for_good(status: int) -> None:
    answer = judge_status(status, "No", "5", NOW)
    assert not answer.ok
    assert not answer.retry
    assert answer.retry_after_seconds is None


def test_words_of_the_other_side_are_bounded_and_printable() -> None:
    assert judge_status(500, "a\x1b[31m\n" + "x" * 999, None, NOW).detail == f"answered 500 a?[31m?{'x' * 53}"
    assert judge_status(500, "", None, NOW).detail == "answered 500"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("0", 0.0),
        (" 120 ", 120.0),
        ("999999", MOST_RETRY_AFTER_SECONDS),
        ("9" * 20, MOST_RETRY_AFTER_SECONDS),
        ("Sun, 06 Nov 1994 08:50:37 GMT", 60.0),
        ("Sun, 06 Nov 1994 08:40:37 GMT", 0.0),
        ("Sun, 31 Feb 1994 08:40:37 GMT", None),
        ("Sun, 06 Foo 1994 08:40:37 GMT", None),
        ("-5", None),
        ("1e9", None),
        ("soon", None),
    ],
)
def test_retry_after(text: str | None, seconds: float | None) -> None:
    assert retry_after_seconds(text, NOW) == seconds


@given(st.text(max_size=40), st.integers(100, 999))
def test_whatever_it_says_the_wait_is_bounded(text: str, status: int) -> None:
    wait = judge_status(status, text, text, NOW).retry_after_seconds
    assert wait is None or 0 <= wait <= MOST_RETRY_AFTER_SECONDS
