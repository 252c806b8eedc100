"""The kind llama-cpp-python: command lines it takes for its own."""

from __future__ import annotations

import pytest

from moetuned.backends import llama_cpp_python
from moetuned.schema.backend_abilities import Dialect


@pytest.mark.parametrize(("module", "expected"), [("llama_cpp.server", True), ("llama_cpp", False), ("server", False)])
def test_its_module(module: str, expected: bool) -> None:
    assert llama_cpp_python.recognise(["/v/bin/python3.11", "-m", module, "--model", "x"]) is expected


def test_the_module_is_not_the_model() -> None:
    said = llama_cpp_python.describe(["python", "-m", "llama_cpp.server"], {"MODEL": "/m.gguf", "PORT": "81"})
    assert (said.model_path, said.url, said.dialect) == ("/m.gguf", "http://localhost:81", Dialect.LLAMA_PYTHON)
