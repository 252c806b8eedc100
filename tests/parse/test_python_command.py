"""`python -m module` command lines."""

from __future__ import annotations

import pytest

from moetuned.parse.python_command import module_arguments


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["/usr/bin/python3.11", "-m", "a.b", "serve", "-c", "1"], ("serve", "-c", "1")),
        (["python3", "-u", "-X", "utf8", "-W", "ignore", "-m", "a.b"], ()),
        (["python3", "-m", "a.c"], None),
        (["python3", "-m"], None),
        (["python3", "script.py", "-m", "a.b"], None),
        (["python3", "-c", "x", "-m", "a.b"], None),
        (["bash", "-m", "a.b"], None),
        ([], None),
    ],
)
def test_module_arguments(argv: list[str], expected: tuple[str, ...] | None) -> None:
    assert module_arguments(argv, "a.b") == expected
