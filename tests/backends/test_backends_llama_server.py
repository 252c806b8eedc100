"""The kind llama-server: command lines it takes for its own."""

from __future__ import annotations

import pytest

from moetuned.backends import llama_server


@pytest.mark.parametrize(
    "program", ["llama-server", "./llama-server", "/usr/bin/llama-server", "/x/llama-server-b11434"]
)
def test_names_of_the_program(program: str) -> None:
    assert llama_server.recognise([program, "-m", "x"])


def test_the_program_itself_is_no_argument() -> None:
    assert llama_server.describe(["llama-server", "-np", "2"], {}).slots == 2
