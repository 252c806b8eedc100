"""The kind xllamacpp: command lines it takes for its own."""

from __future__ import annotations

import pytest

from moetuned.backends import xllamacpp


@pytest.mark.parametrize(("module", "expected"), [("moetuned.xllamacpp_server", True), ("xllamacpp", False)])
def test_the_launchers_module(module: str, expected: bool) -> None:
    assert xllamacpp.recognise(["python3", "-m", module, "-m", "x.gguf"]) is expected


def test_the_model_is_not_the_module() -> None:
    argv = ["python3", "-m", "moetuned.xllamacpp_server", "-m", "x.gguf", "--port", "81"]
    assert xllamacpp.describe(argv, {}).model_path == "x.gguf"
