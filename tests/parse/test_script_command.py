from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moetuned.parse.script_command import script_problems


def test_sound() -> None:
    assert script_problems(["/usr/local/bin/restart llama", "{context}", "--x", "$(a)"]) == ()


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ([], "is empty"),
        (["restart-llama"], "must be an absolute path"),
        (["/bin/"], "is no path of a script"),
        (["/opt/../tmp/x"], "is no path of a script"),
        (["/usr/local/bin/x -c"], "holds more than the script"),
        (["/usr/local/bin/x {context}"], "holds more than the script"),
        (["/usr/local/bin/{model}"], "has a placeholder"),
        (["/x", "a\0b"], "holds a NUL"),
    ],
)
def test_problems(command: list[str], problem: str) -> None:
    assert any(problem in one for one in script_problems(command))


@given(st.lists(st.text(max_size=20), max_size=4))
def test_any_words_give_sentences(command: list[str]) -> None:
    problems = script_problems(command)
    assert problems or command[0].startswith("/")
    assert all("\0" not in one for one in problems)
