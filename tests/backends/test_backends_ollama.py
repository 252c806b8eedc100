"""The kind ollama: which of its processes it takes for its own."""

from __future__ import annotations

import pytest

from moetuned.backends import llama_server, ollama
from moetuned.schema.backend_abilities import Dialect

BLOB = "/usr/share/ollama/.ollama/models/blobs/sha256-90a618fe"


@pytest.mark.parametrize(
    ("argv", "dialect"),
    [
        (["/usr/local/bin/ollama", "serve"], Dialect.OLLAMA),
        (["/tmp/ollama1/runners/cpu/ollama_llama_server", "--model", BLOB, "--port", "1"], Dialect.OLLAMA_RUNNER),
        (["/usr/local/bin/ollama", "runner", "--ollama-engine", "--model", BLOB, "--port", "1"], Dialect.OLLAMA_RUNNER),
        (["/usr/local/lib/ollama/llama-server", "--model", BLOB, "--port", "1"], Dialect.LLAMA),
    ],
)
def test_its_processes(argv: list[str], dialect: Dialect) -> None:
    assert ollama.recognise(argv)
    assert not llama_server.recognise(argv)
    assert ollama.describe(argv, {}).dialect is dialect


@pytest.mark.parametrize(
    "words", [["ollama"], ["ollama", "list"], ["ollama", "runner", "--ollama-engine", "--port", "1"]]
)
def test_other_calls_of_it_are_none(words: list[str]) -> None:
    assert not ollama.recognise(words)
