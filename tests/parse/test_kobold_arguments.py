"""KoboldCpp's command line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.kobold_arguments import describe_kobold
from moetuned.schema.backend_abilities import Dialect
from moetuned.schema.backend_description import BackendDescription


def described(words: str) -> BackendDescription:
    return describe_kobold(words.split())


def test_every_setting() -> None:
    said = described(
        "--model /m.gguf --contextsize 16384 --threads 4 --blasbatchsize 1024 --flashattention --quantkv 1 --host 127.0.0.1 --port 5002"
    )
    assert said == BackendDescription(
        model_path="/m.gguf", context_length=16384, cache_type_k="q8_0", cache_type_v="q8_0", threads=4, url="http://127.0.0.1:5002",
        batch_tokens=1024, dialect=Dialect.KOBOLD,
    )  # fmt: skip


def test_nothing_said() -> None:
    assert described("") == BackendDescription(url="http://127.0.0.1:5001", dialect=Dialect.KOBOLD)


@pytest.mark.parametrize(
    ("words", "model", "url"),
    [
        ("/m.gguf", "/m.gguf", "http://127.0.0.1:5001"),
        ("/m.gguf 5003 --usecpu", "/m.gguf", "http://127.0.0.1:5003"),
        ("/m.gguf --port 5004", "/m.gguf", "http://127.0.0.1:5004"),
        ("--usecpu /m.gguf", None, "http://127.0.0.1:5001"),
        ("-m /m.gguf -c 4096", "/m.gguf", "http://127.0.0.1:5001"),
    ],
)
def test_model_and_port_may_stand_without_flags(words: str, model: str | None, url: str) -> None:
    said = described(words)
    assert (said.model_path, said.url) == (model, url)


def test_without_flash_attention_only_keys_are_quantised() -> None:
    said = described("--quantkv 2")
    assert (said.cache_type_k, said.cache_type_v) == ("q4_0", "f16")
    assert described("--quantkv 9").cache_type_k is None


@pytest.mark.parametrize("words", ["--config /k.kcpps --port 5001", "--ssl cert.pem key.pem", "--host 192.168.0.9"])
def test_where_it_is_not_asked(words: str) -> None:
    said = described(words)
    assert said.url is None
    assert said.url_unknown


@given(
    st.lists(st.text(max_size=6) | st.sampled_from(("--model", "--port", "-c", "--config", "--quantkv")), max_size=8)
)
def test_whatever_is_said_it_answers(words: list[str]) -> None:
    said = describe_kobold(words)
    assert (said.url is None) == (said.url_unknown is not None)
