"""The kind ik-llama: command lines it takes for its own."""

from __future__ import annotations

import pytest

from moetuned.backends import ik_llama, llama_server


@pytest.mark.parametrize(
    "argv",
    [
        ["/home/u/ik_llama.cpp/build/bin/llama-server", "-m", "x"],
        ["./ik-llama/llama-server", "-m", "x"],
        ["llama-server", "-m", "x", "-fmoe"],
        ["llama-server", "-m", "x", "-mla", "3", "-amb", "512"],
        ["llama-server", "--defer-experts", "-m", "x"],
    ],
)
def test_its_own(argv: list[str]) -> None:
    assert ik_llama.recognise(argv)
    assert not llama_server.recognise(argv)


@pytest.mark.parametrize(
    "argv", [["llama-server", "-m", "/models/ik_llama/x.gguf"], ["/ik_llama.cpp/bin/llama-cli", "-rtr"], []]
)
def test_not_its_own(argv: list[str]) -> None:
    assert not ik_llama.recognise(argv)


def test_its_own_flags_hide_none_of_the_others() -> None:
    argv = [
        "llama-server",
        "-mla",
        "3",
        "-m",
        "/m.gguf",
        "-fa",
        "-amb",
        "512",
        "-c",
        "32768",
        "-ctk",
        "q8_0",
        "-fmoe",
        "-np",
        "1",
    ]
    said = ik_llama.describe(argv, {})
    assert (said.model_path, said.context_length, said.cache_type_k, said.slots) == ("/m.gguf", 32768, "q8_0", 1)
