"""Kinds of backends: each file is complete, and command lines find theirs."""

from __future__ import annotations

import pytest

from moetuned import backends
from moetuned.schema.backend_abilities import Dialect, Way
from moetuned.schema.config import Backend, Generic

COMMAND_LINES = {
    "ik-llama": ["/src/ik_llama.cpp/build/bin/llama-server", "-m", "/m.gguf", "-c", "4096"],
    "koboldcpp": ["/opt/koboldcpp-linux-x64", "--model", "/m.gguf", "--contextsize", "4096", "--port", "8080"],
    "llama-cpp-python": [
        "python3", "-m", "llama_cpp.server", "--model", "/m.gguf", "--n_ctx", "4096", "--host", "127.0.0.1", "--port", "8080",
    ],
    "llama-server": ["/opt/llama.cpp/bin/llama-server", "-m", "/m.gguf", "-c", "4096"],
    "ollama": ["/usr/bin/ollama", "runner", "--model", "/m.gguf", "--ctx-size", "4096", "--port", "8080"],
    "simulator": ["/v/bin/python3", "-m", "moetuned.simulator", "serve", "-m", "/m.gguf", "-c", "4096"],
    "xllamacpp": ["python3.12", "-u", "-m", "moetuned.xllamacpp_server", "-m", "/m.gguf", "-c", "4096"],
}  # fmt: skip
"""Each is a server with this model and context at this port; "generic" is recognised by an entry of the config alone."""
LLAMA = [name for name in COMMAND_LINES if backends.load(name).ABILITIES.dialect is Dialect.LLAMA]


def test_there_is_a_command_line_for_every_kind() -> None:
    assert set(backends.names()) == {*COMMAND_LINES, "generic"}


@pytest.mark.parametrize("name", COMMAND_LINES)
def test_each_kind_is_found_by_no_other_and_describes(name: str) -> None:
    kind = backends.find(COMMAND_LINES[name])
    assert kind is backends.load(name)
    assert name == kind.NAME
    assert [other for other in backends.names() if backends.load(other).recognise(COMMAND_LINES[name])] == [name]
    said = kind.describe(COMMAND_LINES[name], {})
    assert (said.model_path, said.context_length, said.url) == ("/m.gguf", 4096, "http://127.0.0.1:8080")


@pytest.mark.parametrize("name", backends.names())
def test_each_kind_is_complete(name: str) -> None:
    kind = backends.load(name)
    paragraphs = [" ".join(text.split()) for text in (kind.__doc__ or "").strip().split("\n\n")]
    assert [text.partition(":")[0] for text in paragraphs[-3:]] == ["Recognised by", "Read from", "Tells"]
    assert len(paragraphs) >= 4
    assert all(text.endswith(".") for text in paragraphs)
    assert backends.abilities(name) is kind.ABILITIES
    assert kind.describe([], {}).dialect in {kind.ABILITIES.dialect, Dialect.OLLAMA_RUNNER}


@pytest.mark.parametrize("name", backends.names())
def test_what_a_kind_can_do_and_by_which_names_agree(name: str) -> None:
    """Where it names a flag or a variable, its abilities say so, and what it describes follows it."""
    kind = backends.load(name)
    ways = {
        "context": kind.ABILITIES.context,
        "slots": kind.ABILITIES.slots,
        "prompt_cache_mib": kind.ABILITIES.prompt_cache,
        "cache_type": kind.ABILITIES.cache_types,
    }
    for setting, names in kind.SETTINGS.items():
        for each in names:
            assert each.flags or each.variable
            if setting in ways:
                assert (Way.FLAG in ways[setting]) >= bool(each.flags)
                assert (Way.VARIABLE in ways[setting]) >= (each.variable is not None)


@pytest.mark.parametrize("name", [*LLAMA, "koboldcpp", "llama-cpp-python"])
def test_a_kind_reads_the_context_by_each_of_its_names(name: str) -> None:
    kind = backends.load(name)
    for each in kind.SETTINGS["context"]:
        spelled = next(word for word in each.flags if word in COMMAND_LINES[name])
        bare = [word for word in COMMAND_LINES[name] if word not in (spelled, "4096")]
        for flag in each.flags:
            assert kind.describe([*bare, flag, "512"], {}).context_length == 512
        if each.variable is not None:
            assert kind.describe(bare, {each.variable: "512"}).context_length == 512
            assert kind.describe([*bare, each.flags[0], "256"], {each.variable: "512"}).context_length == 256


@pytest.mark.parametrize("name", LLAMA)
def test_those_of_llama_cpp_read_its_variables(name: str) -> None:
    kind = backends.load(name)
    assert kind.describe(COMMAND_LINES[name], {"LLAMA_ARG_N_PARALLEL": "3"}).slots == 3
    assert "LLAMA_ARG_N_PARALLEL" in kind.VARIABLES


def test_no_kind_reads_a_variable_that_may_hold_a_secret() -> None:
    read = {variable.upper() for name in backends.names() for variable in backends.load(name).VARIABLES}
    assert not [
        variable for variable in read if any(word in variable for word in ("TOKEN", "API_KEY", "PASSW", "SECRET"))
    ]


def test_a_generic_server_is_found_by_its_entry_alone() -> None:
    argv = ["/usr/bin/python3", "/opt/engine/serve.py", "--port", "7000"]
    entry = Backend("e", kind="generic", generic=Generic(process=r"\S+python3 /opt/engine/serve\.py"))
    find = backends.finder_of([Backend("other"), entry])
    assert backends.find(argv) is None
    assert find(argv) is backends.load("generic")
    assert find(COMMAND_LINES["ollama"]) is backends.load("ollama")
    assert backends.finder_of([Backend("other")])(argv) is None


@pytest.mark.parametrize(
    "argv",
    [
        [],
        [""],
        ["vim", "llama-server"],
        ["/usr/bin/llama-cli", "-m", "x"],
        ["python3", "-m", "moetuned.simulator", "make-model", "out"],
        ["python3", "-m", "moetuned.simulator"],
        ["sh", "-c", "exec llama-server"],
        ["ollama", "runner", "--ollama-engine", "--port", "38321"],
        ["ollama", "run", "mistral"],
        ["python3", "-m", "llama_cpp"],
        ["python3", "convert.py", "koboldcpp.py"],
        ["/usr/lib/ollama/llama-cli", "-m", "x"],
    ],
)
def test_other_programs_are_none(argv: list[str]) -> None:
    assert backends.find(argv) is None


def test_an_unknown_kind_names_those_there_are() -> None:
    with pytest.raises(LookupError, match=f"there are: {', '.join(backends.names())}"):
        backends.load("vllm")
