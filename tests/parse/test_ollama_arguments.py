"""Ollama's processes, in the command lines that its versions have logged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.ollama_arguments import VARIABLES, describe_ollama, ollama_part
from moetuned.schema.backend_abilities import Dialect

BLOB = "/usr/share/ollama/.ollama/models/blobs/sha256-8934d96d3f08982e95922b2b7a2c626a1fe873d7c3b06e8e56d7bc0a1fef9246"
OLD = f"/tmp/ollama2/runners/cpu_avx2/ollama_llama_server --model {BLOB} --ctx-size 8192 --batch-size 512 --threads 6 --parallel 4 --port 41234"
RUNNER = f"/usr/local/bin/ollama runner --model {BLOB} --ctx-size 8192 --batch-size 512 --n-gpu-layers 33 --threads 6 --parallel 2 --port 50762"
ENGINE = f"/usr/local/bin/ollama runner --ollama-engine --model {BLOB} --port 43263"
LLAMA = f"/usr/local/lib/ollama/llama-server --model {BLOB} --port 44001 --host 127.0.0.1 --no-webui --offline -c 16384 -np 2 --cache-type-k q8_0 --cache-type-v q8_0"


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("ollama serve", "serve"),
        ("/usr/bin/ollama start", "serve"),
        (OLD, "runner"),
        (RUNNER, "runner"),
        (ENGINE, "runner"),
        ("/usr/local/bin/ollama runner --ollama-engine --port 38321", None),
        (LLAMA, "llama-server"),
        ("/opt/llama.cpp/llama-server -m x", None),
        ("/usr/lib/ollama/cuda_v12/llama-server --model x", "llama-server"),
        ("ollama pull x", None),
        ("", None),
    ],
)
def test_which_process_it_is(line: str, part: str | None) -> None:
    assert ollama_part(line.split()) == part


@pytest.mark.parametrize(("line", "slots", "port"), [(OLD, 4, 41234), (RUNNER, 2, 50762)])
def test_a_runner_that_is_told_all_on_its_command_line(line: str, slots: int, port: int) -> None:
    said = describe_ollama(line.split(), {"OLLAMA_CONTEXT_LENGTH": "99"})
    assert (said.model_path, said.context_length, said.slots, said.threads, said.batch_tokens) == (
        BLOB,
        8192,
        slots,
        6,
        512,
    )
    assert (said.url, said.dialect) == (f"http://127.0.0.1:{port}", Dialect.OLLAMA_RUNNER)
    assert said.front_url == "http://127.0.0.1:11434"


def test_a_runner_that_is_told_the_rest_later_has_its_servers_variables() -> None:
    environ = {
        "OLLAMA_CONTEXT_LENGTH": "8192",
        "OLLAMA_NUM_PARALLEL": "2",
        "OLLAMA_KV_CACHE_TYPE": "q8_0",
        "OLLAMA_HOST": ":11500",
    }
    said = describe_ollama(ENGINE.split(), environ)
    assert (said.context_length, said.slots, said.cache_type_k, said.cache_type_v) == (16384, 2, "q8_0", "q8_0")
    assert said.front_url == "http://127.0.0.1:11500"
    assert describe_ollama(ENGINE.split(), {}).context_length is None


def test_its_llama_server_is_read_like_llama_cpps() -> None:
    said = describe_ollama(LLAMA.split(), {"LLAMA_ARG_CACHE_RAM": "512"})
    assert (said.context_length, said.slots, said.cache_type_k, said.prompt_cache_mib) == (16384, 2, "q8_0", 512)
    assert (said.url, said.front_url, said.dialect) == (
        "http://127.0.0.1:44001",
        "http://127.0.0.1:11434",
        Dialect.LLAMA,
    )


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:8000", "http://127.0.0.1:8000"),
        (":8000", "http://127.0.0.1:8000"),
        ("http://0.0.0.0:11434", "http://127.0.0.1:11434"),
        ("http://127.0.0.1", "http://127.0.0.1:80"),
        ("[::]:11434", "http://[::1]:11434"),
        ("[::1]", "http://[::1]:11434"),
        ("https://localhost", None),
        ("192.168.1.2", None),
    ],
)
def test_where_it_listens(host: str, url: str | None) -> None:
    said = describe_ollama(["ollama", "serve"], {"OLLAMA_HOST": host})
    assert (said.url, said.model_path) == (url, None)
    assert (said.url is None) == (said.url_unknown is not None)


@given(
    st.sampled_from((["ollama", "serve"], ENGINE.split(), RUNNER.split(), LLAMA.split())),
    st.lists(st.text(max_size=6), max_size=4),
    st.dictionaries(st.sampled_from(VARIABLES), st.text(max_size=12)),
)
def test_whatever_is_said_it_answers(argv: list[str], more: list[str], environ: dict[str, str]) -> None:
    said = describe_ollama([*argv, *more], environ)
    assert (said.url is None) == (said.url_unknown is not None)
