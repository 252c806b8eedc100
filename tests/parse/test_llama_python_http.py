"""llama-cpp-python over HTTP: bodies are in http_bodies/; here what any status means."""

from __future__ import annotations

import pytest

from moetuned.parse.llama_python_http import listens, parse_llama_python_http


@pytest.mark.parametrize(
    ("text", "health"),
    [
        ("<html>", "ok"),
        ("!401 x", "ok"),
        ("!404 x", "ok"),
        ("!500 x", "error"),
        ("!503 x", "loading"),
        ("!4 of them", "error"),
        (None, None),
    ],
)
def test_any_answer_below_500_says_that_it_listens(text: str | None, health: str | None) -> None:
    assert listens(text) == health


def test_nothing_is_told_of_what_it_does() -> None:
    said = parse_llama_python_http({"/docs": "x"})
    assert (said.slots, said.tells_slots, said.requests_processing, said.tokens_predicted_total) == (
        None,
        False,
        None,
        None,
    )
