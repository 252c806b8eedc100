"""llama-server's command line and environment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.llama_arguments import describe_arguments
from moetuned.schema.backend_description import BackendDescription


@pytest.mark.parametrize(
    "spelling", [["-c", "4096"], ["--ctx-size", "4096"], ["--ctx-size=4096"], ["--ctx_size", "4096"]]
)
def test_every_spelling_of_the_context(spelling: list[str]) -> None:
    assert describe_arguments(["--no-repack", *spelling, "--metrics"], {}).context_length == 4096


def test_everything_at_once() -> None:
    line = "-m /models/a.gguf -c 8192 -np 2 -ctk q8_0 --cache-type-v q4_0 -cram 0 -t 6 --host 0.0.0.0 --port 8191 --metrics"
    assert describe_arguments([*line.split(), "--sleep-idle-seconds", "300"], {}) == BackendDescription(
        model_path="/models/a.gguf",
        context_length=8192,
        slots=2,
        cache_type_k="q8_0",
        cache_type_v="q4_0",
        prompt_cache_mib=0,
        threads=6,
        url="http://127.0.0.1:8191",
        metrics=True,
        sleeps_after_seconds=300,
    )


def test_nothing_said_is_unknown_but_the_address_is_the_servers_default() -> None:
    assert describe_arguments([], {}) == BackendDescription(url="http://127.0.0.1:8080")


def test_command_line_beats_environment_and_the_last_flag_wins() -> None:
    environ = {"LLAMA_ARG_CTX_SIZE": "1024", "LLAMA_ARG_PORT": "9000", "LLAMA_ARG_ENDPOINT_METRICS": "1"}
    described = describe_arguments(["-c", "2048", "--ctx-size", "3072"], environ)
    assert (described.context_length, described.url, described.metrics) == (3072, "http://127.0.0.1:9000", True)
    assert not describe_arguments([], {"LLAMA_ARG_ENDPOINT_METRICS": "0"}).metrics


@pytest.mark.parametrize("text", ["0", "-1", "abc", "", "4096x", "٤٠٩٦", "1" * 40])
def test_what_leaves_it_to_the_server_or_is_no_number_is_unknown(text: str) -> None:
    described = describe_arguments(["-c", text, "-np", text, "-t", text], {})
    assert (described.context_length, described.slots, described.threads) == (None, None, None)


def test_a_flag_at_the_end_without_value_is_unknown() -> None:
    assert describe_arguments(["-m", "/a.gguf", "-c"], {}).context_length is None


def test_a_value_that_looks_like_a_flag_is_a_value() -> None:
    described = describe_arguments(["-cram", "-1", "-m", "-c", "-np", "3"], {})
    assert (described.prompt_cache_mib, described.model_path, described.slots) == (-1, "-c", 3)


@pytest.mark.parametrize(
    ("arguments", "url"),
    [
        (["--host", "localhost"], "http://localhost:8080"),
        (["--host", "::"], "http://[::1]:8080"),
        (["--host", "127.0.0.5", "--port", "1"], "http://127.0.0.5:1"),
        (["--api-prefix", "/llm/"], "http://127.0.0.1:8080/llm"),
    ],
)
def test_addresses_on_this_machine(arguments: list[str], url: str) -> None:
    assert describe_arguments(arguments, {}).url == url


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--host", "192.168.1.5"], "192.168.1.5"),
        (["--host", "/run/llama.sock"], "Unix socket"),
        (["--ssl-key-file", "/k"], "TLS"),
        (["--port", "70000"], "70000"),
        (["--port", "http"], "http"),
        (["--api-prefix", "/a b"], "no path"),
        (["--host", ""], "no address"),
    ],
)
def test_no_address_says_why(arguments: list[str], why: str) -> None:
    described = describe_arguments(arguments, {})
    assert described.url is None
    assert described.url_unknown is not None
    assert why in described.url_unknown


_TOKENS = st.sampled_from(
    ["-c", "--ctx-size", "--ctx-size=5", "-m", "--port", "--host", "-np", "--metrics", "--api-prefix"]
)


@given(
    st.lists(_TOKENS | st.text(max_size=8)),
    st.dictionaries(st.sampled_from(["LLAMA_ARG_PORT", "LLAMA_ARG_HOST"]), st.text()),
)
def test_any_command_line_gives_a_description(arguments: list[str], environ: dict[str, str]) -> None:
    described = describe_arguments(arguments, environ)
    assert (described.url is None) != (described.url_unknown is None)
    assert described.context_length is None or described.context_length > 0


def test_batch_and_micro_batch() -> None:
    said = describe_arguments(["-b", "4096", "--ubatch-size", "128"], {"LLAMA_ARG_UBATCH": "64"})
    assert (said.batch_tokens, said.micro_batch_tokens) == (4096, 128)
    assert describe_arguments([], {"LLAMA_ARG_BATCH": "512"}).batch_tokens == 512
    assert describe_arguments([], {}).micro_batch_tokens is None


@pytest.mark.parametrize(
    ("arguments", "environ", "unified"),
    [
        ([], {}, None),
        (["-kvu"], {}, True),
        (["--kv-unified"], {}, True),
        (["--no-kv-unified"], {}, False),
        (["-kvu", "-no-kvu"], {}, False),
        (["--no_kv_unified", "--kv_unified"], {}, True),
        ([], {"LLAMA_ARG_KV_UNIFIED": "on"}, True),
        ([], {"LLAMA_ARG_KV_UNIFIED": "0"}, False),
        ([], {"LLAMA_ARG_KV_UNIFIED": "perhaps"}, None),
        ([], {"LLAMA_ARG_NO_KV_UNIFIED": "1"}, False),
        (["-kvu"], {"LLAMA_ARG_NO_KV_UNIFIED": "1"}, True),
        (["-m", "--kv-unified"], {}, None),
    ],
)
def test_whether_the_slots_share_one_cache(arguments: list[str], environ: dict[str, str], unified: bool | None) -> None:
    assert describe_arguments(arguments, environ).kv_unified is unified
