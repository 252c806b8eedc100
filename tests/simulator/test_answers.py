import json

import pytest
from fake_model import make_task

from moetuned.parse.llama_http import parse_llama_http
from moetuned.simulator import answers
from moetuned.simulator.engine import Counters, Plan
from moetuned.simulator.topics import prompt_for_topic

PLAN = Plan(layers=2, slots=1, slot_context=256, batch=64, ubatch=64, kv_bytes_per_token=10)


def body(**fields):
    return json.dumps(fields).encode()


def test_a_completion_becomes_a_task():
    task = answers.completion_task(
        body(prompt=prompt_for_topic(4, 20, 1), n_predict=7, ignore_eos=True, seed=3), PLAN, -1
    )
    assert (task.prompt_tokens, task.topic, task.limit, task.ignore_eos, task.seed) == (20, 4, 7, True, 3)


def test_what_is_not_said_is_the_servers_default():
    assert answers.completion_task(body(prompt="a"), PLAN, 50).limit == 50
    assert answers.completion_task(body(prompt="a", n_predict=-1), PLAN, 50).limit > 1 << 20
    assert answers.completion_task(body(prompt=[33, 34, 300]), PLAN, 5).prompt_tokens == 3
    assert answers.completion_task(body(prompt="", temperature=1.0, unknown=[1]), PLAN, 5).prompt_tokens == 1


def test_a_chat_is_the_text_of_its_messages():
    text = prompt_for_topic(6, 30, 2)
    messages = [{"role": "user", "content": text}, {"role": "user", "content": [{"type": "text", "text": text}]}]
    task = answers.chat_task(body(messages=messages, max_tokens=3), PLAN, -1)
    assert (task.prompt_tokens, task.topic, task.limit) == (61, 6, 3)


@pytest.mark.parametrize(
    ("data", "status", "kind"),
    [
        (b"garbage", 400, "invalid_request_error"),
        (b"{}", 400, "invalid_request_error"),
        (b'{"prompt": 5}', 400, "invalid_request_error"),
        (b"[" * 100_000, 400, "invalid_request_error"),
        (body(prompt="a", stream=True), 501, "not_supported_error"),
        (body(prompt="x" * 256), 400, "exceed_context_size_error"),
    ],
)
def test_what_cannot_be_answered_is_said_as_llama_server_says_it(data, status, kind):
    with pytest.raises(answers.RequestError) as refused:
        answers.completion_task(data, PLAN, -1)
    assert refused.value.status == status
    assert refused.value.body["error"]["type"] == kind


def test_streaming_is_refused_by_name():
    with pytest.raises(answers.RequestError, match="moetuned-simulator does not stream"):
        answers.chat_task(body(messages=[], stream=True), PLAN, -1)


def test_answers_count_tokens_and_speeds():
    task = make_task()
    task.processed, task.decoded, task.prompt_seconds, task.predicted_seconds, task.stop_type = 10, 4, 2.0, 0.5, "limit"
    task.text = list("abcd")
    answer = answers.completion_answer(task, "m.gguf")
    assert (answer["content"], answer["tokens_predicted"], answer["stop_type"]) == ("abcd", 4, "limit")
    assert answer["timings"]["predicted_per_second"] == 8.0
    assert answer["timings"]["prompt_per_second"] == 5.0
    chat = answers.chat_answer(task, "m.gguf", 1)
    assert chat["usage"] == {"completion_tokens": 4, "prompt_tokens": 10, "total_tokens": 14}
    assert chat["choices"][0]["finish_reason"] == "length"
    assert chat["system_fingerprint"] == "moetuned-simulator"


def test_the_daemons_own_parser_understands_metrics_and_props():
    counters = Counters(prompt_tokens=5, prompt_seconds=1.0, predicted_tokens=7, predicted_seconds=2.0, decodes=1234567)
    text = answers.metrics_text(counters, 1, 2)
    props = answers.props(PLAN, "m.gguf", metrics=True, slots=True)
    parsed = parse_llama_http({"/metrics": text, "/props": json.dumps(props)})
    assert (parsed.tokens_predicted_total, parsed.prompt_tokens_total, parsed.decode_calls_total) == (7, 5, 1234567)
    assert parsed.requests_processing == 1
    assert parsed.sleeping is False
    assert props["build_info"] == "moetuned-simulator"
    assert props["default_generation_settings"]["n_ctx"] == 256


def test_metrics_before_any_request_are_zeros():
    text = answers.metrics_text(Counters(), 0, 0)
    values = [line.split()[1] for line in text.splitlines() if not line.startswith("#")]
    assert values
    assert set(values) == {"0"}
