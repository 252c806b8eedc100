"""Fields of HTTP answers: what counts as a body, a number and a failure."""

from __future__ import annotations

import msgspec
import pytest

from moetuned.parse.http_fields import MAX_BODY_CHARACTERS, MAX_COUNT, body_of, count_of, decoded_by, failure, metric_of


@pytest.mark.parametrize(
    ("text", "body"), [(None, None), ("!404", None), ("a", "a"), ("x" * (MAX_BODY_CHARACTERS + 1), None)]
)
def test_a_body(text: str | None, body: str | None) -> None:
    assert body_of(text) == body


@pytest.mark.parametrize(
    ("reason", "health"),
    [
        ("503 x", "loading"),
        ("timeout", "busy"),
        ("refused", "unreachable"),
        ("unreachable: x", "unreachable"),
        ("404 x", "error"),
    ],
)
def test_why_there_is_no_answer(reason: str, health: str) -> None:
    assert failure(reason) == health


@pytest.mark.parametrize(
    ("value", "count"), [(0, 0), (True, None), (-1, None), (MAX_COUNT, None), ("5", None), (1.0, None)]
)
def test_a_count(value: object, count: int | None) -> None:
    assert count_of(value) == count


def test_a_metric() -> None:
    assert metric_of("a 1\nb 2.5\n", "b") == 2.5
    assert metric_of("b NaN\n", "b") is None
    assert metric_of("b 2\n", "c") is None


def test_what_cannot_be_decoded_is_nothing() -> None:
    decoder = msgspec.json.Decoder(int)
    assert [decoded_by(decoder, text) for text in ("3", "{", None)] == [3, None, None]
