"""Any body from a backend: nothing raises up to the verdict, and what is shown of it is a number that can be one."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.decide import detector, signals
from moetuned.decide.detector import DetectorSettings
from moetuned.decide.facts import BackendFacts
from moetuned.parse.assemble import assemble
from moetuned.parse.http_fields import MAX_COUNT
from moetuned.parse.llama_http import parse_llama_http
from moetuned.schema.sample import BackendIdentity, RawBackend, RawSample

PATHS = ("/health", "/slots", "/metrics", "/props")
FIELDS = (
    "id", "id_task", "n_ctx", "is_processing", "state", "n_prompt_tokens", "n_prompt_tokens_processed", "n_prompt_tokens_cache",
    "next_token", "n_decoded", "status", "error", "code", "message", "is_sleeping",
)  # fmt: skip
DEEP = 200_000
WRONG = (
    "null", "true", "-1", "0", "1e400", "-0.0", "1.5", "9" * 400, str(1 << 53), str(1 << 64), '""', '"1"', "[]", "{}", "[[]]",
    '[{"n_decoded":1}]', '{"n_decoded":"x"}', "[null]", "NaN", "Infinity", '"\\ud800"', '"\\u0000"',
)  # fmt: skip
METRICS = (
    "llamacpp:tokens_predicted_total",
    "llamacpp:prompt_tokens_total",
    "llamacpp:n_decode_total",
    "llamacpp:requests_processing",
)
VALUES = ("", "nan", "-inf", "1e999", "-1", "0x10", "1_0", "1 2", "٣", "\0", "9" * 5000, " " * 100, "1e308", "5")


def counts_of(bodies: dict[str, str]) -> list[float]:
    """All numbers of what is made of the bodies."""
    found = parse_llama_http(bodies)
    built = msgspec.to_builtins(found) if found is not None else {}
    slots = [value for slot in built.get("slots") or () for value in slot.values()]
    return [
        value for value in (*built.values(), *slots) if isinstance(value, int | float) and not isinstance(value, bool)
    ]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "body",
    [
        "[" * DEEP, '{"a":' * DEEP, "[" * DEEP + "]" * DEEP, '[{"next_token":' + "[" * DEEP + "]" * DEEP + "}]",
        '[{"id":' + '{"a":' * DEEP + "1" + "}" * DEEP + "}]", '"' + "\\" * DEEP, "[" + "{}," * 300 + "{}]", "9" * DEEP, "-", "\ufeff[]",
        '[{"id":1,"id":2,"id":"x"}]', '{"status":"ok","status":5}', '{"error":{"code":503,"code":[]}}', "[1,2]", "\udcff", "\0" * 9,
    ],
    ids=range(16),
)  # fmt: skip
def test_deep_long_and_doubled(path: str, body: str) -> None:
    assert all(0 <= count < MAX_COUNT for count in counts_of({path: body}))


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", WRONG)
def test_each_field_with_each_wrong_value(field: str, value: str) -> None:
    body = f'{{"{field}":{value}}}'
    nested = f'{{"error":{body}}}', f'[{{"next_token":{body}}}]', f'[{{"next_token":[{body}]}}]', f"[{body}]", body
    for text in nested:
        assert all(0 <= count < MAX_COUNT for count in counts_of(dict.fromkeys(PATHS, text)))


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("value", VALUES)
def test_each_metric_with_each_wrong_value(name: str, value: str) -> None:
    assert all(
        0 <= count < MAX_COUNT for count in counts_of({"/metrics": f"# TYPE x\n{name} {value}\n{name}{{a=1}} 5\n"})
    )


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(PATHS),
            st.binary(max_size=80).map(lambda data: data.decode("utf-8", "replace"))
            | st.lists(
                st.sampled_from([*FIELDS, *WRONG, *VALUES, *METRICS, "[", "]", "{", "}", '"', ":", ",", "\n", " "])
            ).map("".join)
            | st.lists(st.tuples(st.sampled_from(FIELDS), st.sampled_from(WRONG)), max_size=8).map(
                lambda pairs: "[{" + ",".join(f'"{key}":{value}' for key, value in pairs) + "}]"
            )
            | st.sampled_from(["!timeout", "!503 x", "!", "!" + "x" * 999]),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_a_run_of_ticks_with_any_bodies(run: list[dict[str, str]]) -> None:
    own, state, samples = BackendIdentity("b", pid=1, url="http://127.0.0.1:1"), detector.initial("b"), []
    facts = BackendFacts(address_known=True, batch_tokens=512, micro_batch_tokens=64)
    for second, bodies in enumerate(run):
        files: dict[str, str | None] = {
            "/proc/1/stat": f"1 (x) S 1 1 1 0 -1 0 0 0 {second} 0 1 1 0 0 20 0 1 0 77 1 1\n",
            "/proc/1/io": f"read_bytes: {second << 24}\n",
        }
        samples.append(assemble(RawSample(float(second), 1.0, files, {"b": RawBackend(bodies)}), [own]))
        derived = signals.derive(samples, "b", facts)
        step = detector.step(state, derived, samples[-1].backends[0], facts, DetectorSettings())
        state = step.state
        json.loads(msgspec.json.encode((derived, step.verdict)))
