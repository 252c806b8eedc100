from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.http_fields import MAX_BODY_CHARACTERS
from moetuned.parse.llama_http import parse_llama_http
from moetuned.schema.sample import BackendHttp, Slot

SLOT = {
    "id": 0,
    "n_ctx": 4096,
    "is_processing": True,
    "id_task": 7,
    "n_prompt_tokens": 74,
    "n_prompt_tokens_processed": 60,
    "params": {"seed": 0},
    "next_token": [{"has_next_token": True, "n_remain": 50, "n_decoded": 14}],
}
METRICS = """# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 60
llamacpp:tokens_predicted_total 12
llamacpp:n_decode_total 14
llamacpp:requests_processing 1
llamacpp:requests_deferred 2
"""


def slots_of(body: str) -> tuple[Slot, ...] | None:
    http = parse_llama_http({"/slots": body})
    assert http is not None
    return http.slots


def health_of(body: str) -> str | None:
    http = parse_llama_http({"/health": body})
    assert http is not None
    return http.health


def test_everything_of_one_moment() -> None:
    bodies = {
        "/health": '{"status":"ok"}',
        "/slots": json.dumps([SLOT]),
        "/metrics": METRICS,
        "/props": '{"is_sleeping":false}',
    }
    assert parse_llama_http(bodies) == BackendHttp(
        health="ok",
        slots=(Slot(0, True, 7, 4096, 74, 60, 14),),
        sleeping=False,
        tokens_predicted_total=12.0,
        prompt_tokens_total=60.0,
        decode_calls_total=14.0,
        requests_processing=1.0,
        requests_deferred=2.0,
    )


@pytest.mark.parametrize(
    ("bodies", "wants"),
    [
        ({"/slots": "!401 Unauthorized"}, True),
        ({"/slots": "[]", "/metrics": "!401"}, True),
        ({"/slots": "!501 Not Implemented", "/metrics": "!501"}, False),
        ({"/health": "!401"}, False),
    ],
)
def test_a_key_is_wanted(bodies: dict[str, str], wants: bool) -> None:
    told = parse_llama_http(bodies)
    assert told is not None
    assert told.wants_key is wants


def test_nothing_asked_is_nothing_known() -> None:
    assert parse_llama_http({}) is None
    http = parse_llama_http({"/health": '{"status":"ok"}'})
    assert http is not None
    assert not http.slots_asked


@pytest.mark.parametrize(
    ("body", "health"),
    [
        ('{"status":"ok"}', "ok"),
        ('{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}', "loading"),
        ('{"status":"loading model"}', "loading"),
        ("!503 Service Unavailable", "loading"),
        ("!HTTPError", "loading"),
        ("!timeout", "busy"),
        ("!TimeoutError", "busy"),
        ("!refused", "unreachable"),
        ("!URLError", "unreachable"),
        ("!500 Internal Server Error", "error"),
        ('{"error":"no"}', "error"),
        ("<html>", "error"),
        ("[]", "error"),
        ("", "error"),
    ],
)
def test_health(body: str, health: str) -> None:
    assert health_of(body) == health


def test_next_token_was_an_object_before() -> None:
    slots = slots_of(json.dumps([{**SLOT, "next_token": {"n_decoded": 3}}]))
    assert slots is not None
    assert slots[0].decoded_tokens == 3


def test_state_came_before_is_processing() -> None:
    slots = slots_of('[{"id":0,"state":1},{"id":1,"state":0}]')
    assert slots is not None
    assert [slot.processing for slot in slots] == [True, False]


@pytest.mark.parametrize("value", [-1, 1.5, "9", None, True, [], {}, 1 << 60])
def test_a_count_that_is_none_is_unknown(value: object) -> None:
    slots = slots_of(json.dumps([{**SLOT, "n_ctx": value, "id_task": value}]))
    assert slots is not None
    assert (slots[0].context_length, slots[0].task_id) == (None, None)


@pytest.mark.parametrize(
    "body",
    [
        "!timeout",
        "null",
        "{}",
        "[1]",
        "[" * 100_000,
        '[{"id":' + "9" * 5000 + "}]",
        json.dumps([SLOT] * 300),
        "[" + " " * MAX_BODY_CHARACTERS + "]",
        '[{"id":0,"next_token":7}]',
        '[{"id":"\ud800"}]',
    ],
)
def test_hostile_slots_are_unknown_or_nameless(body: str) -> None:
    slots = slots_of(body)
    assert slots is None or all(slot.task_id is None for slot in slots)


@pytest.mark.parametrize("value", ["NaN", "inf", "-1", "", "x", "1e400", "9" * 100])
def test_hostile_metrics_are_unknown(value: str) -> None:
    http = parse_llama_http({"/metrics": f"llamacpp:n_decode_total {value}\n"})
    assert http is not None
    assert http.decode_calls_total is None


LEAF = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
JSON = (
    LEAF
    | st.lists(LEAF, max_size=3)
    | st.dictionaries(st.sampled_from([*SLOT, "status", "n_decoded"]), LEAF, max_size=4)
)


@given(st.dictionaries(st.sampled_from(["/health", "/slots", "/metrics", "/props"]), st.text() | JSON.map(json.dumps)))
def test_no_body_is_an_exception(bodies: dict[str, str]) -> None:
    http = parse_llama_http(bodies)
    assert (http is None) == (not bodies)


@given(st.lists(st.dictionaries(st.sampled_from(list(SLOT)), JSON, max_size=6), max_size=3).map(json.dumps))
def test_slots_with_wrong_types_are_no_exception(body: str) -> None:
    for slot in slots_of(body) or ():
        assert slot.decoded_tokens is None or slot.decoded_tokens >= 0
