"""Answers without anybody's text that say the same to the parser."""

from __future__ import annotations

import inspect
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse import llama_http
from moetuned.parse.llama_http import parse_llama_http
from moetuned.parse.redact_http import METRICS, redact_http

SECRET = "S3cr3tW0rd"
SLOT = {
    "id": 0,
    "id_task": 7,
    "n_ctx": 4096,
    "is_processing": True,
    "speculative": False,
    "n_prompt_tokens": 60,
    "n_prompt_tokens_processed": 32,
    "prompt": f"tell me of {SECRET}",
    "generated": SECRET,
    "params": {"grammar": SECRET, "stop": [SECRET], "seed": 1, "chat_format": SECRET},
    "next_token": [{"has_next_token": True, "n_remain": 4, "n_decoded": 12, "stopping_word": SECRET}],
    SECRET: 1,
}
METRICS_TEXT = (
    f"# HELP llamacpp:prompt_tokens_total {SECRET}\n# TYPE llamacpp:prompt_tokens_total counter\n"
    "llamacpp:prompt_tokens_total 1234\nllamacpp:tokens_predicted_total 5.5e3\nllamacpp:n_decode_total 77\n"
    f'llamacpp:requests_processing 1\nllamacpp:requests_deferred 0\nllamacpp:x{{m="{SECRET}"}} 1\n{SECRET} 1\n'
)


def test_a_real_answer_keeps_its_numbers_and_loses_its_words() -> None:
    bodies = {
        "/health": '{"status":"ok"}',
        "/slots": json.dumps([SLOT]),
        "/metrics": METRICS_TEXT,
        "/props": json.dumps({"is_sleeping": False, "chat_template": SECRET}),
        "/else": SECRET,
    }
    told = redact_http(bodies)
    assert SECRET not in json.dumps(told)
    assert set(told) == {"/health", "/slots", "/metrics", "/props"}
    assert parse_llama_http(told) == parse_llama_http(bodies)
    said = parse_llama_http(told)
    assert said is not None
    assert said.slots is not None
    assert (said.slots[0].decoded_tokens, said.slots[0].prompt_tokens_processed, said.prompt_tokens_total) == (
        12,
        32,
        1234,
    )


def test_every_metric_that_the_parser_reads_is_kept() -> None:
    read = set(re.findall(r'"(llamacpp:\w+)"', inspect.getsource(llama_http)))
    assert read
    assert read <= METRICS


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("!timeout", "!timeout"),
        ("!503 Loading model", "!503"),
        (f"!401 {SECRET}", "!401"),
        ("!refused", "!refused"),
        ("!unreachable: No route to host", "!refused"),
        ("!HTTPError", "!503"),
        (f"!no HTTP: {SECRET}", "!error"),
        ("!500 timeout", "!timeout"),
    ],
)
def test_why_there_was_no_answer_is_told_in_our_words(said: str, kept: str) -> None:
    paths = ("/health", "/slots", "/metrics", "/props")
    told = redact_http(dict.fromkeys(paths, said))
    assert told == dict.fromkeys(paths, kept)
    assert parse_llama_http(told) == parse_llama_http(dict.fromkeys(paths, said))


LEAF = st.none() | st.booleans() | st.integers(-5, 1 << 60) | st.floats() | st.just(SECRET)
JSON = st.recursive(
    LEAF,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*SLOT, "n_decoded", "status"]), inner, max_size=5)
    ),
)
VALUE = st.sampled_from(["1", "1.5", "inf", "nan", "-3", "1_0", "9" * 70, SECRET, f"2 {SECRET}", "", "1e400", "1e3 5"])
LINE = st.tuples(
    st.sampled_from([*sorted(METRICS), SECRET, "#"]), st.sampled_from([" ", "  ", "\t", "{a} "]), VALUE
).map("".join)
BODY = (
    JSON.map(json.dumps)
    | st.lists(LINE, max_size=8).map("\n".join)
    | st.text(max_size=40)
    | st.sampled_from(["!503 x", "!timeout", f"!{SECRET}", f"!404 {SECRET}", '{"status":"ok"}'])
    | st.text(max_size=20).map(lambda text: "!" + text)
)


@given(st.dictionaries(st.sampled_from(["/health", "/slots", "/metrics", "/props"]), BODY))
def test_whatever_it_answers_no_text_of_it_stays_and_it_says_the_same(bodies: dict[str, str]) -> None:
    told = redact_http(bodies)
    assert SECRET not in json.dumps(told)
    assert parse_llama_http(told) == parse_llama_http(bodies)
    assert redact_http(told) == told


@given(JSON)
def test_slots_of_any_shape(value: Any) -> None:
    bodies = {"/slots": json.dumps([{**SLOT, "next_token": value, "id": value}])}
    told = redact_http(bodies)
    assert SECRET not in told["/slots"]
    assert parse_llama_http(told) == parse_llama_http(bodies)


def test_token_numbers_of_a_prompt_are_its_text() -> None:
    told = redact_http({"/slots": json.dumps([{"id": [1, 2, 3], "prompt": [4, 5], "n_ctx": {"a": 6}}])})
    assert not re.search(r"[1-6]", told["/slots"])
