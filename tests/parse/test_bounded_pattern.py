"""Expressions out of a config: which are allowed, and that none of them can run away."""

from __future__ import annotations

from collections.abc import Iterable
from re import _parser  # type: ignore[attr-defined]
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.bounded_pattern import MOST_PATTERN, bounded_pattern


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        (r"tokens_total (\S+)", "tokens_total 5"),
        (r'vllm:tokens_total\{model="[^"]+"\} (\S+)', 'vllm:tokens_total{model="a b"} 7'),
        (r".*engine.*--port", "/usr/bin/engine serve --port"),
        (r"(?:a|b)c", "bc"),
        (r"[^]]+x", "aax"),
        (r"a{2,3}b", "aab"),
        (r"\(a\)", "(a)"),
    ],
)
def test_allowed(text: str, subject: str) -> None:
    assert bounded_pattern(text).match(subject)


@pytest.mark.parametrize(
    "text",
    [
        "a{1000,}b*c*", "", "x" * (MOST_PATTERN + 1), "(a+)+", "(a*)*b", "(a|a)*", "(?:a+)", "a*b*c*", "a**", "(a)(b)\\1", "x(?=y)", "(?<!a)b", "(?P<n>a)",
        "(?i)a", "[a", "(a", "a)", "a|b|c|d|e|f|g|h|i|j", "\\", "\\p", "(\\d+)+", "*a", "a{2}{3}", "(ab+)",
    ],
)  # fmt: skip
def test_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        bounded_pattern(text)


def repeats_of(parsed: Iterable[Any], inside: bool = False) -> int:
    """Repeats in an expression as `re` itself understands it; fails for one within another."""
    found = 0
    for operation, argument in parsed:
        name = str(operation)
        assert name not in ("GROUPREF", "ASSERT", "ASSERT_NOT", "GROUPREF_EXISTS", "POSSESSIVE_REPEAT"), name
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            assert not inside, "a repeat within a repeat"
            found += 1 + repeats_of(argument[2], inside=True)
        elif name == "SUBPATTERN":
            found += repeats_of(argument[3], inside)
        elif name == "BRANCH":
            found += sum(repeats_of(branch, inside) for branch in argument[1])
    return found


@given(st.text("ab.*+?|()[]{}\\d^$1,:", max_size=14))
def test_what_is_allowed_has_two_repeats_at_most_and_none_within_another(text: str) -> None:
    try:
        bounded_pattern(text)
    except ValueError:
        return
    assert repeats_of(_parser.parse(text)) <= 2
