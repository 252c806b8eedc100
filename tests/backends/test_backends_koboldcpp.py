"""The kind koboldcpp: command lines it takes for its own."""

from __future__ import annotations

import pytest

from moetuned.backends import koboldcpp


@pytest.mark.parametrize(
    "argv",
    [
        ["koboldcpp", "/m.gguf"],
        ["/opt/koboldcpp-linux-x64-nocuda", "--model", "/m.gguf"],
        ["./koboldcpp.py", "--model", "/m.gguf"],
        ["/usr/bin/python3", "-u", "/opt/koboldcpp/koboldcpp.py", "--model", "/m.gguf"],
    ],
)
def test_its_program_and_its_script(argv: list[str]) -> None:
    assert koboldcpp.recognise(argv)
    assert koboldcpp.describe(argv, {"PORT": "1"}).model_path == "/m.gguf"


@pytest.mark.parametrize("argv", [[], ["kobold"], ["python3", "-c", "koboldcpp.py"], ["vim", "koboldcpp.py"]])
def test_others(argv: list[str]) -> None:
    assert not koboldcpp.recognise(argv)
