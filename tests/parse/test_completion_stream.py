"""Counts of a streamed answer."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.completion_stream import CompletionCounts, parse_completion

LAST = {"content": "", "stop": True, "tokens_predicted": 16, "tokens_evaluated": 27, "tokens_cached": 3}


def stream(*events: object) -> str:
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events)


def test_the_last_event_has_the_counts() -> None:
    counts = parse_completion(
        stream({"content": "a", "stop": False, "tokens_predicted": 1, "tokens_evaluated": 27}, LAST)
    )
    assert counts == CompletionCounts(27, 16)
    assert counts.tokens == 43
    assert parse_completion(json.dumps(LAST)) == counts
    assert parse_completion(stream(LAST) + "data: [DONE]\n\n") == counts


@pytest.mark.parametrize(
    "body",
    [
        "",
        stream({"content": "a", "stop": False, "tokens_predicted": 1, "tokens_evaluated": 27}),
        stream(LAST)[:-10],
        stream(LAST, {"error": {"code": 500}}),
        stream({**LAST, "tokens_predicted": -1}),
        stream({**LAST, "tokens_predicted": True}),
        stream({**LAST, "tokens_evaluated": 1 << 60}),
        stream({**LAST, "tokens_evaluated": 1.5}),
        "data: " + '{"a":' * 5000,
        "data: [1]\n",
    ],
)
def test_what_has_no_counts_says_nothing(body: str) -> None:
    assert parse_completion(body) is None


@given(st.text())
def test_nothing_raises(text: str) -> None:
    parse_completion(text)
    parse_completion("data: {" + text)
