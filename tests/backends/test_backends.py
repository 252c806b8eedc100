"""Kinds of backends: each file is complete, and command lines find theirs."""

from __future__ import annotations

import pytest

from moetuned import backends
from moetuned.schema.backend_description import BackendDescription

COMMAND_LINES = {
    "llama-server": ["/opt/llama.cpp/bin/llama-server", "-m", "/m.gguf", "-c", "4096"],
    "simulator": ["/v/bin/python3", "-m", "moetuned.simulator", "serve", "-m", "/m.gguf", "-c", "4096"],
    "xllamacpp": ["python3.12", "-u", "-m", "moetuned.xllamacpp_server", "-m", "/m.gguf", "-c", "4096"],
}


def test_there_is_a_command_line_for_every_kind() -> None:
    assert set(backends.names()) == set(COMMAND_LINES)


@pytest.mark.parametrize("name", COMMAND_LINES)
def test_each_kind_is_complete_found_and_describes(name: str) -> None:
    kind = backends.find(COMMAND_LINES[name])
    assert kind is backends.load(name)
    assert name == kind.NAME
    assert (kind.__doc__ or "").count("\n") >= 2
    expected = BackendDescription(model_path="/m.gguf", context_length=4096, url="http://127.0.0.1:8080")
    assert kind.describe(COMMAND_LINES[name], {}) == expected
    assert kind.describe(COMMAND_LINES[name], {"LLAMA_ARG_N_PARALLEL": "3"}).slots == 3


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
    ],
)
def test_other_programs_are_none(argv: list[str]) -> None:
    assert backends.find(argv) is None


def test_an_unknown_kind_names_those_there_are() -> None:
    with pytest.raises(LookupError, match="llama-server, simulator, xllamacpp"):
        backends.load("ollama")
