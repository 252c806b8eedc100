"""llama-cpp-python's server: what its flags and variables say together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.llama_python_arguments import VARIABLES, describe_llama_python
from moetuned.schema.backend_abilities import Dialect
from moetuned.schema.backend_description import BackendDescription


def described(words: str = "", **environ: str) -> BackendDescription:
    return describe_llama_python(words.split(), environ)


def test_every_setting() -> None:
    said = described(
        "--model /m.gguf --n_ctx 8192 --n_batch 512 --n_ubatch 256 --n_threads 4 --type_k 8 --type_v 2 --cache true "
        "--cache_size 1073741824 --host 0.0.0.0 --port 8001"
    )
    assert said == BackendDescription(
        model_path="/m.gguf", context_length=8192, cache_type_k="q8_0", cache_type_v="q4_0", prompt_cache_mib=1024, threads=4,
        url="http://127.0.0.1:8001", batch_tokens=512, micro_batch_tokens=256, dialect=Dialect.LLAMA_PYTHON,
    )  # fmt: skip


def test_nothing_said() -> None:
    assert described() == BackendDescription(url="http://localhost:8000", dialect=Dialect.LLAMA_PYTHON)


def test_flags_go_before_variables_but_not_before_host_and_port() -> None:
    said = described(
        "--n_ctx 1024 --port 8001 --host 10.0.0.1", N_CTX="2048", n_batch="64", PORT="8002", HOST="127.0.0.1"
    )
    assert (said.context_length, said.batch_tokens, said.url) == (1024, 64, "http://127.0.0.1:8002")


@pytest.mark.parametrize("words", ["--config_file /c.json", "--config_file=/c.json --model /m.gguf --port 1"])
def test_with_a_config_file_nothing_else_counts(words: str) -> None:
    said = described(words)
    assert (said.model_path, said.context_length, said.url) == (None, None, None)
    assert "config file" in (said.url_unknown or "")
    assert described("", CONFIG_FILE="/c.json", PORT="8003", N_CTX="5").url == "http://localhost:8003"


@pytest.mark.parametrize(
    ("words", "mib"),
    [
        ("--cache true", 2048),
        ("--cache=false", 0),
        ("--cache true --cache_type disk", 0),
        ("--cache true --cache_size many", None),
        ("", None),
    ],
)
def test_its_prompt_cache(words: str, mib: int | None) -> None:
    assert described(words).prompt_cache_mib == mib


def test_tls_and_other_addresses_are_not_asked() -> None:
    assert described("--ssl_keyfile /k.pem").url is None
    assert described("--host 192.168.0.2").url is None


@given(
    st.lists(
        st.text(max_size=9) | st.sampled_from(("--n_ctx", "--port", "--cache", "--cache_size", "--type_k")), max_size=8
    ),
    st.dictionaries(st.sampled_from(VARIABLES), st.text(max_size=8)),
)
def test_whatever_is_said_it_answers(words: list[str], environ: dict[str, str]) -> None:
    said = describe_llama_python(words, environ)
    assert (said.url is None) == (said.url_unknown is not None)
    assert said.context_length is None or said.context_length > 0
