"""Command lines of a generic server against its expression."""

from __future__ import annotations

import pytest

from moetuned.parse.generic_process import is_of
from moetuned.schema.config import Generic


@pytest.mark.parametrize(
    ("process", "argv", "expected"),
    [
        (r"\S+/engine serve", ("/opt/engine", "serve", "-p", "1"), True),
        (r"engine", ("/opt/engine",), False),
        (r".*engine", ("/opt/engine",), True),
        (r"a b c", ("a", "b c"), True),
        (r"a", (), False),
        (r"(a+)+$", ("a" * 100 + "b",), False),
        (r".*end", ("x" * 600, "end"), False),
    ],
)
def test_from_the_beginning_and_no_further_than_needed(process: str, argv: tuple[str, ...], expected: bool) -> None:
    assert is_of(Generic(process=process), argv) is expected
